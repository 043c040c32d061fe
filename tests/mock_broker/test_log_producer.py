"""The producer and its deliveries on librdkafka's mock broker."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message

from offsetzero.errors import PublishError
from offsetzero.producers import log
from offsetzero.producers.answers import HELP_EVERY
from offsetzero.producers.log import ERROR_PATIENCE, Delivery, LogProducer
from offsetzero.settings import KafkaSettings, Settings
from support import PATIENCE, wait_until, within


def _settings(**options: str) -> Settings:
    mock = {"test.mock.num.brokers": "1", "allow.auto.create.topics": "true", "log_level": "0"}
    return Settings(kafka=KafkaSettings(bootstrap_servers="mock:1", options={**mock, **options}))


@pytest.fixture
def producer() -> Iterator[LogProducer]:
    with LogProducer(_settings()) as made:
        yield made


def _produce(producer: LogProducer, number: int = 0, **more: Any) -> Delivery:
    return producer.produce("t", key=b"k", value=b"%d" % number, **more)


def test_a_delivery_tells_where_the_record_is(producer: LogProducer) -> None:
    first, second = _produce(producer), _produce(producer)
    assert (second.result(10).topic, second.result().partition) == ("t", first.result(10).partition)
    assert second.result().offset == first.result().offset + 1
    assert first.done()


def test_a_delivery_can_be_awaited_from_any_loop(producer: LogProducer) -> None:
    async def both() -> list[int]:
        placed = await asyncio.gather(*(_wait(_produce(producer, n)) for n in range(10)))
        return [one.offset for one in placed]

    async def _wait(delivery: Delivery) -> Any:
        return await delivery

    offsets = asyncio.run(both()) + asyncio.run(both())
    assert len(set(offsets)) == 20
    done = _produce(producer)
    done.result(10)
    assert asyncio.run(_wait(done)).topic == "t"


def test_waiting_can_be_given_up_and_taken_up_again() -> None:
    with LogProducer(_settings(**{"linger.ms": "300"})) as producer:
        delivery = _produce(producer)
        with pytest.raises(TimeoutError, match="no answer"):
            delivery.result(0.01)
        assert delivery.result(10).offset >= 0


def test_a_loop_that_ends_before_the_answer_does_no_harm() -> None:
    with LogProducer(_settings(**{"linger.ms": "300"})) as producer:

        async def gives_up(delivery: Delivery) -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.ensure_future(_as_coroutine(delivery)), 0.01)

        async def _as_coroutine(delivery: Delivery) -> Any:
            return await delivery

        delivery = _produce(producer)
        asyncio.run(gives_up(delivery))
        assert delivery.result(10).offset >= 0


def test_callbacks_run_once_before_or_after_the_answer_and_may_fail(producer: LogProducer) -> None:
    called: list[str] = []

    def failing(_: Delivery) -> None:
        called.append("failing")
        raise RuntimeError("the callback's own")

    delivery = _produce(producer)
    delivery.add_done_callback(failing)
    delivery.add_done_callback(lambda one: called.append(f"{one.result(0).topic}"))
    delivery.result(10)
    wait_until(lambda: len(called) == 2)
    delivery.add_done_callback(lambda _: called.append("late"))
    assert called == ["failing", "t", "late"]
    assert _produce(producer).result(10)


def test_a_refused_record_fails_in_its_delivery_with_a_code(producer: LogProducer) -> None:
    delivery = producer.produce("t", key=None, value=b"x" * 2_000_000)
    with pytest.raises(PublishError, match="publish its URI") as caught:
        delivery.result(10)
    assert (caught.value.code, caught.value.retriable) == ("MSG_SIZE_TOO_LARGE", False)
    with pytest.raises(PublishError):
        _produce(producer, partition=99).result(15)
    assert _produce(producer).result(10)


def test_a_full_queue_makes_producing_wait_and_loses_nothing() -> None:
    with LogProducer(_settings(**{"queue.buffering.max.messages": "10"})) as producer:
        deliveries = [_produce(producer, number) for number in range(500)]
        assert producer.flush(20) == 0
        offsets = [delivery.result(0).offset for delivery in deliveries]
    assert sorted(offsets) == offsets
    assert len(set(offsets)) == 500


@pytest.fixture
def full() -> Iterator[LogProducer]:
    """A producer of one place, which is taken, and no broker."""
    options = {"queue.buffering.max.messages": "1", "log_level": "0"}
    producer = LogProducer(Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1", options=options)))
    producer._delivery_timeout = 0.2
    given_up = _produce(producer)
    yield producer
    producer.close(0.1)
    with pytest.raises(PublishError, match="urged") as caught:
        given_up.result(0)
    assert caught.value.retriable


def test_a_full_queue_that_does_not_drain_is_an_error_in_time(full: LogProducer) -> None:
    with pytest.raises(PublishError, match="does not drain") as caught:
        _produce(full)
    assert caught.value.retriable


def test_other_tasks_run_while_the_queue_is_full(full: LogProducer) -> None:
    async def service() -> None:
        waiting = asyncio.ensure_future(full.produce_async("t", key=b"k", value=b""))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()  # and yet this task has run
        with pytest.raises(PublishError, match="does not drain"):
            await waiting

    asyncio.run(service())


def test_producing_from_a_callback_with_a_full_queue_is_refused_and_not_a_deadlock() -> None:
    with LogProducer(_settings(**{"queue.buffering.max.messages": "1"})) as producer:
        seen: list[BaseException | None] = []

        def chain(_: Delivery) -> None:
            try:
                for number in range(5):
                    _produce(producer, number)
                seen.append(None)
            except PublishError as error:
                seen.append(error)

        _produce(producer).add_done_callback(chain)
        wait_until(lambda: seen)
        assert "callback cannot wait" in str(seen[0])


def test_a_thread_that_produces_much_serves_the_answers_itself(producer: LogProducer) -> None:
    """Otherwise the polling thread has to take the interpreter from it for each single record."""
    served: set[int] = set()

    class Watched(Delivery):
        def acknowledge(self, error: Any, message: Any) -> None:
            served.add(threading.get_ident())
            super().acknowledge(error, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "Delivery", Watched)
        deadline = time.monotonic() + PATIENCE
        while threading.get_ident() not in served and time.monotonic() < deadline:
            _produce(producer)
    assert threading.get_ident() in served


def test_callbacks_never_run_inside_a_produce(producer: LogProducer) -> None:
    """What a callback waits for may be held by the thread that produces: it would wait for itself."""
    go_on = threading.Event()
    ran: list[int] = []
    _produce(producer).add_done_callback(lambda _: go_on.wait(20))  # the polling thread is not there to serve
    deadline = time.monotonic() + 0.3
    produced = 0
    while time.monotonic() < deadline:
        _produce(producer).add_done_callback(lambda _: ran.append(threading.get_ident()))
        produced += 1
    assert produced > HELP_EVERY
    assert not ran
    go_on.set()
    wait_until(lambda: len(ran) == produced)
    assert threading.get_ident() not in ran


def test_a_callback_that_flushes_or_waits_is_refused_and_does_not_crash_the_client(producer: LogProducer) -> None:
    """The client's poll and flush cannot be entered again by what they call: it would end the process."""
    refused: list[PublishError] = []

    def callback(_: Delivery) -> None:
        for use in (lambda: producer.flush(1), lambda: _produce(producer).result()):
            try:
                use()
            except PublishError as error:
                refused.append(error)

    _produce(producer).add_done_callback(callback)
    wait_until(lambda: len(refused) == 2)
    assert _produce(producer).result(10)


