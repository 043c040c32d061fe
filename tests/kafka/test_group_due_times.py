"""When delayed records run on the real broker: never before they are due, and hardly after, whatever clocks show."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka.conftest import RunningGroup, uploaded

from offsetzero import Retry, Throttled, Transient
from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.publisher import Publisher
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.policy import JITTER, Tier
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.topics import cluster, reading
from offsetzero.topics.names import Names
from support import wait_until, within

Running = Callable[..., contextlib.AbstractContextManager[RunningGroup]]
COUNT = 1_000
LATE = 0.25
HOUR = 3600.0
pytestmark = pytest.mark.timed


class SteppedClock:
    """The clock of this machine, with a wall that is set forward or back."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.ahead = seconds

    def now(self) -> datetime:
        return SYSTEM.now() + timedelta(seconds=self.ahead)

    def now_ms(self) -> int:
        return SYSTEM.now_ms() + round(self.ahead * 1000)

    def monotonic(self) -> float:
        return SYSTEM.monotonic()

    def wait(self, condition: threading.Condition, until: Callable[[], object], seconds: float | None = None) -> bool:
        return SYSTEM.wait(condition, until, seconds)


@contextlib.contextmanager
def member(group: ConsumerGroup, settings: Settings, clock: SteppedClock) -> Iterator[RunningGroup]:
    made = RunningGroup(group, settings, clock=clock)
    try:
        yield made
    finally:
        made.stop()


def dues(settings: Settings, tier: str, count: int) -> dict[int, int]:
    """The due times of the copies in a tier, by the partition and offset of their origins, as one number."""
    topic = Names(settings.kafka.namespace).topic(f"audit.{tier}")
    consumer = Consumer({**settings.kafka.client_config(), "group.id": "x", "enable.auto.commit": False})
    numbers = range(cluster.partition_count(settings, ["documents"]))
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
    found: dict[int, int] = {}

    def read() -> bool:
        for message in consumer.consume(500, 0.2):
            here = retry_headers.Origin("", "", message.partition() or 0, 0)
            hop = retry_headers.read(reading.of_message(message).headers, here, message.timestamp()[1])
            found[place(hop.origin.partition, hop.origin.offset)] = hop.due_ms
        return len(found) >= count

    try:
        wait_until(read, what=f"{count} copies")
    finally:
        consumer.close()
    return found


def place(partition: int, offset: int) -> int:
    return partition << 40 | offset


