"""The broker does not take dead letters or retries: the partition rests, nothing is lost, and it goes on by itself."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeAlias
from uuid import uuid4

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import enriching
from kafka.conftest import RunningGroup, await_dead_letters, uploaded
from kafka.second_broker import NODE, SecondBroker

from broker_config import BROKER
from offsetzero import DeadLetter, Transient, metrics
from offsetzero.clock import SYSTEM
from offsetzero.consumers import runtime
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import PauseReason
from offsetzero.consumers.watching.health import Phase
from offsetzero.embedded.kafka import Kafka
from offsetzero.producers.publisher import Publisher
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import catalogue, cluster, lag
from offsetzero.topics.admin import answer, client
from offsetzero.topics.catalogue import group_topics
from offsetzero.topics.names import Names
from offsetzero.topics.plan import AlterConfig, ConfigChange, Plan
from support import AT_NIGHT, IS_NIGHT, passes, wait_until, within

Running = Callable[..., contextlib.AbstractContextManager[RunningGroup]]
AWAY_SECONDS = 600.0 if IS_NIGHT else 4.0
TIERS = (Tier("retry-1s", 1.0),)
CASES = [  # by day each failure once, and each kind of group once
    (DeadLetter("looks-odd"), "transactional"),
    (Transient("busy"), "database"),
    pytest.param(DeadLetter("looks-odd"), "database", marks=AT_NIGHT),
    pytest.param(Transient("busy"), "transactional", marks=AT_NIGHT),
]
pytestmark = pytest.mark.timeout(900 if IS_NIGHT else 240)


def delete(settings: Settings, topic: str) -> None:
    name = Names(settings.kafka.namespace).topic(topic)
    admin = client(settings)
    answer(admin.delete_topics([name])[name], f"topic {name}")


def make_again(settings: Settings) -> None:
    partitions = cluster.partition_count(settings, ["documents"])
    cluster.ensure(settings, group_topics("audit", partitions, [tier.name for tier in TIERS]))


def limit(settings: Settings, size: int, *topics: str) -> None:
    """Returns when the broker knows it, and has had a second to heed it: that moment cannot be seen."""
    change = ConfigChange("max.message.bytes", None, str(size))
    cluster.apply(settings, Plan(tuple(AlterConfig(topic, (change,)) for topic in topics), ()))
    resources = [ConfigResource(ResourceType.TOPIC, Names(settings.kafka.namespace).topic(topic)) for topic in topics]

    admin = client(settings)  # its end would end the request

    def known() -> bool:
        found = admin.describe_configs(resources).values()
        return {one.result(10)["max.message.bytes"].value for one in found} == {str(size)}

    wait_until(known, what="the limit")
    passes(1.0)


def forbid(settings: Settings, *topics: str) -> None:
    admin = client(settings)
    for topic in topics or ("audit.retry-1s", "audit.dlq"):
        rules = [_rule(settings, topic, AclOperation.ALL, AclPermissionType.ALLOW)]  # or the topic is closed altogether
        rules.append(_rule(settings, topic, AclOperation.WRITE, AclPermissionType.DENY))
        for made in admin.create_acls(rules).values():
            answer(made, f"rule of {topic}")


def permit(settings: Settings) -> None:
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = client(settings)
    answer(admin.delete_acls([every])[every], "rules")


def _rule(settings: Settings, topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    name = Names(settings.kafka.namespace).topic(topic)
    pattern = ResourcePatternType.LITERAL
    return AclBinding(ResourceType.TOPIC, name, pattern, "User:ANONYMOUS", "*", operation, permission)


Change: TypeAlias = Callable[[Settings], None]


def way_of(name: str, failure: Exception) -> tuple[Change, Change]:
    """How what follows from a failure is taken no more, and is again."""
    if name == "deleted":
        return lambda settings: delete(settings, "audit.dlq"), make_again
    wanted = "audit.dlq" if isinstance(failure, DeadLetter) else "audit.retry-1s"  # the other one must not take it
    both = ("audit.dlq", "audit.retry-1s")
    return lambda settings: limit(settings, 100, *both), lambda settings: limit(settings, 1_000_000, wanted)


def resting() -> float:
    return float(metrics.PAUSED.labels("audit", PauseReason.REFUSED)._value.get())


def refused(member: RunningGroup) -> set[int]:
    parts = member.runtime.health().body["partitions"]
    return {one["partition"] for one in parts if PauseReason.REFUSED in one["pauses"]}


def committed(settings: Settings, partition: int) -> int | None:
    return next(
        one.committed
        for one in lag.group_offsets(settings, "audit")
        if (one.topic, one.partition) == ("documents", partition)
    )


@pytest.mark.parametrize(
    ("way", "failure", "kind"),
    [
        ("deleted", DeadLetter("looks-odd"), "database"),
        pytest.param("deleted", DeadLetter("looks-odd"), "transactional", marks=AT_NIGHT),
        pytest.param("refused", DeadLetter("looks-odd"), "database", marks=AT_NIGHT),
        pytest.param("refused", Transient("busy"), "database", marks=AT_NIGHT),
        ("refused", Transient("busy"), "transactional"),
    ],
    ids=str,
)
def test_a_partition_rests_while_what_follows_from_its_failure_is_not_taken(
    settings: Settings, running: Running, way: str, failure: Exception, kind: str
) -> None:
    """spring-kafka#1494, spring-kafka#1700, apache/kafka#22080: an endless loop, or committed anyway.

    (A retry topic that is deleted stops the group: test_group_positions.)
    """
    _rests(settings, running, way_of(way, failure), failure, kind)


@pytest.mark.parametrize(("failure", "kind"), CASES, ids=str)
def test_a_partition_rests_while_nobody_may_write_what_follows_from_its_failure(
    guarded: Settings, running: Running, failure: Exception, kind: str
) -> None:
    """In a transaction it is the partition's place there that is refused, and no record has an answer."""
    _rests(guarded, running, (forbid, permit), failure, kind)


