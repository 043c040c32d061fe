"""Nothing is lost, nothing is out of order: 16 writers whose transactions overlap, and relays that are killed.

`make outbox` is the full size: 200,000 events and 50 kills; `make nightly` has 1,000,000.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from kafka.relayed import Arrived, CursorPoller, Relays, Verdict, Writers, arrived, judge

from offsetzero.clock import SYSTEM
from offsetzero.producers import outbox
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.settings import Settings
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic
from support import wait_until

EVENTS = int(os.environ.get("OZ_TEST_OUTBOX_EVENTS", "3000"))
LARGE = EVENTS >= 100_000
KILLS, RELAYS = (50, 3) if LARGE else (2, 2)
SEED = int(os.environ.get("OZ_TEST_SEED", secrets.randbelow(10**6)))
WAITING = "SELECT count(*) FROM outbox WHERE published_at IS NULL"


@contextmanager
def long_transactions(url: str, other: str) -> Iterator[psycopg.Connection]:
    """Two that write and do not end: one here, with an event, and one in another database of the server."""
    with psycopg.connect(url) as mine, psycopg.connect(other) as elsewhere:
        event = DocumentDeleted(document_id=uuid4(), tenant_id="long", deleted_at=SYSTEM.now())
        outbox.add(mine, event, sequence=1)
        elsewhere.execute("SELECT pg_current_xact_id()")
        yield mine


@pytest.mark.timeout(0)
def test_16_writers_and_killed_relays(settings: Settings, postgres_url: str) -> None:
    """watermill#311, kamu-cli#1398 (rows skipped), mopl#266 (order), while two transactions write all the time."""
    cluster.ensure(settings, [Topic("documents", 6)])
    url = settings.database_url.get_secret_value()
    relays = Relays(settings, SEED, KILLS, RELAYS)
    writers = Writers(url, EVENTS, SEED, pace=lambda: relays.progress + 0.2)
    connecting = psycopg.connect(url, autocommit=True)
    with long_transactions(url, postgres_url) as long, connecting as connection, relays.running():

        def all_published() -> bool:
            return connection.execute(WAITING).fetchone() == (0,)

        writers.run()
        wait_until(lambda: relays.progress >= 1.0, 120, what="the last kill")
        wait_until(all_published, 120)
        before = judge(writers.committed, arrived(settings, "documents"), relays.killed)
        long.commit()
        wait_until(all_published, what="the long transaction's event")
    records = arrived(settings, "documents")
    print(f"\nseed {SEED}: {len(writers.committed):,} events, {len(relays.killed)} kills, {before}")
    assert len(writers.committed) >= EVENTS
    assert len(relays.killed) == KILLS
    assert before == Verdict(0, 0, 0, before.duplicates, 0)
    assert len({one.event_id for one in records}) == len(writers.committed) + 1


def test_a_cursor_by_id_loses_rows_of_the_same_writers(settings: Settings) -> None:
    """Shows that the proof can fail."""
    cluster.ensure(settings, [Topic("documents", 6)])
    writers = Writers(settings.database_url.get_secret_value(), 2_000, SEED)
    with CursorPoller(settings).running():
        writers.run()
    verdict = judge(writers.committed, arrived(settings, "documents"), [])
    print(f"\nseed {SEED}: {len(writers.committed):,} events, {verdict}")
    assert verdict.missed > 0


def test_the_judge_sees_each_fault() -> None:
    committed = {"a": ("k", 1), "b": ("k", 2), "c": ("k", 3)}
    a, b, c = (Arrived(one, "k", number, 10.0 * number) for number, one in enumerate("abc", 1))
    again = a._replace(at=50.0)
    assert judge(committed, [a, b, c], []) == Verdict(0, 0, 0, 0, 0)
    assert judge(committed, [a, c], []).missed == 1
    assert judge({"a": ("k", 1)}, [a, b], []).invented == 1
    assert judge(committed, [a, c, b], []).inversions == 1
    assert judge(committed, [a, b, c, again], [(40.0, 40.1)]) == Verdict(0, 0, 0, 1, 0)
    assert judge(committed, [a, b, c, again], [(60.0, 60.1)]).unexplained == 1
    assert judge(committed, [a, b, c, again, again], [(40.0, 40.1)]).unexplained == 1
