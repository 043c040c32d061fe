"""The relay: rows a second out of the outbox, and how long an event waits for one that has nothing to do.

    python benchmarks/publishing/relay.py [--rows 100000] [--events 400] [--only backlog,idle]

It starts the embedded Kafka and PostgreSQL; relays and writers are processes of their own, as they are elsewhere. Rates
are from the first to the last acknowledgement that was marked. The wait is from the return of COMMIT to the record's
arrival at a consumer that was waiting for it, so that it has the consumer's part, too.
"""

import argparse
import contextlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from offsetzero.embedded.kafka import Kafka
from offsetzero.embedded.postgres import Postgres, remove_data
from offsetzero.producers import outbox
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.settings import Settings
from offsetzero.store.migrate import upgrade
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic

PARTITIONS = 6
COLUMNS = "id, aggregatetype, aggregateid, type, payload, topic, headers"
WRITE = "write"


class Bench:
    """One database and one broker; each measurement begins with an empty table.

    Args:
        settings: name them.
        rows: of a backlog.
        events: that an idle relay is given, one by one.
    """

    def __init__(self, settings: Settings, rows: int, events: int) -> None:
        self._settings = settings
        self._url = settings.database_url.get_secret_value()
        self._rows = rows
        self._events = events

    def backlog(self) -> str:
        """One relay and rows of 1,000 keys that were there before it."""
        return self._drained([uuid4() for _ in range(1_000)], self._rows, 1)

    def two(self) -> str:
        """Two relays, the same rows."""
        return self._drained([uuid4() for _ in range(1_000)], self._rows, 2)

    def hot(self) -> str:
        """One relay; every second row is of one key."""
        hot = uuid4()
        keys = [key for _ in range(1_000) for key in (hot, uuid4())]
        return self._drained(keys, max(self._rows // 10, 1_000), 1)

    def one(self) -> str:
        """One relay, all rows of one key."""
        return self._drained([uuid4()], max(self._rows // 50, 1_000), 1)

    def held(self) -> str:
        """One relay, and a transaction that has written and does not end: what is published cannot be cleared away."""
        with psycopg.connect(self._url) as long:
            long.execute("SELECT pg_current_xact_id()")
            return self._drained([uuid4() for _ in range(1_000)], self._rows, 1)

    def live(self) -> str:
        """One relay, and a process that writes rows as fast as it can, 20 in a transaction."""
        self._empty()
        write = [sys.executable, __file__, WRITE, self._url, str(self._rows)]
        with self._relays(1), subprocess.Popen(write) as writer:
            writer.wait()
            return self._measured()

    def idle(self) -> str:
        """One relay with nothing to do, and now and then one event: how long it waits."""
        self._empty()
        waits: list[float] = []
        arrivals: dict[str, float] = {}
        stop = threading.Event()
        consumer = self._consumer()

        def consume() -> None:
            while not stop.is_set():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    arrivals[dict(message.headers() or ())["ce_id"].decode()] = time.perf_counter()

        thread = threading.Thread(target=consume)
        thread.start()
        with self._relays(1), psycopg.connect(self._url) as connection:
            for number in range(self._events + 10):
                time.sleep(random.uniform(0.02, 0.12))  # noqa: S311
                event_id = str(outbox.add(connection, _event(uuid4())))
                connection.commit()
                begun = time.perf_counter()
                _until(lambda event_id=event_id: event_id in arrivals, 0.0005)  # type: ignore[misc]
                if number >= 10:  # the first ones find connections that are not open yet
                    waits.append((arrivals[event_id] - begun) * 1000)
        stop.set()
        thread.join()
        consumer.close()
        waits.sort()
        p50, p95, p99 = (waits[int(len(waits) * share)] for share in (0.5, 0.95, 0.99))
        return f"p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms, at most {waits[-1]:.1f} ms ({len(waits)} events)"

    def _drained(self, keys: list[UUID], rows: int, relays: int) -> str:
        self._empty()
        with psycopg.connect(self._url) as connection:
            _copy(connection, [_event(keys[number % len(keys)]) for number in range(rows)])
        before = _processor_seconds()
        with self._relays(relays):
            said = self._measured()
        return f"{said}, {(_processor_seconds() - before) / rows * 1e6:.0f} µs of a processor for each in relays"

    def _measured(self) -> str:
        waiting = "SELECT FROM outbox WHERE published_at IS NULL LIMIT 1"
        took = "SELECT count(*), extract(epoch FROM max(published_at) - min(published_at)) FROM outbox"
        first = "SELECT count(*) FROM outbox WHERE published_at = (SELECT min(published_at) FROM outbox)"
        with psycopg.connect(self._url, autocommit=True) as connection:
            _until(lambda: connection.execute(waiting).fetchone() is None, 0.2)
            count, seconds = connection.execute(took).fetchone() or (0, 0)
            (begun,) = connection.execute(first).fetchone() or (0,)
        return f"{(count - begun) / float(seconds):,.0f} rows/s ({count:,} rows)"

    def _empty(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("TRUNCATE outbox")

    @contextlib.contextmanager
    def _relays(self, count: int) -> Iterator[None]:
        environment = {
            **os.environ,
            "OFFSETZERO_DATABASE_URL": self._url,
            "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": self._settings.kafka.bootstrap_servers,
            "OFFSETZERO_METRICS_PORT": "0",
        }
        command = [sys.executable, "-m", "offsetzero", "relay"]
        quiet = subprocess.DEVNULL
        relays = [subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) for _ in range(count)]
        try:
            yield
        finally:
            for relay in relays:
                relay.terminate()
            for relay in relays:
                relay.wait()

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {"bootstrap.servers": self._settings.kafka.bootstrap_servers, "group.id": "idle", "fetch.wait.max.ms": 50}
        )
        consumer.assign([TopicPartition("documents", number, OFFSET_END) for number in range(PARTITIONS)])
        consumer.poll(1.0)
        return consumer


def _processor_seconds() -> float:
    """Of the relays that have ended, with their start; servers go on until the end."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _event(key: UUID) -> DocumentDeleted:
    return DocumentDeleted(document_id=key, tenant_id="tenant", deleted_at=datetime.now(UTC))


def _copy(connection: psycopg.Connection, events: list[DocumentDeleted]) -> None:
    with connection.cursor().copy(f"COPY outbox ({COLUMNS}) FROM STDIN") as copy:
        for event in events:
            row = outbox.row(event)
            copy.write_row(tuple(getattr(row, name) for name in COLUMNS.split(", ")))


def _write(url: str, rows: int) -> None:
    """The writing process."""
    keys = [uuid4() for _ in range(1_000)]
    with psycopg.connect(url) as connection:
        for begin in range(0, rows, 20):
            with connection.pipeline():
                for number in range(begin, min(begin + 20, rows)):
                    outbox.add(connection, _event(keys[number * 7919 % 1_000]))
                connection.commit()


def _until(condition: Callable[[], bool], interval: float) -> None:
    while not condition():
        time.sleep(interval)


def main() -> None:
    """Measure what was asked for, and print a line for each."""
    names = ("backlog", "two", "live", "held", "hot", "one", "idle")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--only", default=",".join(names), help=", ".join(names))
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="offsetzero-benchmark-")))
        kafka = stack.enter_context(Kafka(folder / "kafka"))
        stack.callback(remove_data, folder / "postgres")  # as root its data are elsewhere
        server = stack.enter_context(Postgres(folder / "postgres"))
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE bench")
        upgrade(server.url("bench"))
        settings = Settings(
            home=folder, database_url=server.url("bench"), kafka={"bootstrap_servers": kafka.bootstrap_servers}
        )
        cluster.ensure(settings, [Topic("documents", PARTITIONS)])
        bench = Bench(settings, options.rows, options.events)
        for name in options.only.split(","):
            measure = getattr(bench, name)
            said = measure()
            print(f"{name:8} {said}; load {os.getloadavg()[0]:.1f}. {measure.__doc__}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [WRITE]:
        _write(sys.argv[2], int(sys.argv[3]))
    else:
        main()
