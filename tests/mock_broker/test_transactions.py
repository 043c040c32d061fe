"""Transactions on librdkafka's mock broker: what each failure is called. It fences nobody; Kafka does (tests/kafka)."""

import threading
from collections.abc import Iterator

import pytest

from offsetzero.errors import PublishError
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.producers.transactions import (
    AbortRequired,
    TransactionalProducer,
    TransactionError,
    Unsettled,
)
from offsetzero.settings import KafkaSettings, Settings
from support import wait_until


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Settings]:
    """A mock broker that several clients can use. A parameter is its round trip time in milliseconds."""
    rtt = getattr(request, "param", 0)
    options = {"test.mock.num.brokers": "1", "test.mock.broker.rtt": str(rtt), "log_level": "0"}
    with LogProducer(Settings(kafka=KafkaSettings(bootstrap_servers="mock:1", options=options))) as owner:
        found = owner._producer.list_topics(timeout=10).brokers
        address = f"127.0.0.1:{next(iter(found.values())).port}"
        options = {"allow.auto.create.topics": "true", "log_level": "0"}
        yield Settings(kafka=KafkaSettings(bootstrap_servers=address, options=options))


def _produce(producer: LogProducer, size: int = 1) -> Delivery:
    return producer.produce("t", key=b"k", value=b"x" * size)


def test_commit_waits_for_the_records(cluster: Settings) -> None:
    with TransactionalProducer(cluster, "id") as producer:
        for _ in range(2):
            producer.begin()
            deliveries = [_produce(producer) for _ in range(200)]
            producer.commit()
            assert all(delivery.done() for delivery in deliveries)
            assert len({delivery.result(0).offset for delivery in deliveries}) == 200


@pytest.mark.parametrize("cluster", [300], indirect=True)
def test_a_commit_that_takes_too_long_is_unsettled_and_is_called_again(cluster: Settings) -> None:
    with TransactionalProducer(cluster, "id") as producer:
        producer.begin()
        delivery = _produce(producer)
        with pytest.raises(Unsettled) as caught:
            producer.commit(0.01)
        assert caught.value.retriable
        with pytest.raises(TransactionError, match="Conflicting commit_transaction") as conflict:
            producer.abort(0.2)
        assert type(conflict.value) is TransactionError
        producer.commit()
        assert delivery.result(0).offset >= 0


def test_a_record_that_is_refused_before_it_is_sent_fails_the_transaction(cluster: Settings) -> None:
    """The client does not take it, so does not miss it: it would commit the others, and none of them is whole."""
    with TransactionalProducer(cluster, "id") as producer:
        producer.begin()
        _produce(producer)
        _produce(producer, size=2_000_000)
        _produce(producer)
        with pytest.raises(AbortRequired, match=r"refused before it was sent.*publish its URI") as caught:
            producer.commit()
        assert caught.value.code == "MSG_SIZE_TOO_LARGE"
        producer.abort()
        producer.begin()
        assert _produce(producer)
        producer.commit()


def test_calls_out_of_order_are_the_programs_mistake(cluster: Settings) -> None:
    with TransactionalProducer(cluster, "id") as producer:
        for step in (producer.commit, producer.abort):
            with pytest.raises(TransactionError, match=r"transaction id: (commit|abort)") as caught:
                step()
            assert type(caught.value) is TransactionError
        with pytest.raises(PublishError):
            _produce(producer).result(10)
        producer.begin()
        with pytest.raises(TransactionError, match="begin") as caught:
            producer.begin()
        assert type(caught.value) is TransactionError
        assert _produce(producer)
        producer.commit()


def test_a_callback_cannot_end_a_transaction_and_does_not_crash_the_client(cluster: Settings) -> None:
    refused: list[PublishError] = []

    def callback(_: Delivery) -> None:
        try:
            producer.commit()
        except PublishError as error:
            refused.append(error)

    with TransactionalProducer(cluster, "id") as producer:
        producer.begin()
        _produce(producer).add_done_callback(callback)
        wait_until(lambda: refused)
        assert "callback" in str(refused[0])
        producer.commit()


def test_without_a_coordinator_the_producer_is_not_made_and_leaves_no_thread() -> None:
    nowhere = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1", options={"log_level": "0"}))
    with pytest.raises(Unsettled, match="init"):
        TransactionalProducer(nowhere, "id", transaction_timeout=1.0)
    assert all(thread.name != "offsetzero-producer" for thread in threading.enumerate())