def test_what_goes_to_other_topics_is_committed_while_one_may_not_be_written_to(
    guarded: Settings, running: Running
) -> None:
    """All of it was in one transaction, which fails without a word about the topic that it fails of."""
    names, document = [*map(str, range(50)), *(f"transient-{number}" for number in range(5))], uuid4()
    with catalogue.declared_for(enriching.ENRICHED), Publisher(guarded) as publisher:
        enriching.prepare_topics(guarded)
        cluster.ensure(guarded, group_topics("enricher", 6, ["retry-1m", "retry-10m"]))
        forbid(guarded, "enricher.retry-1m")

        def publish(name: str) -> int:
            of = document if name.startswith("transient") else uuid4()
            return publisher.publish(uploaded(of, name=name), event_id=name).result(10).partition

        places = {name: publish(name) for name in names}
        with running(enriching.make(), guarded) as member:
            [stuck] = wait_until(lambda: refused(member), 60, what="the partition rests")
            [said] = member.runtime.health().body["degraded"]
            assert said.startswith("enricher.retry-1m has refused what follows from 1 records")
            places |= {name: publish(name) for name in (f"free-{number}" for number in range(100))}
            free = {name for name, partition in places.items() if partition != stuck}
            assert len(free) > 50
            wait_until(lambda: not free - set(enriching.outputs(guarded)), 60, what="outputs of other partitions")
            assert not any(name.startswith("transient") for name in enriching.outputs(guarded))
            permit(guarded)
            wait_until(lambda: len(enriching.outputs(guarded)) == len(places), 60, what="all outputs")
    assert set(enriching.outputs(guarded).values()) == {1}, "each once"


@pytest.fixture(scope="module")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own, which looks at rules where there are any; its address."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Kafka(tmp_path_factory.mktemp("guarded"), config={**BROKER, **rules}) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def guarded(settings: Settings, guarded_broker: str) -> Settings:
    """Settings of the test, on that broker."""
    return on_broker(settings, guarded_broker)


def on_broker(settings: Settings, address: str) -> Settings:
    """Settings of the test on another broker, with the catalogue's topics there."""
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": address})
    made = settings.model_copy(update={"kafka": kafka})
    cluster.ensure(made, [topic.resolved(made) for topic in catalogue.TOPICS])
    return made


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, SecondBroker]]:
    """The address of a cluster whose second broker may be stopped: what the cluster needs is all on the first."""
    with Kafka(tmp_path_factory.mktemp("first"), config=BROKER) as first:
        settings = Settings(kafka={"bootstrap_servers": first.bootstrap_servers})
        TransactionalProducer(settings, "makes-the-coordinator's-topic").close()
        lag.group_state(settings, "nobody")
        with SecondBroker(first, tmp_path_factory.mktemp("second") / "broker") as second:
            yield first.bootstrap_servers, second


