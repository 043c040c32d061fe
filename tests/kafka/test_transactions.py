"""Transactions on Kafka: records and positions together or not at all, and what happens to a producer that is late."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from offsetzero.errors import PublishError
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.producers.transactions import (
    AbortRequired,
    ProducerLost,
    TransactionalProducer,
    TransactionError,
    Unsettled,
)
from offsetzero.settings import Settings
from offsetzero.topics import cluster
from offsetzero.topics.catalogue import Topic
from offsetzero.topics.names import Names
from support import wait_until


@pytest.fixture
def topic(settings: Settings) -> str:
    """The name of a topic on the cluster that takes records of at most 2,000 bytes."""
    cluster.ensure(settings, [Topic("documents", 1, config={"max.message.bytes": "2000"})])
    return Names(settings.kafka.namespace).topic("documents")


def _committed(settings: Settings, topic: str, deadline: float = 10) -> list[bytes | None]:
    """What a reader of committed records sees until the end, which must not take it longer than the deadline."""
    reader = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap_servers,
            "group.id": f"{settings.kafka.namespace}reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    seen = []

    def at_end() -> bool:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            seen.append(message.value())
        return reader.position([TopicPartition(topic, 0)])[0].offset >= end

    wait_until(at_end, deadline, what="the end of the partition", interval=0)
    reader.close()
    return seen


@contextmanager
def _member(settings: Settings, topic: str, protocol: str) -> Iterator[Any]:
    """The one member of a group, with the partition assigned."""
    member = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap_servers,
            "group.id": f"{settings.kafka.namespace}group",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    member.subscribe([topic])
    wait_until(lambda: (member.poll(0.1), member.assignment())[1], what="an assignment", interval=0)
    try:
        yield member
    finally:
        member.close()


def _position(settings: Settings, topic: str) -> int:
    reader = Consumer(
        {"bootstrap.servers": settings.kafka.bootstrap_servers, "group.id": f"{settings.kafka.namespace}group"}
    )
    found = reader.committed([TopicPartition(topic, 0)], timeout=10)[0].offset
    reader.close()
    return int(found)


def _produce(producer: LogProducer, topic: str, value: bytes) -> Delivery:
    return producer.produce(topic, key=b"k", value=value)


def test_a_transaction_shows_all_of_its_records_or_none(settings: Settings, topic: str) -> None:
    with TransactionalProducer(settings, "one") as producer:
        for value, end in [(b"aborted", producer.abort), (b"committed", producer.commit)]:
            producer.begin()
            _produce(producer, topic, value)
            end()
    assert _committed(settings, topic) == [b"committed"]


def test_a_zombie_is_told_that_it_is_lost_and_shows_nothing(settings: Settings, topic: str) -> None:
    """The client raises a fatal error in poll and flush, instead of calling `error_cb`; no thread may die of it."""
    with TransactionalProducer(settings, "one") as zombie:
        zombie.begin()
        _produce(zombie, topic, b"of the zombie").result(10)
        with TransactionalProducer(settings, "one") as successor:
            late = [_produce(zombie, topic, b"late") for _ in range(500)]
            for delivery in late:
                with pytest.raises(PublishError):
                    delivery.result(10)
            wait_until(lambda: zombie.fatal, what="a note of the fatal error")
            for step in (zombie.commit, zombie.abort, zombie.begin):
                with pytest.raises(ProducerLost) as caught:
                    step()
                assert caught.value.code == "_FENCED"
            successor.begin()
            _produce(successor, topic, b"of the successor")
            successor.commit()
        with pytest.raises(PublishError, match="Fatal"):
            _produce(zombie, topic, b"later").result(10)
        assert [one.name for one in threading.enumerate()].count("offsetzero-producer") == 1
    assert _committed(settings, topic) == [b"of the successor"]


def test_a_zombie_that_commits_at_once_is_told_there(settings: Settings, topic: str) -> None:
    with TransactionalProducer(settings, "one") as zombie:
        zombie.begin()
        _produce(zombie, topic, b"of the zombie").result(10)
        with TransactionalProducer(settings, "one"), pytest.raises(ProducerLost, match=r"transaction .*one: commit"):
            zombie.commit()
        assert zombie.fatal
    assert _committed(settings, topic) == []


def test_a_commit_without_an_answer_in_time_is_called_again(settings: Settings, topic: str) -> None:
    with TransactionalProducer(settings, "one") as producer:
        producer.begin()
        _produce(producer, topic, b"a")
        with pytest.raises(Unsettled) as caught:
            producer.commit(0)
        assert caught.value.retriable
        with pytest.raises(TransactionError, match="abort: ") as refused:  # in words that depend on how far it got
            producer.abort(1)
        assert type(refused.value) is TransactionError
        producer.commit()
        producer.begin()
        _produce(producer, topic, b"b")
        producer.commit()
    assert _committed(settings, topic) == [b"a", b"b"]


def test_who_does_not_wait_for_a_commit_finds_its_outcome_with_a_new_producer(settings: Settings, topic: str) -> None:
    with _member(settings, topic, "consumer") as member:
        with TransactionalProducer(settings, "one") as late:
            late.begin()
            _produce(late, topic, b"a")
            late.send_offsets([TopicPartition(topic, 0, 7)], member.consumer_group_metadata())
            with pytest.raises(Unsettled):
                late.commit(0)
        with TransactionalProducer(settings, "one"):
            committed = _position(settings, topic) == 7
    assert _committed(settings, topic) == ([b"a"] if committed else [])


def test_after_a_record_that_the_broker_refuses_it_goes_on_in_one_of_the_next_two_transactions(
    settings: Settings, topic: str
) -> None:
    """librdkafka 2.16 makes good the refused record's sequence number by failing the next transaction, too."""
    with TransactionalProducer(settings, "one") as producer:
        producer.begin()
        _produce(producer, topic, b"with the refused one")
        refused = _produce(producer, topic, random.randbytes(5000))  # or compressed, it is small enough
        with pytest.raises(AbortRequired):
            producer.commit()
        with pytest.raises(PublishError, match="publish its URI"):
            refused.result(0)
        producer.abort()
        tries = 0
        while True:
            tries += 1
            producer.begin()
            _produce(producer, topic, b"next")
            try:
                producer.commit()
                break
            except AbortRequired:
                producer.abort()
        assert tries <= 2
    assert _committed(settings, topic) == [b"next"]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_positions_are_committed_with_the_records_or_not_at_all(settings: Settings, topic: str, protocol: str) -> None:
    with _member(settings, topic, protocol) as member, TransactionalProducer(settings, "one") as producer:
        for offset, end, expected in [(5, producer.commit, 5), (9, producer.abort, 5), (6, producer.commit, 6)]:
            producer.begin()
            _produce(producer, topic, b"%d" % offset)
            producer.send_offsets([TopicPartition(topic, 0, offset)], member.consumer_group_metadata())
            end()
            assert _position(settings, topic) == expected
    assert _committed(settings, topic) == [b"5", b"6"]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_the_positions_of_a_member_that_has_left_are_refused_and_the_transaction_aborts(
    settings: Settings, topic: str, protocol: str
) -> None:
    """KIP-447: the group's generation fences who no longer owns the partitions, whatever its transactional id."""
    with TransactionalProducer(settings, "one") as producer:
        with _member(settings, topic, protocol) as member:
            of_old = member.consumer_group_metadata()
        with _member(settings, topic, protocol) as member:
            producer.begin()
            _produce(producer, topic, b"old")
            with pytest.raises(AbortRequired):
                producer.send_offsets([TopicPartition(topic, 0, 3)], of_old)
            with pytest.raises(AbortRequired):
                producer.commit()
            producer.abort()
            producer.begin()
            _produce(producer, topic, b"new")
            producer.send_offsets([TopicPartition(topic, 0, 4)], member.consumer_group_metadata())
            producer.commit()
            assert _position(settings, topic) == 4
    assert _committed(settings, topic) == [b"new"]


def test_leaving_with_an_open_transaction_aborts_it_so_that_readers_do_not_wait(settings: Settings, topic: str) -> None:
    def leave() -> None:
        with TransactionalProducer(settings, "one") as producer:
            producer.begin()
            _produce(producer, topic, b"open").result(10)
            raise ValueError("of theirs")

    with pytest.raises(ValueError, match="of theirs"):
        leave()
    with LogProducer(settings) as plain:
        _produce(plain, topic, b"plain").result(10)
    assert _committed(settings, topic) == [b"plain"]
