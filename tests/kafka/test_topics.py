"""Topics on a real broker: plan, apply, ids, lag and the schema log."""

from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition

from offsetzero.errors import SchemasUnavailable, TopicError
from offsetzero.history import spans
from offsetzero.producers.log import LogProducer
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.schemas import writer
from offsetzero.settings import Settings
from offsetzero.topics import admin, catalogue, cluster, lag, retained
from offsetzero.topics.catalogue import Topic
from offsetzero.topics.names import Names
from offsetzero.topics.plan import AddPartitions, AlterConfig, CreateTopic, Intent, Plan, make_plan
from offsetzero.topics.points import Ends
from offsetzero.topics.schema_log import SchemaLog
from support import wait_until


def _plan(settings: Settings, declared: list[Topic], intent: Intent | None = None) -> Plan:
    return make_plan(declared, cluster.read(settings, [topic.name for topic in declared]), intent)


def test_applying_the_catalogue_makes_every_topic_and_a_second_plan_is_empty(settings: Settings) -> None:
    declared = catalogue.declared(settings)
    plan = _plan(settings, declared)
    assert {action.name for action in plan.actions} == {topic.name for topic in declared}
    cluster.apply(settings, plan)
    assert _plan(settings, declared) == Plan()
    assert cluster.partitions(settings)["indexer.retry-1m"] == 6
    assert cluster.read(settings, ["schemas"])["schemas"].config["cleanup.policy"] == "compact"


def test_a_drifted_configuration_is_shown_and_mended(settings: Settings) -> None:
    wrong = Topic("runs", 1, 1, config={"retention.ms": "1000"})
    cluster.apply(settings, _plan(settings, [wrong]))
    right = Topic("runs", 1, 1, config={"retention.ms": "-1"})
    plan = _plan(settings, [right])
    assert [str(action) for action in plan.actions] == ["configure runs: retention.ms: 1000 -> -1"]
    assert isinstance(plan.actions[0], AlterConfig)
    cluster.apply(settings, plan)
    assert _plan(settings, [right]) == Plan()


def test_partitions_are_added_only_when_allowed(settings: Settings) -> None:
    cluster.apply(settings, _plan(settings, [Topic("documents", 2, 1)]))
    more = [Topic("documents", 3, 1)]
    refused = _plan(settings, more)
    with pytest.raises(TopicError, match="--allow-rekey"):
        cluster.apply(settings, refused)
    assert cluster.partitions(settings) == {"documents": 2}
    allowed = _plan(settings, more, Intent(allow_rekey=True))
    assert isinstance(allowed.actions[0], AddPartitions)
    cluster.apply(settings, allowed)
    assert cluster.partitions(settings) == {"documents": 3}


def test_a_log_ends_where_a_transaction_is_open(settings: Settings) -> None:
    """At the high watermark a group would be set past records that it has never seen, and a reader would wait."""
    cluster.ensure(settings, [Topic("open", 1).resolved(settings)])
    names = Names(settings.kafka.namespace)

    def ends() -> Ends:
        return Ends(admin.client(settings), names, [("open", 0)])

    with LogProducer(settings) as producer, TransactionalProducer(settings, "open") as transactional:
        for _ in range(3):
            producer.produce(names.topic("open"), key=None, value=b"x", timestamp_ms=1_000).result(10)
        transactional.begin()
        transactional.produce(names.topic("open"), key=None, value=b"y", timestamp_ms=2_000)
        assert transactional.flush(30) == 0
        at_end = {("open", 0): 3}
        for point in ("latest", datetime.fromtimestamp(2, UTC), datetime.fromtimestamp(9, UTC)):
            assert ends().resolve("--to", point) == at_end  # type: ignore[arg-type]
            assert spans.resolve(settings, "open", "earliest", point) == {0: (0, 3)}  # type: ignore[arg-type]
        assert ends().resolve("--to", datetime.fromtimestamp(1, UTC)) == {("open", 0): 0}
        with pytest.raises(TopicError, match="has the offsets from 0 to 3, not 4"):
            ends().resolve("--to", 4)
        assert retained.bounds(settings, "open")[0].end == 3
        transactional.commit()
    wait_until(lambda: ends().end == {("open", 0): 5}, what="the marker")
    assert spans.resolve(settings, "open", datetime.fromtimestamp(2, UTC), "latest") == {0: (3, 5)}


def test_ensure_makes_what_is_missing_and_two_may_do_it(settings: Settings) -> None:
    topics = catalogue.group_topics("audit", 2, ["retry-1m"])
    cluster.ensure(settings, topics)
    cluster.ensure(settings, topics)
    assert cluster.partitions(settings) == {"audit.retry-1m": 2, "audit.redrive": 2, "audit.dlq": 2}
    with pytest.raises(TopicError, match="cannot take partitions away"):
        cluster.ensure(settings, catalogue.group_topics("audit", 1, ["retry-1m"]))


def test_a_plan_may_meet_topics_that_somebody_else_has_just_made(settings: Settings) -> None:
    """Two processes that start together both plan to create: the second finds them made."""
    topic = Topic("documents", 2, 1)
    plan = Plan((CreateTopic(topic),))
    cluster.apply(settings, plan)
    cluster.apply(settings, plan)
    assert cluster.partitions(settings) == {"documents": 2}


