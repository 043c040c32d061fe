"""Two real schedulers, killed while they fire, on the real database and Kafka: one event for each fire time."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import psycopg
import pytest
from commands import CommandsHere
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka.relayed import relaying

from offsetzero.producers.schedules.timetable import Timetable
from offsetzero.schemas.ids import time_of, uuid7
from offsetzero.settings import Settings
from offsetzero.store import schedules
from offsetzero.store.script import run
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic
from offsetzero.topics.names import Names
from support import IS_NIGHT, wait_until

KILLS = 30 if IS_NIGHT else 1
BELLS = 40 if IS_NIGHT else 3
DOCUMENTS = 3_000 if IS_NIGHT else 120
TOPICS = ("documents", "documents.bulk")
# Each insert takes its time, so that a kill is in the midst of a transaction, between firing and marking.
SLOW = """
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END $$;
CREATE TRIGGER slowly BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION slowly();
"""
IN_THE_MIDST = (
    "SELECT 1 FROM pg_stat_activity WHERE application_name = 'offsetzero-scheduler' AND datname = current_database() "
    "AND query LIKE 'INSERT INTO outbox%' AND state = 'active'"
)


class Pair:
    """Two processes `offsetzero scheduler`."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._processes = [self._start(), self._start()]

    def kill(self) -> None:
        """As `kill -9`, both at once: whichever is at work; two others are started."""
        for victim in self._processes:
            victim.kill()
        for victim in self._processes:
            victim.wait()
        self._processes = [self._start(), self._start()]

    def end(self) -> list[int]:
        """SIGTERM; the exit statuses."""
        for process in self._processes:
            process.terminate()
        return [process.wait(60) for process in self._processes]

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "offsetzero", "scheduler"]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def two_schedulers(environment: dict[str, str]) -> Iterator[Pair]:
    """For the time of the block."""
    pair = Pair(environment)
    try:
        yield pair
    finally:
        ended = pair.end()
    assert ended == [0, 0], "asked to end, they end well"


@pytest.mark.timeout(0 if IS_NIGHT else 240)
def test_two_schedulers_that_are_killed_fire_each_time_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hexpm#1825: a nightly job ran two or three times."""
    offsetzero = CommandsHere(settings, monkeypatch)
    cluster.ensure(settings, [Topic(name, 1) for name in TOPICS])
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(SLOW.encode())
        for number in range(BELLS):
            gone = json.dumps({"document_id": str(uuid4()), "tenant_id": "t", "deleted_at": "2026-01-31T12:00:00Z"})
            event = ("event", "--type", "document.deleted", "--data", gone)
            offsetzero("schedules", "add", f"bell{number}", "* * * * *", *event, "--catch-up", "all")
        offsetzero("schedules", "add", "nightly", "0 2 * * *", "reindex")
        documents = [uuid7() for _ in range(DOCUMENTS)]
        connection.cursor().executemany(
            "INSERT INTO documents (id, tenant_id, name, content_type, uri, size_bytes, sha256, uploaded_at) "
            "VALUES (%s, 't', 'a.txt', 'text/plain', 'file:///a', 10, %s, now() - interval '3 days')",
            [(one, str(one)) for one in documents],
        )
        slept = "UPDATE schedules SET done_until = now() - make_interval(mins => %s), next_at = now() WHERE kind = %s"
        connection.execute(slept, (30, "event"))
        connection.execute(slept, (24 * 60, "reindex"))
        dice = random.Random(4_711)
        begun = {one.id: one.done_until for one in run(connection, schedules.every())}
        with relaying(settings), two_schedulers({**os.environ, **offsetzero.in_process_of_its_own.environment}) as pair:
            for _ in range(KILLS):
                wait_until(lambda: connection.execute(IN_THE_MIDST).fetchall(), 120, interval=0.005, what="a fire")
                time.sleep(dice.uniform(0, 0.5))
                pair.kill()
            wait_until(
                lambda: connection.execute(
                    "SELECT 1 FROM schedule_fires WHERE documents = %s", (DOCUMENTS,)
                ).fetchall(),
                110,
                what="the end of the re-index",
            )
            connection.execute("UPDATE schedules SET paused_at = clock_timestamp()")  # the next minute is another one
            every_one = run(connection, schedules.every())
            wait_until(
                lambda: connection.execute("SELECT 1 FROM outbox WHERE published_at IS NULL").fetchall() == [],
                60,
                what="all to be published",
            )
        fired = connection.execute("SELECT schedule_id, id, fire_at FROM schedule_fires ORDER BY id").fetchall()
        runs = connection.execute("SELECT document_id FROM runs").fetchall()
    for one in every_one:
        expected = Timetable(one.cron, one.zone).newest(begun[one.id], one.done_until, 1_000)
        found = sorted(fire_at for schedule_id, _, fire_at in fired if schedule_id == one.id)
        assert found == (expected if one.kind == "event" else expected[-1:]), one.name
    assert Counter(one for (one,) in runs) == Counter(documents), "one run of each document"
    ids = _ids(settings)
    bells = {fire_id: fire_at for schedule_id, fire_id, fire_at in fired if schedule_id in _events(every_one)}
    assert Counter(one for one in ids if one in bells) == Counter(list(bells)), "one event of each fire time"
    assert all(time_of(one) == at for one, at in bells.items())
    assert len(ids) == len(bells) + DOCUMENTS


def _events(found: list[schedules.Schedule]) -> set[UUID]:
    return {one.id for one in found if one.kind == "event"}


def _ids(settings: Settings) -> list[UUID]:
    """The event ids in the topics."""
    consumer = Consumer({"bootstrap.servers": settings.kafka.bootstrap_servers, "group.id": "judge"})
    names = Names(settings.kafka.namespace)
    places = [TopicPartition(names.topic(name), 0, OFFSET_BEGINNING) for name in TOPICS]
    found: list[UUID] = []
    try:
        wanted = sum(consumer.get_watermark_offsets(place, 10)[1] for place in places)
        consumer.assign(places)

        def enough() -> bool:
            found.extend(UUID(dict(one.headers() or ())["ce_id"].decode()) for one in consumer.consume(1_000, 0.2))
            return len(found) >= wanted

        wait_until(enough, 60, interval=0.0, what="the events of the topics")
    finally:
        consumer.close()
    return found
