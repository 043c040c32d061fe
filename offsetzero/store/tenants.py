"""Keys of services: each belongs to one tenant, and only its hash is stored."""

import hashlib
import re
import secrets

from offsetzero.errors import ConfigurationError
from offsetzero.store.database import Connection
from offsetzero.store.script import Script, run

PREFIX = "ozk_"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def create_key(connection: Connection, tenant_id: str) -> str:
    """Make a new key for a tenant, in the caller's transaction.

    Returns:
        The key. It is not stored and cannot be shown again.

    Raises:
        ConfigurationError: the tenant id is not made of 1 to 64 letters, digits, `_` or `-`.
    """
    return run(connection, new_key(tenant_id))


def new_key(tenant_id: str) -> Script[str]:
    """As `create_key`, for any kind of connection."""
    if not _TENANT.fullmatch(tenant_id):
        raise ConfigurationError(
            f"tenant id {tenant_id!r}: use 1 to 64 letters, digits, '_' or '-', a letter or digit first"
        )
    key = PREFIX + secrets.token_urlsafe(32)
    yield (
        "INSERT INTO api_keys (key_hash, tenant_id, hint) VALUES (%s, %s, %s)",
        (_hash(key), tenant_id, f"{key[:8]}…{key[-4:]}"),
    )
    return key


def tenant_of(key: str) -> Script[str | None]:
    """The tenant that a key belongs to; None for an unknown or revoked key."""
    rows = yield (
        "SELECT tenant_id FROM api_keys WHERE key_hash = %s AND revoked_at IS NULL",
        (_hash(key),),
    )
    return rows[0][0] if rows else None


def revoke_key(key: str) -> Script[bool]:
    """End a key. False when it was unknown or already revoked."""
    rows = yield (
        "UPDATE api_keys SET revoked_at = now() WHERE key_hash = %s AND revoked_at IS NULL RETURNING 1",
        (_hash(key),),
    )
    return bool(rows)


def _hash(key: str) -> bytes:
    # A key has 256 random bits: a fast hash is enough, there is nothing to guess.
    return hashlib.sha256(key.encode()).digest()