def test_partition_count_names_what_is_missing_or_differs(settings: Settings) -> None:
    cluster.ensure(settings, [Topic("documents", 2), Topic("documents.bulk", 3)])
    assert cluster.partition_count(settings, ["documents"]) == 2
    with pytest.raises(TopicError, match="one partition count"):
        cluster.partition_count(settings, ["documents", "documents.bulk"])
    with pytest.raises(TopicError, match=r"runs do not exist.*topics apply"):
        cluster.partition_count(settings, ["documents", "runs"])


def test_a_topic_that_is_made_again_has_another_id(settings: Settings) -> None:
    cluster.ensure(settings, [Topic("runs", 1)])
    first = cluster.topic_ids(settings, ["runs"])["runs"]
    name = Names(settings.kafka.namespace).topic("runs")
    admin_client = admin.client(settings)
    admin_client.delete_topics([name], operation_timeout=10)[name].result(10)
    wait_until(lambda: "runs" not in cluster.partitions(settings), what="the topic to be gone")
    cluster.ensure(settings, [Topic("runs", 1)])
    assert cluster.topic_ids(settings, ["runs"])["runs"] != first
    with pytest.raises(TopicError, match="documents"):
        cluster.topic_ids(settings, ["documents"])


def test_lag_counts_from_the_committed_offset_or_from_the_start(settings: Settings) -> None:
    cluster.ensure(settings, [Topic("documents", 2), Topic("indexer.retry-1m", 2), Topic("indexer.dlq", 2)])
    names = Names(settings.kafka.namespace)
    with LogProducer(settings) as producer:
        for _ in range(5):
            producer.produce(names.topic("documents"), key=b"k", value=b"v", partition=1)
    consumer = Consumer({"bootstrap.servers": settings.kafka.bootstrap_servers, "group.id": names.group("indexer")})
    consumer.commit(offsets=[TopicPartition(names.topic("documents"), 1, 3)], asynchronous=False)
    consumer.close()
    found = {(one.topic, one.partition): one for one in lag.group_offsets(settings, "indexer")}
    assert sorted(found) == [
        ("documents", 0),
        ("documents", 1),
        ("indexer.retry-1m", 0),
        ("indexer.retry-1m", 1),
    ]
    assert (found["documents", 1].committed, found["documents", 1].high, found["documents", 1].lag) == (3, 5, 2)
    assert (found["documents", 0].committed, found["documents", 0].lag) == (None, 0)
    assert {one.lag for one in lag.group_offsets(settings, "nobody", ["documents"])} == {0, 5}
    assert lag.groups(settings) == ["indexer"]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_are_listed_with_what_they_are_assigned(settings: Settings, protocol: str) -> None:
    cluster.ensure(settings, [Topic("runs", 2)])
    names = Names(settings.kafka.namespace)
    assert lag.group_state(settings, "notifier").members == ()
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap_servers,
            "group.id": names.group("notifier"),
            "group.protocol": protocol,
            "client.id": "me",
        }
    )
    consumer.subscribe([names.topic("runs")])
    try:
        wait_until(lambda: consumer.poll(0.1) is not None or len(consumer.assignment()) == 2, what="assignment")
        state = wait_until(
            lambda: (found := lag.group_state(settings, "notifier")).state == "stable" and found, what="stable"
        )
    finally:
        consumer.close()
    assert state
    assert state.protocol == protocol
    (member,) = state.members
    assert member.client_id == "me"
    assert member.assignment == (("runs", 0), ("runs", 1))


def _schema(name: str) -> writer.AvroSchema:
    return writer.of({"type": "record", "name": name, "fields": [{"name": "a", "type": "long"}]})


def test_a_published_schema_is_found_by_a_log_that_had_read_to_the_end_before(settings: Settings) -> None:
    cluster.ensure(settings, [catalogue.find("schemas")])  # type: ignore[list-item]
    one, two = _schema("One"), _schema("Two")
    reader, writing = SchemaLog(settings), SchemaLog(settings)
    assert reader.find(one.fingerprint) is None
    assert writing.publish([one]) == 1
    assert reader.find(one.fingerprint) == one.text
    assert reader.find(two.fingerprint) is None
    assert writing.publish([one, two]) == 1
    assert reader.find(two.fingerprint) == two.text
    assert SchemaLog(settings).publish([one, two]) == 0
    reader.close()
    assert reader.find(one.fingerprint) == one.text


def test_records_in_the_schema_log_that_are_no_schemas_do_no_harm(settings: Settings) -> None:
    cluster.ensure(settings, [catalogue.find("schemas")])  # type: ignore[list-item]
    one = _schema("One")
    topic = Names(settings.kafka.namespace).topic("schemas")
    with LogProducer(settings) as producer:
        for key, value in [(b"\xff", b"x"), (b"k", None), (b"k", b"\xff")]:
            producer.produce(topic, key=key, value=value).result(10)
    log = SchemaLog(settings)
    assert log.publish([one]) == 1
    assert log.find("00" * 8) is None
    assert log.find(one.fingerprint) == one.text
    log.close()


def test_a_schema_log_that_cannot_be_read_says_so_instead_of_none(settings: Settings) -> None:
    """confluent-kafka-python#1334: an outage of the registry must not make events poison."""
    log = SchemaLog(settings, bound=3.0)  # the topic was never made
    with pytest.raises(SchemasUnavailable):
        log.find("00" * 8)
    log.close()