@pytest.mark.timed
@pytest.mark.parametrize(("failure", "kind"), CASES, ids=str)
def test_a_partition_rests_while_what_follows_from_its_failure_has_too_few_replicas(
    settings: Settings,
    two_brokers: tuple[str, SecondBroker],
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    kind: str,
) -> None:
    """The client tries for as long as it may, and is never told more than that there was no answer. The one worker of a
    transactional group does nothing else meanwhile, so it looks at the replicas."""
    if not IS_NIGHT:
        monkeypatch.setattr(runtime, "APPEND_SECONDS", 10.0)  # it waits for so long before it rests
    address, second = two_brokers
    second.stop()  # which has no replica of the other topics
    made = on_broker(settings, address)
    second.start()
    make_with_two_replicas(made)
    took = _rests(made, running, (lambda _: second.stop(), lambda _: second.start()), failure, kind)
    if kind == "transactional":
        within(10.0, took, "it rested")


def make_with_two_replicas(settings: Settings) -> None:
    """The group's own topics, led by the first broker; two of them take nothing while a replica is away."""
    admin, names = client(settings), Names(settings.kafka.namespace)
    made = []
    for topic in group_topics("audit", cluster.partition_count(settings, ["documents"]), [TIERS[0].name]):
        config, replicas = {**topic.config, "min.insync.replicas": "2"}, [1, NODE]
        if topic.name == "audit.redrive":
            config, replicas = {**topic.config}, [1]
        name, count = names.topic(topic.name), topic.partitions
        made.append(NewTopic(name, num_partitions=count, replica_assignment=[replicas] * count, config=config))
    for name, future in admin.create_topics(made).items():
        answer(future, name)


def _rests(settings: Settings, running: Running, way: tuple[Change, Change], failure: Exception, kind: str) -> float:
    """Gives the seconds until the partition rested."""
    audit = ConsumerGroup("audit", tiers=TIERS, transactional=kind == "transactional")
    calls: list[str] = []
    applied: list[str] = []

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        calls.append(event.name)
        if event.name == "bad" and ctx.attempt == 1:
            raise failure
        applied.append(event.name)

    take_away, bring_back = way
    with running(audit, settings) as member, Publisher(settings) as publisher:
        publisher.publish(uploaded(name="before")).result(10)
        wait_until(lambda: applied == ["before"], what="the first record")
        take_away(settings)
        begun = SYSTEM.monotonic()
        at = publisher.publish(uploaded(name="bad")).result(10)
        wait_until(lambda: resting() == 1, 60, what="the partition rests")
        took = SYSTEM.monotonic() - begun
        members = lag.group_state(settings, "audit").members
        health = member.runtime.health()
        assert (health.alive, health.ready, health.degraded) == (True, True, True)
        assert health.body["state"] == Phase.DEGRADED
        assert "audit." in health.body["degraded"][0]
        wait_until(lambda: refused(member) == {at.partition}, what="it is shown")
        behind = 0
        for _ in range(20):
            behind += publisher.publish(uploaded(name="behind")).result(10).partition == at.partition
        wait_until(lambda: len(applied) >= 21 - behind, what="other partitions go on")
        passes(AWAY_SECONDS)
        assert committed(settings, at.partition) in (None, at.offset, *range(at.offset)), "nothing behind it"
        assert member.runtime.health().degraded
        assert lag.group_state(settings, "audit").members == members, "its membership is kept"
        bring_back(settings)
        came = SYSTEM.monotonic()
        if isinstance(failure, DeadLetter):
            [letter] = await_dead_letters(settings, "audit", 1, 60)
            assert letter.hop.origin.offset == at.offset
        wait_until(lambda: all(one.lag == 0 for one in lag.group_offsets(settings, "audit")), 60, what="lag 0")
        print(f"it rested after {took:.1f} s, and was back after {SYSTEM.monotonic() - came:.1f} s")
        wait_until(lambda: resting() == 0 and not member.runtime.health().degraded, what="no partition rests")
    assert calls.count("bad") == (1 if isinstance(failure, DeadLetter) else 2)
    assert sorted(applied) == sorted(
        ["before", *["behind"] * 20, *([] if isinstance(failure, DeadLetter) else ["bad"])]
    )
    return took