def test_a_kept_delivery_does_not_hold_its_record(producer: LogProducer) -> None:
    """A million deliveries kept until the end took a gigabyte: the client's message holds key, value and topic."""
    delivery = _produce(producer)
    delivery.result(10)
    assert not any(isinstance(held, Message) for held in gc.get_referents(delivery))


def test_closing_settles_every_delivery_and_ends_the_thread() -> None:
    """confluent-kafka-python#1667: close hangs. Here it is bounded, and nobody waits for ever."""
    settings = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1", options={"log_level": "0"}))
    producer = LogProducer(settings)
    deliveries = [_produce(producer, number) for number in range(3)]
    assert producer.close(0.2) == 3
    assert producer.close() == 0
    for delivery in deliveries:
        with pytest.raises(PublishError, match="urged"):
            delivery.result(0)
    with pytest.raises(PublishError, match="closed"):
        _produce(producer)
    assert all(thread.name != "offsetzero-producer" for thread in threading.enumerate())


def test_headers_keep_order_and_nulls(producer: LogProducer) -> None:
    assert _produce(producer, headers=[("a", b"1"), ("a", b"2"), ("n", None)]).result(10)


def test_an_undeclared_topic_is_refused_with_the_remedy() -> None:
    with (
        LogProducer(
            _settings(**{"allow.auto.create.topics": "false", "topic.metadata.propagation.max.ms": "200"})
        ) as producer,
        pytest.raises(PublishError, match="topics apply"),
    ):
        _produce(producer).result(10)


@pytest.mark.timed
def test_a_block_that_an_error_leaves_does_not_wait_for_a_broker_that_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    started = time.monotonic()
    with (
        pytest.raises(TimeoutError),
        LogProducer(Settings(kafka={"bootstrap_servers": "127.0.0.1:1"})) as producer,
    ):
        producer.produce("t", key="k", value=b"v").result(0.1)
    within(2 * ERROR_PATIENCE, time.monotonic() - started, "its end")
    assert "1 records were given up" in caplog.text


def test_what_was_produced_before_an_error_left_the_block_is_still_sent() -> None:
    deliveries: list[Delivery] = []

    def use() -> None:
        with LogProducer(_settings(**{"linger.ms": "300"})) as producer:
            deliveries.extend(_produce(producer, number) for number in range(50))
            raise ValueError("of theirs")

    with pytest.raises(ValueError, match="of theirs"):
        use()
    assert all(delivery.result(0).offset >= 0 for delivery in deliveries)