def test_a_thousand_delayed_records_run_when_they_are_due(settings: Settings, running: Running) -> None:
    audit = ConsumerGroup("audit", tiers=[Tier("retry-5s", 5.0)], database=False)
    ran: dict[int, int] = {}

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Transient("busy")
        now = SYSTEM.now_ms()
        assert ran.setdefault(place(ctx.record.partition, ctx.record.offset), now) == now, "once"

    with Publisher(settings) as publisher:
        for _ in range(COUNT):
            publisher.publish(uploaded())
    with running(audit):
        wait_until(lambda: len(ran) == COUNT, 60, what="all have run")
    due = dues(settings, "retry-5s", COUNT)
    late = sorted((ran[where] - due[where]) / 1000 for where in ran)
    assert late[0] >= 0, "early"
    within(LATE, late[COUNT * 99 // 100], f"99 of 100 were late by (the last by {late[-1]:.2f} s)")


def test_each_record_waits_for_the_delay_of_its_own_tier(settings: Settings, running: Running) -> None:
    """spring-kafka#1766, spring-kafka#1716: another tier's delay, and 1 s that became 10.5 s. celery/kombu#337: a
    job whose delay was longer than its lease ran again and again."""
    tiers = [Tier("retry-1s", 1.0), Tier("retry-3s", 3.0), Tier("retry-30s", 30.0)]
    audit = ConsumerGroup("audit", tiers=tiers, database=False, per_key=4)
    ran: dict[str, list[float]] = defaultdict(list)

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        ran[event.name].append(SYSTEM.monotonic())
        if event.name == "long":
            raise Transient("busy", retry_after=HOUR)
        if event.name == "asked" and ctx.attempt == 1:
            raise Throttled("throttled", retry_after=2)
        if event.name == "short" and ctx.attempt < 3:
            raise Transient("busy")

    document = uploaded().document_id  # one partition: the short ones come behind a long one in each tier
    with Publisher(settings) as publisher:
        for name in ("long", "short", "asked"):
            publisher.publish(uploaded(document, name=name))
    with running(audit):
        wait_until(lambda: len(ran["short"]) == 3 and len(ran["asked"]) == 2, what="the short ones")
        assert len(ran["long"]) == 1
    first, second, third = ran["short"]
    for waited, delay in ((second - first, 1.0), (third - second, 3.0), (ran["asked"][1] - ran["asked"][0], 3.0)):
        assert delay <= waited
        within(delay * (1 + JITTER) + LATE, waited, f"after {delay:g} s")


def test_a_long_wait_holds_up_nobody_where_tiers_are_read_in_order(settings: Settings, running: Running) -> None:
    """It waits in the last tier again and again, never too short, and loses no attempt."""
    audit = ConsumerGroup("audit", tiers=[Tier("retry-2s", 2.0)], transactional=True)
    ran: dict[str, list[tuple[int, float]]] = defaultdict(list)

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        ran[event.name].append((ctx.attempt, SYSTEM.monotonic()))
        if ctx.attempt == 1:
            raise Retry(after={"hour": HOUR, "long": 7, "short": None}[event.name])

    document = uploaded().document_id  # one partition
    with Publisher(settings) as publisher:
        for name in ("hour", "long", "short"):
            publisher.publish(uploaded(document, name=name))
    with running(audit):
        wait_until(lambda: len(ran["long"]) == len(ran["short"]) == 2, what="the long wait is over")
        assert len(ran["hour"]) == 1
    for name, delay in (("long", 7.0), ("short", 2.0)):
        (first, began), (second, again) = ran[name]
        assert (first, second) == (1, 2)
        assert delay - 0.01 <= again - began
        within(delay + 2.0, again - began, f"{name} began again after")


@pytest.mark.parametrize("ahead", [HOUR, -HOUR, 0.5])
def test_a_member_whose_clock_is_wrong_shifts_a_record_by_no_more_than_that(
    settings: Settings, topics: None, ahead: float
) -> None:
    """And no copy waits for longer than was meant once it has been seen."""
    delay = 4.0
    audit = ConsumerGroup("audit", tiers=[Tier("retry-4s", delay)], database=False)
    ran: list[float] = []

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        ran.append(SYSTEM.monotonic())
        if ctx.attempt == 1:
            raise Transient("busy")

    with Publisher(settings) as publisher:
        publisher.publish(uploaded()).result(10)
    with member(audit, settings, SteppedClock(ahead)):
        dues(settings, "retry-4s", 1)
    with member(audit, settings, SteppedClock()) as second:
        wait_until(lambda: second.runtime.health().ready, what="the second member has its partitions")
        seen = SYSTEM.monotonic()
        wait_until(lambda: len(ran) == 2, what="the second attempt")
    within(delay * (1 + JITTER) + 1.0, ran[1] - seen, "it waits as long as was meant, from when it was seen")
    assert ran[1] - ran[0] >= delay - max(0.0, -ahead), "early by no more than the clock was behind"


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_clock_that_steps_while_records_wait_changes_nothing(settings: Settings, topics: None, step: float) -> None:
    delay = 4.0
    audit = ConsumerGroup("audit", tiers=[Tier("retry-4s", delay)], database=False)
    ran: list[float] = []

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        ran.append(SYSTEM.monotonic())
        if ctx.attempt == 1:
            raise Transient("busy")

    clock = SteppedClock()
    with Publisher(settings) as publisher:
        publisher.publish(uploaded()).result(10)
    with member(audit, settings, clock) as one:
        wait_until(lambda: one.runtime.health().body["handlers"]["waiting"] == 1, what="the copy waits")
        clock.ahead = step
        wait_until(lambda: len(ran) == 2, what="the second attempt")
    assert delay <= ran[1] - ran[0]
    within(delay * (1 + JITTER) + 2 * LATE, ran[1] - ran[0], "it began again after")
