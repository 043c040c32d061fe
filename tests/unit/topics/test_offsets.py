"""Ends of partitions whose leader is about to be known."""

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from offsetzero.errors import TopicError
from offsetzero.topics import offsets
from offsetzero.topics.names import Names

NAMES, PLACES = Names("t."), [("documents", 0), ("documents", 1)]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Cluster:
    """Answers as an admin client does: by partition, an error for each that is listed, then its offset.

    No broker of one machine can be had to say these on purpose: they come from one that has just made the topic.
    """

    def __init__(self, **errors: list[int]) -> None:
        self.errors = errors
        self.asked: list[list[int]] = []
        self.looked = 0

    def list_offsets(self, wanted: Mapping[TopicPartition, Any], **_: Any) -> dict[TopicPartition, "Future[Any]"]:
        self.asked.append([one.partition for one in wanted])
        return {one: self._answer(one) for one in wanted}

    def list_topics(self, **_: Any) -> None:
        self.looked += 1

    def _answer(self, place: TopicPartition) -> "Future[Any]":
        future: Future[Any] = Future()
        if errors := self.errors.get(f"p{place.partition}"):
            future.set_exception(KafkaException(KafkaError(errors.pop(0))))
        else:
            future.set_result(SimpleNamespace(offset=place.partition + 7))
        return future


def ends(cluster: Cluster) -> dict[tuple[str, int], int]:
    return offsets.ends(cluster, NAMES, PLACES, LATEST)  # type: ignore[arg-type]


def test_only_partitions_without_a_leader_are_asked_again_with_fresh_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "LEADER_PAUSE", 0.0)
    cluster = Cluster(p1=[KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE])
    assert ends(cluster) == {("documents", 0): 7, ("documents", 1): 8}
    assert cluster.asked == [[0, 1], [1], [1]]
    assert cluster.looked == 2


def test_any_other_refusal_is_told_at_once() -> None:
    cluster = Cluster(p0=[KafkaError.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(TopicError, match="documents"):
        ends(cluster)
    assert cluster.asked == [[0, 1]]


def test_a_partition_that_stays_without_a_leader_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "LEADER_SECONDS", 0.0)
    monkeypatch.setattr(offsets, "LEADER_PAUSE", 0.0)
    with pytest.raises(TopicError, match="documents"):
        ends(Cluster(p0=[KafkaError.LEADER_NOT_AVAILABLE] * 1000))
