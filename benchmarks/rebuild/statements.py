"""What PostgreSQL's share of a rebuild is made of: the two statements of a batch, and what was tried in their place.

    python benchmarks/rebuild/statements.py URL [--batches 200]

On a migrated database on this machine, in a schema of its own that is dropped: 500 events of the row `rebuild` a batch,
one transaction each. CPU time is the backend's, in hundredths of a second over all batches; other load disturbs it less
than the time on the clock, of which the best is shown.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import psycopg

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("runtime", "runtime/contestants")]

import documents  # noqa: E402 - it stands in the folder of the other benchmark
from terms import BATCH  # noqa: E402

from offsetzero.store import catalogue, processed  # noqa: E402
from offsetzero.store.catalogue import Entry  # noqa: E402
from offsetzero.store.processed import EventIdentity, Outcome  # noqa: E402
from offsetzero.store.script import run  # noqa: E402

SCHEMA = "bench_statements"
Connection: TypeAlias = psycopg.Connection[Any]
Work: TypeAlias = Callable[[Connection, list[EventIdentity], list[Entry]], None]


def batches(count: int) -> Iterator[tuple[list[EventIdentity], list[Entry]]]:
    """What the members would write."""
    made, at = documents.Documents(), datetime(2026, 1, 1, tzinfo=UTC)
    for first in range(0, count * BATCH, BATCH):
        identities, entries = [], {}
        for number in range(first, first + BATCH):
            key, _, headers = made.record(number)
            document, sequence, deletes = documents.place(documents.meant(number))
            identities.append(EventIdentity("catalogue", "/bench", headers[0][1].decode(), 0, 2))
            size, times = (0, (None, at)) if deletes else (documents.size(number), (at, None))
            what = "quarterly report 000001.pdf", "application/pdf", size, *times
            where = "AAAAAAAAAAAAAAAAAAAAAA", 3, number
            tenant = f"tenant-{document % documents.TENANTS:03}"
            entries[key] = Entry(UUID(key), tenant, sequence, *where, *what)
        yield identities, list(entries.values())


def outcomes(connection: Connection, identities: list[EventIdentity], _entries: list[Entry]) -> None:
    """The outcomes of the events."""
    run(connection, processed.claim_all(identities, Outcome.APPLIED))


def rows(connection: Connection, _identities: list[EventIdentity], entries: list[Entry]) -> None:
    """The documents."""
    run(connection, catalogue.put(entries))


def both(connection: Connection, identities: list[EventIdentity], entries: list[Entry]) -> None:
    """As a batch does."""
    outcomes(connection, identities, entries)
    rows(connection, identities, entries)


def arrays(connection: Connection, _identities: list[EventIdentity], entries: list[Entry]) -> None:
    """The documents are taken apart, and written nowhere."""
    columns = zip(*entries, strict=True)
    given = tuple(array(column) for array, column in zip(catalogue._ARRAYS, columns, strict=True))
    connection.execute(f"SELECT count(*), max(name) FROM {catalogue._GIVEN}".encode(), given)


_INDEX = "; ".join(f"CREATE INDEX {name} ON {columns}" for name, columns in catalogue.INDEXES.items())
WAYS: list[tuple[str, Work, str]] = [
    ("both statements", both, ""),
    ("both, synchronous_commit=off", both, "SET synchronous_commit = off"),
    ("outcomes", outcomes, ""),
    (
        "outcomes, the id first in the key",
        outcomes,
        "ALTER TABLE processed_events DROP CONSTRAINT processed_events_pkey; ALTER TABLE processed_events"
        " ADD PRIMARY KEY (event_id, source, group_name, generation, redrive_no)",
    ),
    ("documents", rows, ""),
    ("documents, with the index for tenants", rows, _INDEX),
    ("documents, taken apart and not written", arrays, ""),
]


def measure(url: str, work: Work, change: str, count: int) -> tuple[float, float, float]:
    """CPU time (µs), the best time on the clock (µs) and bytes of WAL, of one event."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        connection.execute(f"SET search_path = {SCHEMA}, public")
        connection.execute("CREATE TABLE processed_events (LIKE public.processed_events INCLUDING ALL)")
        connection.execute(catalogue.TABLES.encode())
        if change:
            connection.execute(change.encode())
        made = list(batches(count))
        connection.execute("CHECKPOINT")
        before, place, best = _cpu(connection), _wal(connection), float("inf")
        for identities, entries in made:
            started = time.perf_counter()
            with connection.transaction():
                work(connection, identities, entries)
            best = min(best, time.perf_counter() - started)
        events = count * BATCH
        found = (_cpu(connection) - before) / events * 1e6, best / BATCH * 1e6, (_wal(connection) - place) / events
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        return found


def _cpu(connection: Connection) -> float:
    fields = Path(f"/proc/{connection.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _wal(connection: Connection) -> float:
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").fetchone()
    assert row is not None
    return float(row[0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--batches", type=int, default=200)
    given = parser.parse_args()
    print("| µs an event | CPU | best | WAL, bytes |\n|---|---:|---:|---:|")
    for name, work, change in WAYS:
        cpu, best, wal = measure(given.url, work, change, given.batches)
        print(f"| {name} | {cpu:.1f} | {best:.1f} | {wal:.0f} |", flush=True)


if __name__ == "__main__":
    main()
