"""Keys of services: each belongs to one tenant, and only its hash is stored."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from offsetzero.errors import ConfigurationError
from offsetzero.store.database import Connection
from offsetzero.store.script import Script, run

PREFIX = "ozk_"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ID = re.compile(r"[0-9a-f]{12}")


class Role(StrEnum):
    """What a key may do."""

    READER = "reader"
    WRITER = "writer"


class Owner(NamedTuple):
    """Whose key it is, and what it may do."""

    tenant_id: str
    role: Role


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """What is known of a key: never the key itself. `hint` is its beginning and end, `name` what it is for."""

    id: str
    tenant_id: str
    name: str
    hint: str
    created_at: datetime
    revoked_at: datetime | None
    role: Role


def create_key(connection: Connection, tenant_id: str, name: str = "", role: Role = Role.WRITER) -> str:
    """Make a new key for a tenant, in the caller's transaction.

    Args:
        connection: the database.
        tenant_id: whose documents the key opens.
        name: what it is for, to be found in the list of keys.
        role: what it may do.

    Returns:
        The key. It is not stored and cannot be shown again.

    Raises:
        ConfigurationError: the tenant id is not made of 1 to 64 letters, digits, `_` or `-`.
    """
    return run(connection, new_key(tenant_id, name, role))


def new_key(tenant_id: str, name: str = "", role: Role = Role.WRITER) -> Script[str]:
    """As `create_key`, for any kind of connection."""
    if not _TENANT.fullmatch(tenant_id):
        raise ConfigurationError(
            f"tenant id {tenant_id!r}: use 1 to 64 letters, digits, '_' or '-', a letter or digit first"
        )
    key = PREFIX + secrets.token_urlsafe(32)
    yield (
        "INSERT INTO api_keys (key_hash, tenant_id, hint, name, role) VALUES (%s, %s, %s, %s, %s)",
        (_hash(key), tenant_id, f"{key[:8]}…{key[-4:]}", name, role.value),
    )
    return key


def id_of(key: str) -> str:
    """How a key is called in lists and logs: the first 12 hex digits of its SHA-256."""
    return _hash(key).hex()[:12]


def keys(tenant_id: str | None = None) -> Script[list[KeyInfo]]:
    """All keys, revoked ones too, of one tenant or of all; oldest first within a tenant."""
    rows = yield (
        "SELECT left(encode(key_hash, 'hex'), 12), tenant_id, name, hint, created_at, revoked_at, role FROM api_keys "
        "WHERE %s::text IS NULL OR tenant_id = %s ORDER BY tenant_id, created_at, key_hash",
        (tenant_id, tenant_id),
    )
    return [_info(row) for row in rows]


def tenant_of(key: str) -> Script[str | None]:
    """The tenant that a key belongs to; None for an unknown or revoked key."""
    (owner,) = yield from owners_of([key])
    return owner.tenant_id if owner else None


def owners_of(keys: Sequence[str]) -> Script[list[Owner | None]]:
    """Whose each key is, and what it may do; None for an unknown or revoked key."""
    hashes = [_hash(key) for key in keys]
    rows = yield (
        "SELECT key_hash, tenant_id, role FROM api_keys WHERE key_hash = ANY (%s) AND revoked_at IS NULL",
        (hashes,),
    )
    found = {key_hash: Owner(tenant_id, Role(role)) for key_hash, tenant_id, role in rows}
    return [found.get(one) for one in hashes]


def revoke_key(key: str) -> Script[bool]:
    """End a key. False when it was unknown or already revoked."""
    rows = yield (
        "UPDATE api_keys SET revoked_at = now() WHERE key_hash = %s AND revoked_at IS NULL RETURNING 1",
        (_hash(key),),
    )
    return bool(rows)


def revoke_by_id(key_id: str) -> Script[KeyInfo | None]:
    """End the key of an id (see `id_of`). None when there is none, or it was revoked before."""
    if not _ID.fullmatch(key_id):
        return None
    rows = yield (
        "UPDATE api_keys SET revoked_at = now() WHERE left(encode(key_hash, 'hex'), 12) = %s AND revoked_at IS NULL "
        "RETURNING %s, tenant_id, name, hint, created_at, revoked_at, role",
        (key_id, key_id),
    )
    return _info(rows[0]) if rows else None


def _info(row: tuple[Any, ...]) -> KeyInfo:
    key_id, tenant_id, name, hint, created_at, revoked_at, role = row
    return KeyInfo(key_id, tenant_id, name, hint, created_at, revoked_at, Role(role))


def _hash(key: str) -> bytes:
    # A key has 256 random bits: a fast hash is enough, there is nothing to guess.
    return hashlib.sha256(key.encode()).digest()
