"""Transactions that stay open: what was changed since cannot be tidied away, and all others go through it."""

from offsetzero.store.script import Script


def oldest() -> Script[float]:
    """For how many seconds the oldest transaction of this database has been open; 0 when there is none.

    Of another role's sessions PostgreSQL says so only to members of `pg_read_all_stats`.
    """
    rows = yield (
        "SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
        (),
    )
    return max(0.0, float(rows[0][0]))
