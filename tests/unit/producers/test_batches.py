"""Lanes that were refused: how long they wait; and rows that cannot be given to the broker at all."""

import random
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from offsetzero import metrics
from offsetzero.clock import SYSTEM
from offsetzero.producers import batches
from offsetzero.producers import blocked as lanes
from offsetzero.producers.batches import Sender
from offsetzero.producers.blocked import Blocked
from offsetzero.producers.delivery import Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.producers.rows import Row
from offsetzero.producers.schema_publisher import SchemaPublisher
from offsetzero.settings import KafkaSettings, Settings
from offsetzero.topics.names import Names
from support import ManualClock


def _row(key: str, topic: str, headers: object = None) -> Row:
    return Row(uuid4(), key, "a.b", topic, b"{}", {} if headers is None else headers, datetime.now(UTC), 0)


def test_a_refused_lane_waits_longer_each_time_up_to_a_minute() -> None:
    clock = ManualClock()
    blocked = Blocked(clock, random.Random(1))
    pauses = []
    for _ in range(9):
        pauses.append(blocked.refuse("a"))
        assert blocked.now() == ["a"]
        clock.advance(pauses[-1])
        assert blocked.now() == []
    assert [int(pause) for pause in pauses[:5]] == [1, 2, 4, 8, 16]
    assert 60 <= pauses[-1] <= 66


def test_an_accepted_lane_begins_anew() -> None:
    blocked = Blocked(ManualClock(), random.Random(1))
    blocked.refuse("a")
    blocked.refuse("a")
    blocked.accept("a")
    assert blocked.now() == []
    assert blocked.refuse("a") < 2


def test_memory_is_bounded() -> None:
    blocked = Blocked(ManualClock())
    for number in range(lanes.MOST + 5):
        blocked.refuse(str(number))
    assert len(blocked.now()) == lanes.MOST
    assert str(lanes.MOST + 4) in blocked.now()


def test_without_a_broker_only_one_row_waits_for_its_schema() -> None:
    """The others would each wait as long, half a minute, and the relay answers to nobody meanwhile."""
    settings = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    at, headers = datetime(2026, 11, 30, tzinfo=UTC), {"ce_specversion": "1.0", "oz_schema": "{}"}
    rows = [
        Row(UUID(int=number), str(number), "a.b", "a", b"\xc3\x01" + number.to_bytes(8), headers, at, 0)
        for number in range(20)
    ]
    with LogProducer(settings) as producer:
        schemas = SchemaPublisher(producer, Names(""), timeout=0.05)
        sent = Sender(producer, settings, schemas, Blocked(SYSTEM), SYSTEM).send(rows)
        waiting = len(producer)
        producer.purge()
    assert sent.away is not None
    assert (sent.published, sent.refused) == ([], [])
    assert waiting < len(rows) / 2, "the one schema, and what the client has to say of the broker by now"


def test_rows_that_come_now_do_not_wait_for_the_answers_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float | None] = []
    result = Delivery.result

    def noted(delivery: Delivery, timeout: float | None = None) -> object:
        waited.append(timeout)
        return result(delivery, timeout)

    monkeypatch.setattr(Delivery, "result", noted)
    settings, clock = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1")), ManualClock()
    with LogProducer(settings) as producer:
        sender = Sender(producer, settings, SchemaPublisher(producer, Names("")), Blocked(clock), clock)
        ready = {"ce_specversion": "1.0"}
        sent = sender.send([_row(key, "documents", ready) for key in ("a", "b", "a")])
        assert (sent.published, sent.refused, sent.away) == ([], [], None)
        assert (sorted(sender.waiting()), len(producer)) == (["a", "b"], 2)
        assert waited == pytest.approx([0.005, 0.005])
        assert sender.is_awaited
        clock.advance(1.0)
        assert not sender.is_awaited, "what takes so long is not to be expected in a moment"
        sender.finish(sent)
        assert (sorted(sender.waiting()), len(waited)) == (["a", "b"], 2)
        producer.purge()


def test_a_row_that_this_process_could_not_take_is_tried_again_and_not_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(batches, "ready", full)
    settings = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    with LogProducer(settings) as producer:
        blocked = Blocked(SYSTEM)
        sent = Sender(producer, settings, SchemaPublisher(producer, Names("")), blocked, SYSTEM).send([_row("k", "a")])
    ((row, said, park),) = sent.refused
    assert (row.key, park, blocked.now()) == ("k", False, ["k"])
    assert "MemoryError" in said


def test_what_rows_say_makes_no_series_without_end() -> None:
    settings = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    with LogProducer(settings) as producer:
        sender = Sender(producer, settings, SchemaPublisher(producer, Names("")), Blocked(SYSTEM), SYSTEM)
        rows = [_row(str(number), f"topic {number}") for number in range(50)]
        sent = sender.send([*rows, _row("d", "documents", headers=[])])  # its headers are no object
    assert len(sent.refused) == 51
    labels = {sample.labels["topic"] for sample in metrics.OUTBOX_FAILED.collect()[0].samples}
    assert {"other", "documents"} <= labels
    assert not [label for label in labels if label.startswith("topic ")]
