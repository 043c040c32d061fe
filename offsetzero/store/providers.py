"""What is known of each provider that handlers call, one row each (table `providers`)."""

from collections.abc import Callable
from typing import Any, TypeAlias

from psycopg.types.json import Jsonb

from offsetzero.store.database import Connection

State: TypeAlias = dict[str, Any]
Decide: TypeAlias = Callable[[State | None, float], State | None]

# A commit that a crash of the server takes back costs nothing here: leases end, and calls are counted anew. Whoever
# hangs with the row locked is cut off by the server, and nobody waits for that longer than a moment.
_GUARD = (
    "SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '2s', true),"
    " set_config('idle_in_transaction_session_timeout', '2s', true)"
)
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_LOCK = f"SELECT state, {_NOW} FROM providers WHERE name = %s FOR NO KEY UPDATE"  # noqa: S608 - a constant
_ADD = "INSERT INTO providers (name) VALUES (%s) ON CONFLICT DO NOTHING"
_SAVE = "UPDATE providers SET state = %s, changed_at = now() WHERE name = %s"


def change(connection: Connection, name: str, decide: Decide) -> None:
    """Decide over a provider with its row locked, and commit; two round trips.

    Args:
        connection: with no transaction open.
        name: the provider's.
        decide: given its state, None for a new one, and the database's time in seconds; returns the new state, None
            when it stays as it is.
    """
    with connection.pipeline():
        connection.execute(_GUARD)
        row = connection.execute(_LOCK, (name,)).fetchone()
        if row is None:
            connection.execute(_ADD, (name,))
            row = connection.execute(_LOCK, (name,)).fetchone()
        assert row is not None  # noqa: S101 - it was added, and nobody deletes one
        if (state := decide(row[0], row[1])) is not None:
            connection.execute(_SAVE, (Jsonb(state), name))
        connection.commit()
