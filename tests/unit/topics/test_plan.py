"""The plan: what is to be done, and every refusal of design section 5."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.settings import Settings
from offsetzero.topics import catalogue
from offsetzero.topics.catalogue import Kind, Topic
from offsetzero.topics.lag import PartitionLag, lag
from offsetzero.topics.plan import (
    AddPartitions,
    AlterConfig,
    ConfigChange,
    CreateTopic,
    Intent,
    Plan,
    TopicState,
    make_plan,
)

DECLARED = catalogue.declared(Settings())
INTENT = Intent(sources=catalogue.GROUPS)


def _exists(topic: Topic, **changes: int) -> TopicState:
    return TopicState(
        topic.name,
        changes.get("partitions", topic.partitions),
        changes.get("replication", topic.replication),
        {"compression.type": "producer", **topic.config},
    )


def _changed(name: str, **changes: object) -> list[Topic]:
    return [replace(topic, **changes) if topic.name == name else topic for topic in DECLARED]  # type: ignore[arg-type]


EXISTING = {topic.name: _exists(topic) for topic in DECLARED}


def test_an_empty_cluster_gets_every_topic() -> None:
    assert make_plan(DECLARED, {}, INTENT) == Plan(tuple(CreateTopic(topic) for topic in DECLARED))


def test_a_cluster_that_is_as_declared_needs_nothing_and_others_topics_are_left_alone() -> None:
    existing = {**EXISTING, "theirs": TopicState("theirs", 1, 1, {"cleanup.policy": "compact"})}
    assert make_plan(DECLARED, existing, INTENT) == Plan()


def test_only_declared_values_are_changed() -> None:
    existing = {**EXISTING, "runs": TopicState("runs", 6, 1, {"retention.ms": "1", "segment.ms": "5"})}
    (action,) = make_plan(DECLARED, existing, INTENT).actions
    assert action == AlterConfig(
        "runs",
        (
            ConfigChange("cleanup.policy", None, "delete"),
            ConfigChange("retention.ms", "1", "-1"),
            ConfigChange("retention.bytes", None, "-1"),
        ),
    )
    assert str(action).startswith("configure runs: cleanup.policy: None -> delete, retention.ms: 1 -> -1")


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("indexer.retry-1m", {"cleanup.policy": "compact", "retention.ms": "-1"}, "must not be compacted"),
        ("indexer.retry-1m", {"cleanup.policy": "compact,delete", "retention.ms": "-1"}, "must not be compacted"),
        ("indexer.retry-1m", {"cleanup.policy": "delete"}, "needs retention.ms=-1"),
        ("indexer.retry-1m", {"retention.ms": "60000"}, "needs retention.ms=-1"),
        ("indexer.redrive", {"retention.ms": "-1", "retention.bytes": "5"}, "needs retention.bytes=-1"),
        ("indexer.dlq", {"cleanup.policy": "compact"}, "must not be compacted"),
    ],
)
def test_waiting_or_dead_records_may_not_vanish(name: str, config: dict[str, str], said: str) -> None:
    """apache/kafka#22849: dead letters vanished by compaction and by retention."""
    plan = make_plan(_changed(name, config=config), {}, INTENT)
    assert [refusal for refusal in plan.refusals if name in refusal and said in refusal]


def test_the_sources_of_a_group_have_one_partition_count() -> None:
    plan = make_plan(_changed("documents.bulk", partitions=3), {}, INTENT)
    assert [refusal.split(":")[0] for refusal in plan.refusals] == ["group indexer", "group summariser"]


def test_a_retry_topic_has_its_sources_partition_count() -> None:
    plan = make_plan(_changed("notifier.retry-13h", partitions=3), {}, INTENT)
    (refusal,) = plan.refusals
    assert "notifier.retry-13h: has 3 partitions, but the sources of notifier have 6" in refusal


def test_partitions_are_never_taken_away() -> None:
    existing = {**EXISTING, "runs": _exists(EXISTING_TOPIC["runs"], partitions=12)}
    (refusal,) = make_plan(DECLARED, existing, INTENT).refusals
    assert "runs: has 12 partitions, declared are 6: Kafka cannot take partitions away" in refusal


def test_a_replication_factor_that_differs_is_only_told() -> None:
    existing = {**EXISTING, "runs": _exists(EXISTING_TOPIC["runs"], replication=3)}
    plan = make_plan(DECLARED, existing, INTENT)
    assert (plan.actions, plan.refusals) == ((), ())
    assert "runs: has 3 replicas, declared are 1" in plan.notices[0]


EXISTING_TOPIC = {topic.name: topic for topic in DECLARED}
GROWN = [replace(topic, partitions=8) if topic.partitions == 6 else topic for topic in DECLARED]


def test_adding_partitions_needs_permission() -> None:
    plan = make_plan(GROWN, EXISTING, INTENT)
    assert len(plan.refusals) == len(plan.actions) == 20
    assert all("--allow-rekey" in refusal for refusal in plan.refusals)


def test_adding_partitions_with_permission_begins_with_the_retry_topics() -> None:
    plan = make_plan(GROWN, EXISTING, replace(INTENT, allow_rekey=True))
    assert plan.refusals == ()
    assert all(isinstance(action, AddPartitions) for action in plan.actions)
    assert [action.name for action in plan.actions[-3:]] == ["documents", "documents.bulk", "runs"]


def test_adding_partitions_waits_until_the_retry_topics_are_drained() -> None:
    intent = replace(INTENT, allow_rekey=True, waiting={"notifier.retry-5s": 2, "notifier.dlq": 9, "runs": 5})
    plan = make_plan(GROWN, EXISTING, intent)
    assert sorted(refusal.split(":")[0] for refusal in plan.refusals) == ["notifier.retry-5s", "runs"]
    assert all("2 records wait in notifier.retry-5s" in refusal for refusal in plan.refusals)


def test_every_retry_kind_of_the_catalogue_passes_its_own_rules() -> None:
    assert {topic.kind for topic in DECLARED} == set(Kind)
    assert make_plan(DECLARED, {}, INTENT).refusals == ()


@pytest.mark.parametrize(
    ("committed", "low", "high", "expected"),
    [(None, 3, 10, 7), (4, 3, 10, 6), (10, 3, 10, 0), (1, 3, 10, 7), (12, 3, 10, 0), (None, 0, 0, 0)],
)
def test_lag_in_records(committed: int | None, low: int, high: int, expected: int) -> None:
    assert lag(committed, low, high) == PartitionLag("t", 0, committed, low, high).lag == expected


@given(st.none() | st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_lag_is_never_negative_nor_more_than_there_is(committed: int | None, low: int, more: int) -> None:
    assert 0 <= lag(committed, low, low + more) <= more
