"""Where a group begins and goes on: nothing is skipped and nothing committed where its position is not in the log."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from commands import CommandsHere
from confluent_kafka import Consumer, TopicPartition
from kafka.conftest import RunningGroup, await_effects, effects, uploaded
from kafka.test_group_database import database_away

from offsetzero import metrics
from offsetzero.consumers import reset
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.errors import GroupStopped, LostBecause, PositionLost
from offsetzero.producers.log import LogProducer
from offsetzero.retry.classify import of_status
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.topics import admin, catalogue, cluster, lag, offsets
from offsetzero.topics.names import Names
from offsetzero.topics.plan import AddPartitions, Plan
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[RunningGroup]]
CODEC = Codec()


@pytest.fixture(params=["consumer", "classic"])
def both(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    """Settings for each protocol."""
    return spoken(settings, request.param)


@pytest.fixture
def offsetzero(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch)


def spoken(settings: Settings, protocol: str) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"group_protocol": protocol})})


def audit_group(fail: Callable[[str, Context], None] = lambda name, ctx: None, **options: Any) -> ConsumerGroup:
    """Effects are plain inserts, so that doubles would show."""
    audit = ConsumerGroup("audit", **{"topics": ["documents"], **options})

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        fail(event.name, ctx)
        if ctx.connection is not None:
            ctx.connection.execute(
                "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
                (event.document_id, event.name, ctx.attempt),
            )

    return audit


def publish(settings: Settings, first: int, last: int, partition: int = 0) -> None:
    """Events named by numbers, the last one not included, to one partition."""
    topic = Names(settings.kafka.namespace).topic("documents")
    with LogProducer(settings) as producer:
        for number in range(first, last):
            event = uploaded(name=str(number))
            meta = Metadata(id=f"{partition}-{number}-{event.document_id}", source="/test", type="document.uploaded")
            headers = cloudevents.to_headers(meta, cloudevents.AVRO)
            producer.produce(
                topic, key=event.key.encode(), value=CODEC.encode(event), headers=headers, partition=partition
            ).result(10)


def committed(settings: Settings, topic: str = "documents", partition: int = 0) -> offsets.Committed | None:
    return offsets.committed(settings, "audit", [(topic, partition)]).get((topic, partition))


def handled(settings: Settings, running: Running, database: psycopg.Connection, count: int = 10) -> None:
    """Let a group handle so many events, commit, and stop."""
    publish(settings, 0, count)
    with running(audit_group(), settings):
        await_effects(database, count)
    found = committed(settings)
    assert found is not None
    assert found.left, "the member has left in good order"
    assert (found.offset, found.topic_id) == (count, cluster.topic_ids(settings, ["documents"])["documents"])


def names(database: psycopg.Connection) -> list[str]:
    return [note for _, note, _ in effects(database)]


def stops(settings: Settings, group: ConsumerGroup | None = None) -> PositionLost:
    """Start a member and see it stop by itself, with nothing committed."""
    before = committed(settings)
    member = RunningGroup(group or audit_group(), settings)
    return stopped(member, settings, before)


def stopped(member: RunningGroup, settings: Settings, before: offsets.Committed | None) -> PositionLost:
    wait_until(lambda: not member._thread.is_alive(), what="the end of the group")
    assert isinstance(member.error, PositionLost), member.error
    found = committed(settings)
    offset = found and replace(found, left=before.left if before else "")
    assert offset in (before, None), "nothing is committed; Kafka drops the offsets of a deleted topic"
    return member.error


def trim(settings: Settings, before: int, partition: int = 0) -> None:
    place = TopicPartition(Names(settings.kafka.namespace).topic("documents"), partition, before)
    client = admin.client(settings)  # its end would end the request
    client.delete_records([place])[place].result(10)


def delete(settings: Settings, topic: str) -> None:
    name, client = Names(settings.kafka.namespace).topic(topic), admin.client(settings)
    client.delete_topics([name], operation_timeout=10)[name].result(10)


def remake(settings: Settings, topic: str = "documents") -> None:
    delete(settings, topic)
    wait_until(lambda: topic not in cluster.partitions(settings), what="the topic to be gone")
    cluster.ensure(settings, [one.resolved(settings) for one in catalogue.TOPICS])


def test_the_gap_below_the_log_start_is_named_and_closed_by_the_command_that_it_names(
    both: Settings, running: Running, database: psycopg.Connection, offsetzero: CommandsHere
) -> None:
    handled(both, running, database)
    publish(both, 10, 20)
    trim(both, 15)
    error = stops(both)
    assert (error.reason, error.partition, error.gap) == (LostBecause.BELOW_START, 0, (10, 15))
    assert stops(both).gap == (10, 15), "again, until somebody decides"
    command = str(error).split("`offsetzero ")[1].split("`")[0]
    offsetzero(*command.split())
    with running(audit_group(), both):
        await_effects(database, 15)
    assert sorted(map(int, names(database))) == [*range(10), *range(15, 20)]


def test_an_offset_above_the_end_stops_the_group(
    both: Settings, running: Running, database: psycopg.Connection, offsetzero: CommandsHere
) -> None:
    handled(both, running, database)
    ids = cluster.topic_ids(both, ["documents"])
    altered = {("documents", 0): offsets.Committed(50, ids["documents"])}
    offsets.alter(admin.client(both), Names(both.kafka.namespace), "audit", altered)
    publish(both, 10, 12)
    error = stops(both)
    assert (error.reason, error.partition, error.gap) == (LostBecause.ABOVE_END, 0, (12, 50))
    offsetzero("groups", "reset", "audit", "--to", "10", "--topic", "documents", "--partition", "0", "--yes")
    with running(audit_group(), both):
        await_effects(database, 12)
    assert sorted(map(int, names(database))) == list(range(12))


def test_expired_offsets_are_not_taken_for_a_new_group(
    both: Settings, running: Running, database: psycopg.Connection, offsetzero: CommandsHere
) -> None:
    handled(both, running, database)
    group = Names(both.kafka.namespace).group("audit")
    client = admin.client(both)
    client.delete_consumer_groups([group])[group].result(10)
    publish(both, 10, 12)
    for start in ("earliest", "latest"):
        error = stops(both, audit_group(start=start))
        assert error.reason is LostBecause.EXPIRED
    for topic in ("documents", "audit.retry-1m", "audit.retry-10m", "audit.redrive"):
        offsetzero("groups", "reset", "audit", "--to", "earliest", "--topic", topic, "--yes")
    with running(audit_group(), both):
        await_effects(database, 12)
    assert sorted(map(int, names(database))) == list(range(12)), "what was handled is read again, not applied again"


def test_a_topic_that_was_made_again_meanwhile_is_not_taken_for_the_old_one(
    both: Settings, running: Running, database: psycopg.Connection, offsetzero: CommandsHere
) -> None:
    handled(both, running, database)
    remake(both)
    publish(both, 100, 120)
    error = stops(both)
    assert (error.reason, error.topic) == (LostBecause.RECREATED, "documents")
    offsetzero("groups", "reset", "audit", "--to", "earliest", "--topic", "documents", "--yes")
    with running(audit_group(), both):
        await_effects(database, 30)
    assert sorted(map(int, names(database))) == [*range(10), *range(100, 120)]


def test_without_a_database_the_commit_itself_says_of_which_topic_it_was(settings: Settings, running: Running) -> None:
    """Kafka drops the offsets of a topic that is deleted; a commit that was under way then comes after that."""
    seen: list[str] = []
    group = audit_group(lambda name, ctx: seen.append(name), database=False)
    publish(settings, 0, 5)
    with running(group):
        wait_until(lambda: len(seen) == 5)
    held = committed(settings)
    assert held is not None
    remake(settings)
    publish(settings, 100, 120)
    offsets.alter(admin.client(settings), Names(settings.kafka.namespace), "audit", {("documents", 0): held})
    assert stops(settings, group).reason is LostBecause.RECREATED
    assert len(seen) == 5


@pytest.mark.parametrize("count", [5, 20])
def test_a_topic_that_is_made_again_while_it_is_read_stops_the_group(
    count: int, both: Settings, topics: None, database: psycopg.Connection
) -> None:
    """Within the second until it is noticed the client may read on at the old offset of a longer new topic."""
    publish(both, 0, 10)
    member = RunningGroup(audit_group(), both)
    await_effects(database, 10)
    held = wait_until(lambda: one if (one := committed(both)) and one.offset == 10 else None, what="the commit")
    remake(both)
    publish(both, 100, 100 + count)
    error = stopped(member, both, held)
    assert error.topic == "documents"
    assert error.reason in (LostBecause.RECREATED, LostBecause.DELETED)
    assert {number for number in map(int, names(database)) if number < 110} == set(range(10))


def test_a_retry_topic_that_is_deleted_stops_the_group(
    both: Settings, topics: None, database: psycopg.Connection
) -> None:
    publish(both, 0, 3)
    member = RunningGroup(audit_group(), both)
    await_effects(database, 3)
    held = wait_until(lambda: one if (one := committed(both)) and one.offset == 3 else None, what="the commit")
    delete(both, "audit.retry-1m")
    error = stopped(member, both, held)
    assert (error.reason, error.topic) == (LostBecause.DELETED, "audit.retry-1m")


def test_a_group_that_starts_at_the_latest_loses_nothing_that_came_after_its_birth(
    both: Settings, running: Running, database: psycopg.Connection
) -> None:
    """The retry topic had no committed offset: at the latest, what waited there was lost with a restart."""
    publish(both, 0, 5)
    failures: list[str] = []

    def fail(name: str, ctx: Context) -> None:
        if ctx.attempt == 1:
            failures.append(name)
            raise of_status(503)

    with running(audit_group(fail, start="latest"), both):
        wait_until(lambda: committed(both, partition=5), what="the birth of the group")
        publish(both, 5, 6)
        wait_until(
            lambda: sum(one.high for one in lag.group_offsets(both, "audit", ["audit.retry-1m"])), what="a retry"
        )
    if not effects(database):
        with running(audit_group(fail, start="latest"), both):
            await_effects(database, 1)
    assert (failures, [row[1:] for row in effects(database)]) == (["5"], [("5", 2)])
    publish(both, 6, 8)  # while nobody reads
    with running(audit_group(start="latest"), both):
        await_effects(database, 3)
    assert sorted(names(database)) == ["5", "6", "7"]


@pytest.mark.parametrize("running_meanwhile", [True, False])
def test_a_partition_that_is_added_later_is_read_from_its_beginning(
    running_meanwhile: bool, settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    publish(settings, 0, 5)
    group = audit_group(start="latest")
    own = [f"audit.{name}" for name in ("retry-1m", "retry-10m", "redrive", "dlq")]

    def grow() -> None:
        actions = tuple(AddPartitions(name, 6, 8) for name in ("documents", *own))
        cluster.apply(settings, Plan(actions, ()))
        publish(settings, 100, 103, partition=7)

    with running(group):
        wait_until(lambda: committed(settings, partition=5), what="the birth of the group")
        if running_meanwhile:
            grow()
            await_effects(database, 3, 60)
    if not running_meanwhile:
        grow()
        with running(group):
            await_effects(database, 3)
    assert sorted(names(database)) == ["100", "101", "102"]


def test_while_the_database_is_away_a_group_waits_and_keeps_its_membership(
    settings: Settings, topics: None, postgres_url: str
) -> None:
    url = settings.database_url.get_secret_value()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE effects (n bigserial, document_id uuid, note text, attempt int)")
    publish(settings, 0, 3)
    with database_away(postgres_url, url.rpartition("/")[2]):
        member = RunningGroup(audit_group(), settings)
        wait_until(lambda: metrics.PAUSED.labels("audit", "opening")._value.get() == 24, what="partitions that wait")
        wait_until(
            lambda: [one.assignment for one in lag.group_state(settings, "audit").members] != [], what="a member"
        )
        assert committed(settings) is None
    with psycopg.connect(url, autocommit=True) as connection:
        await_effects(connection, 3, 60)
        assert {attempt for _, _, attempt in effects(connection)} == {1}
        wait_until(lambda: metrics.PAUSED.labels("audit", "opening")._value.get() == 0, what="none that waits")
    member.stop()


def test_reset_shows_what_would_change_and_refuses_what_cannot(
    settings: Settings, running: Running, database: psycopg.Connection, offsetzero: CommandsHere
) -> None:
    handled(settings, running, database)
    place = ("--topic", "documents", "--partition", "0")
    shown = offsetzero("groups", "reset", "audit", "--to", "4", *place)
    assert "documents/0" in shown.stdout
    assert shown.stdout.split()[-4:] == ["10", "4", "0", "6"]
    assert "Nothing was changed" in shown.stderr
    publish(settings, 10, 13)
    assert offsetzero("groups", "reset", "audit", "--to", "latest", *place).stdout.split()[-4:] == [
        "10",
        "13",
        "3",
        "0",
    ]
    old = offsetzero("groups", "reset", "audit", "--to", "2001-01-01T00:00:00Z", *place)
    assert old.stdout.split()[-4:] == ["10", "0", "0", "10"]
    new = offsetzero("groups", "reset", "audit", "--to", "-0s", *place)
    assert new.stdout.split()[-4:] == ["10", "13", "3", "0"]
    whole = offsetzero("groups", "reset", "audit", "--to", "earliest")
    assert "audit.retry-1m" not in whole.stdout, "what waits there must not be skipped by the way"
    assert whole.stdout.count("documents/") == 6
    assert committed(settings).offset == 10  # type: ignore[union-attr]
    for arguments, said in {
        ("--to", "yesterday"): "give earliest, latest, an offset, a time with its zone",
        ("--to", "9999-01-01T00:00:00Z"): "that time has not come yet; the end of the log is `latest`",
        ("--to", "2001-01-01T00:00:00"): "a time with its zone",
        ("--to", "4"): "say of which partition",
        ("--to", "99", *place): "has the offsets from 0 to 13, not 99",
        ("--to", "latest", "--partition", "1"): "say of which topic",
        ("--to", "latest", "--topic", "nothing"): "nothing do not exist",
        ("--to", "latest", "--topic", "documents", "--partition", "6"): "no partition 6",
    }.items():
        assert said in offsetzero("groups", "reset", "audit", *arguments, status=1).stderr
    with running(audit_group()):
        wait_until(lambda: lag.group_state(settings, "audit").members)
        assert "stop them first" in offsetzero("groups", "reset", "audit", "--to", "latest", status=1).stderr


def test_reset_refuses_a_group_of_whose_state_the_client_knows_nothing(settings: Settings, topics: None) -> None:
    """Members that are being assigned their partitions: KIP-848 calls that Reconciling, and librdkafka has no word."""
    names = Names(settings.kafka.namespace)
    config = {
        **settings.kafka.client_config(),
        "group.id": names.group("audit"),
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    first, second = Consumer(config), Consumer(config)
    try:
        first.subscribe([names.topic("documents")])
        wait_until(lambda: first.poll(0.1) is None and first.assignment() != [], what="all partitions")
        second.subscribe([names.topic("documents")])  # the first does not poll, so it gives none of them up
        wait_until(lambda: lag.group_state(settings, "audit").state == "unknown", what="what has no name")
        with pytest.raises(GroupStopped, match="group audit has members: stop them first"):
            reset.plan(settings, "audit", "latest", "documents")
    finally:
        second.close()
        first.close()
    assert lag.group_state(settings, "audit").state == "empty"
    assert reset.plan(settings, "audit", "latest", "documents")
