"""A relay in a thread; and for `test_relay_proof` slow writers, relays that are killed, a judge of what arrived."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from offsetzero.producers import outbox
from offsetzero.producers.log import LogProducer
from offsetzero.producers.relay import Relay
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.settings import Settings
from offsetzero.topics import cluster
from offsetzero.topics.names import Names
from support import at_work, wait_until

WRITERS = 16
KEYS = 300
BACKLOG = """
INSERT INTO outbox (aggregatetype, aggregateid, type, topic, headers)
SELECT 'document', gen_random_uuid()::text, 'document.deleted', 'documents.bulk', jsonb_build_object(
    'ce_specversion', '1.0', 'ce_id', gen_random_uuid(), 'ce_type', 'document.deleted', 'ce_source', '/t')
FROM generate_series(1, %s)
"""
"""As many rows of backfill as are asked for, each of its own key."""


Kill = tuple[float, float]
"""Two times, in seconds since 1970, between which a relay was killed: who kills may have to wait for the machine."""


class Arrived(NamedTuple):
    """A record of the topic, in the order of its partition. `at` is when it was produced, seconds since 1970."""

    event_id: str
    key: str
    sequence: int
    at: float


@dataclass
class Writers:
    """16 threads, each with its own connection, that write events of a few hundred keys in transactions of any length.

    Those of one key take turns by a lock of its row, as services do: its events have an order.

    Args:
        url: of the database.
        events: how many to commit, at least.
        seed: chooses keys, sizes, delays, and which transactions are rolled back.
        pace: the share of the events that may be written by now.
    """

    url: str
    events: int
    seed: int
    pace: Callable[[], float] = lambda: 1.0
    committed: dict[str, tuple[str, int]] = field(default_factory=dict)
    _errors: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        """Write all of them; returns when the last transaction has ended."""
        keys = [uuid4() for _ in range(KEYS)]
        with psycopg.connect(self.url) as connection:
            connection.execute("CREATE TABLE entities (id uuid PRIMARY KEY, version int NOT NULL DEFAULT 0)")
            connection.cursor().executemany("INSERT INTO entities (id) VALUES (%s)", [(key,) for key in keys])
        threads = [threading.Thread(target=self._write, args=(number, keys)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _write(self, number: int, keys: Sequence[UUID]) -> None:
        dice = random.Random(f"{self.seed}/{number}")
        try:
            with psycopg.connect(self.url) as connection:
                while len(self.committed) < self.events:
                    while len(self.committed) > self.events * self.pace():
                        time.sleep(0.02)
                    self._transaction(connection, dice, dice.choice(keys))
        except BaseException as error:
            self._errors.append(error)

    def _transaction(self, connection: psycopg.Connection, dice: random.Random, key: UUID) -> None:
        many = dice.randint(1, 12)
        raised = "UPDATE entities SET version = version + %s WHERE id = %s RETURNING version"
        row = connection.execute(raised, (many, key)).fetchone()
        assert row is not None
        told = {}
        for sequence in range(row[0] - many + 1, row[0] + 1):
            event = DocumentDeleted(document_id=key, tenant_id="t", deleted_at=datetime.now(UTC))
            told[str(outbox.add(connection, event, sequence=sequence))] = (str(key), sequence)
        time.sleep(dice.choice((0.0, dice.uniform(0, 0.01), dice.uniform(0, 0.05), dice.uniform(0, 0.3))))
        if dice.random() < 0.03:
            connection.rollback()
        else:
            connection.commit()
            self.committed.update(told)


class Relays:
    """Processes `offsetzero relay`; the oldest is killed again and again, and another one started.

    Args:
        settings: name the servers.
        seed: chooses the moments.
        kills: how many.
        processes: how many run at a time.
    """

    def __init__(self, settings: Settings, seed: int, kills: int, processes: int) -> None:
        self._url = settings.database_url.get_secret_value()
        self._environment = {
            **os.environ,
            "OFFSETZERO_DATABASE_URL": self._url,
            "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
            "OFFSETZERO_KAFKA__NAMESPACE": settings.kafka.namespace,
            "OFFSETZERO_METRICS_PORT": "0",
        }
        self._dice = random.Random(f"{seed}/kills")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._wanted = kills
        self._count = processes
        self.killed: list[Kill] = []
        self.error: BaseException | None = None

    @property
    def progress(self) -> float:
        """The share of the kills that has been done."""
        return 1.0 if self.error or not self._wanted else len(self.killed) / self._wanted

    @contextmanager
    def running(self) -> Iterator[None]:
        """Relays that are killed, and at the end relays that are not; ended with the block."""
        thread = threading.Thread(target=self._kill)
        try:
            for _ in range(self._count):
                self._start()
            thread.start()
            yield
        finally:
            self._wanted = len(self.killed)
            thread.join()
            for process in self._processes:
                process.terminate()
            for process in self._processes:
                process.wait(60)
        if self.error is not None:
            raise self.error

    def _start(self) -> None:
        command = [sys.executable, "-m", "offsetzero", "relay"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._processes.append(subprocess.Popen(command, env=self._environment, **quiet))  # type: ignore[call-overload]

    def _kill(self) -> None:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'offsetzero-relay' AND datname = %s"
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                name = connection.info.dbname

                def all_up() -> bool:
                    assert all(process.poll() is None for process in self._processes), "a relay ended by itself"
                    return connection.execute(sessions, (name,)).fetchone() == (self._count,)

                while len(self.killed) < self._wanted:
                    wait_until(all_up, 60, what="all relays to be up")
                    time.sleep(self._dice.uniform(0, 0.5))
                    victim = self._processes.pop(0)
                    before = time.time()
                    victim.kill()
                    self.killed.append((before, time.time()))
                    victim.wait()
                    self._start()
        except BaseException as error:
            self.error = error


class CursorPoller:
    """What the relay must not be: `id > last`. It publishes what is committed when it looks, and never looks back."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """For the time of the block, and until it has come to the end of the table."""
        thread = threading.Thread(target=self._poll)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _poll(self) -> None:
        columns = "aggregateid, topic, payload, headers, number"
        after = f"SELECT {columns} FROM outbox WHERE number > %s ORDER BY number LIMIT 500"
        names, last = Names(self._settings.kafka.namespace), 0
        url = self._settings.database_url.get_secret_value()
        with LogProducer(self._settings) as producer, psycopg.connect(url, autocommit=True) as connection:
            while True:
                ends = self._stop.is_set()
                rows = connection.execute(after, (last,)).fetchall()
                for key, topic, payload, headers, _ in rows:
                    sent = [(name, value.encode()) for name, value in headers.items()]
                    producer.produce(names.topic(topic), key=key, value=payload, headers=sent)
                last = rows[-1][-1] if rows else last
                if ends and not rows:
                    return
                self._stop.wait(0.01)


def arrived(settings: Settings, topic: str) -> list[Arrived]:
    """All that is in a topic."""
    name = Names(settings.kafka.namespace).topic(topic)
    consumer = Consumer({"bootstrap.servers": settings.kafka.bootstrap_servers, "group.id": "judge"})
    found: list[Arrived] = []
    try:
        places = [TopicPartition(name, one, OFFSET_BEGINNING) for one in range(cluster.partitions(settings)[topic])]
        wanted = sum(consumer.get_watermark_offsets(place, 10)[1] for place in places)
        consumer.assign(places)

        def enough() -> bool:
            for message in consumer.consume(10_000, 0.2):
                assert message.error() is None
                headers: dict[str, Any] = dict(message.headers() or ())
                key, at = (message.key() or b"").decode(), message.timestamp()[1] / 1000
                found.append(Arrived(headers["ce_id"].decode(), key, int(headers["ce_sequence"]), at))
            return len(found) >= wanted

        wait_until(enough, 300, interval=0.0, what=f"{wanted} records of {topic}")
    finally:
        consumer.close()
    return found


@dataclass(frozen=True)
class Verdict:
    """What is wrong with what arrived, in events. `duplicates` are records; `unexplained` those of no kill."""

    missed: int
    invented: int
    inversions: int
    duplicates: int
    unexplained: int


def judge(committed: dict[str, tuple[str, int]], records: Sequence[Arrived], killed: Sequence[Kill]) -> Verdict:
    """Compare what was committed with what arrived.

    A record that comes again is explained by a relay that was killed after the first was produced, before the second.
    """
    times: dict[str, list[float]] = defaultdict(list)
    highest: dict[str, int] = defaultdict(int)
    inversions = unexplained = 0
    for one in records:
        if one.event_id not in times:
            inversions += one.sequence < highest[one.key]
            highest[one.key] = max(highest[one.key], one.sequence)
        times[one.event_id].append(one.at)
    for found in times.values():
        first, *others = sorted(found)
        last = max(others, default=first)
        kills_between = sum(first - 0.01 <= after and before <= last + 0.01 for before, after in killed)
        unexplained += max(len(others) - kills_between, 0)
    return Verdict(
        missed=len(committed.keys() - times.keys()),
        invented=len(times.keys() - committed.keys()),
        inversions=inversions,
        duplicates=len(records) - len(times),
        unexplained=unexplained,
    )


def relaying(settings: Settings) -> AbstractContextManager[None]:
    """A relay works, in a thread of this process."""
    return at_work(Relay(settings).run, "relay")
