"""The declared topics."""

import pytest

from offsetzero.errors import TopicError
from offsetzero.settings import KafkaSettings, RetrySettings, Settings
from offsetzero.topics import catalogue
from offsetzero.topics.catalogue import Kind, Topic
from offsetzero.topics.names import Names


def test_events_have_a_topic_and_documents_a_lane_for_backfill() -> None:
    assert catalogue.topic_of("document.uploaded") == "documents"
    assert catalogue.topic_of("document.deleted", bulk=True) == "documents.bulk"
    assert catalogue.topic_of("run.failed") == "runs"
    with pytest.raises(TopicError, match=r"run\.failed in bulk"):
        catalogue.topic_of("run.failed", bulk=True)
    with pytest.raises(TopicError, match=r"catalogue\.declare"):
        catalogue.topic_of("no.such")


def test_a_group_reads_both_lanes_of_its_event_types() -> None:
    assert catalogue.sources_of(["document.uploaded"]) == ["documents", "documents.bulk"]
    assert catalogue.sources_of(["run.failed", "document.deleted"]) == ["documents", "documents.bulk", "runs"]
    with pytest.raises(TopicError, match=r"no\.such"):
        catalogue.sources_of(["run.failed", "no.such"])


def test_all_declared_topics_of_the_design_are_there() -> None:
    names = {topic.name for topic in catalogue.declared(Settings())}
    tiers = dict.fromkeys(("indexer", "summariser"), ("retry-1m", "retry-10m"))
    tiers["notifier"] = ("retry-5s", "retry-5m", "retry-30m", "retry-2h", "retry-6h", "retry-13h")
    groups = {f"{group}.{suffix}" for group in tiers for suffix in (*tiers[group], "redrive", "dlq")}
    assert names == {"control", "documents", "documents.bulk", "runs", "schemas", "usage.changelog"} | groups


def test_counts_and_tiers_follow_the_settings() -> None:
    settings = Settings(
        kafka=KafkaSettings(partitions=3, replication_factor=3), retry=RetrySettings(delays={"retry-5s": 5})
    )
    topics = {topic.name: topic for topic in catalogue.declared(settings)}
    assert (topics["documents"].partitions, topics["documents"].replication) == (3, 3)
    assert topics["documents"].config["min.insync.replicas"] == "2"
    assert topics["indexer.retry-5s"].partitions == 3
    assert topics["schemas"].partitions == 1
    assert "indexer.retry-1m" not in topics
    assert "min.insync.replicas" not in Topic("a").resolved(Settings()).config


def test_the_topics_of_a_group_keep_everything_in_their_sources_partition_count() -> None:
    topics = catalogue.group_topics("audit", 4, ["retry-1m", "retry-10m"])
    assert [topic.name for topic in topics] == ["audit.retry-1m", "audit.retry-10m", "audit.redrive", "audit.dlq"]
    assert [topic.kind for topic in topics] == [Kind.RETRY, Kind.RETRY, Kind.REDRIVE, Kind.DLQ]
    assert {topic.partitions for topic in topics} == {4}
    assert {topic.config["cleanup.policy"] for topic in topics} == {"delete"}
    assert [topic.config["retention.ms"] for topic in topics] == ["-1", "-1", "-1", "7776000000"]
    assert {topic.group for topic in topics} == {"audit"}


def test_an_own_topic_can_be_declared_and_conflicts_are_refused() -> None:
    invoices = Topic("invoices", 3, event_types=("invoice.paid",))
    with catalogue.declared_for(invoices):
        catalogue.declare(invoices)
        assert catalogue.topic_of("invoice.paid") == "invoices"
        assert catalogue.of_group(Settings(), "billing", ["invoices"])[0].partitions == 3
        with pytest.raises(TopicError, match="declared twice"):
            catalogue.declare(Topic("invoices", 4))
        with pytest.raises(TopicError, match="already belongs to invoices"):
            catalogue.declare(Topic("bills", event_types=("invoice.paid",)))
        with pytest.raises(TopicError, match="one partition count"):
            catalogue.of_group(Settings(), "billing", ["invoices", "documents"])
    assert catalogue.find("invoices") is None
    with pytest.raises(TopicError, match="not declared"):
        catalogue.of_group(Settings(), "billing", ["invoices"])


@pytest.mark.parametrize("name", ["", ".", "a/b", "ä", "a b", "x" * 200])
def test_a_name_that_kafka_refuses_is_refused(name: str) -> None:
    with pytest.raises(TopicError, match="letters, digits"):
        Topic(name)


def test_names_carry_the_namespace() -> None:
    names = Names("dev.")
    assert (names.topic("runs"), names.group("indexer"), names.transactional_id("x")) == (
        "dev.runs",
        "dev.indexer",
        "dev.x",
    )
    assert (names.strip("dev.runs"), names.strip("runs"), names.strip("dev.")) == ("runs", None, None)
    assert Names().strip("runs") == "runs"
