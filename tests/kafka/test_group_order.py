"""The order of keys on the real broker: through retries and rebalances, and behind dead letters that hold a key up."""

import contextlib
import gc
import itertools
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka.conftest import RunningGroup, await_dead_letters, await_effects, effects, uploaded

from offsetzero import Transient, metrics
from offsetzero.cli import collector
from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import BatchContext, Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers import records
from offsetzero.producers.log import LogProducer
from offsetzero.producers.publisher import Publisher
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.dead_letters import DeadLetter
from offsetzero.retry.headers import Hop, Origin
from offsetzero.retry.policy import Tier
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import holds, processed
from offsetzero.store.holds import Hold
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import run
from offsetzero.topics import cluster, lag
from offsetzero.topics.catalogue import group_topics
from offsetzero.topics.names import Names
from support import IS_NIGHT, wait_until, within

Running = Callable[..., contextlib.AbstractContextManager[Any]]
EVENTS, KEYS, SECONDS = (100_000, 1_000, 900.0) if IS_NIGHT else (2_000, 50, 120.0)
REBALANCES = 200 if IS_NIGHT else 5
SLOWEST = 120 if IS_NIGHT else 30
WAITS_LONG = IS_NIGHT or "OZ_TEST_AMOUNTS" in os.environ
WAITING = 1_000_000 if WAITS_LONG else 20_000
TIERS = [Tier("retry-1m", 0.2), Tier("retry-10m", 0.5)]


def audit_group(**options: Any) -> ConsumerGroup:
    """An event's name says how many attempts of it fail; effects are plain inserts, so that doubles would show."""
    audit = ConsumerGroup("audit", **{"tiers": TIERS, **options})

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        number, times = event.name.split(":")
        if ctx.attempt <= int(times) and ctx.handled.hop.redrive_no == 0:  # type: ignore[attr-defined]
            raise Transient("busy")
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, number, ctx.attempt),
        )

    return audit


def inversions(database: psycopg.Connection) -> list[tuple[UUID, list[int]]]:
    """The keys whose effects are not in the order of their events, with the effects."""
    by_key: dict[UUID, list[int]] = defaultdict(list)
    for key, number, _ in effects(database):
        by_key[key].append(int(number))
    return [(key, numbers) for key, numbers in by_key.items() if numbers != sorted(set(numbers))]


@contextlib.contextmanager
def rebalancing(settings: Settings) -> Iterator[list[int]]:
    """A second member comes or goes every second; the list has an entry for each."""
    over, changes = threading.Event(), list[int]()

    def change() -> None:
        while not over.wait(1.0):
            member = RunningGroup(audit_group(), settings)
            changes.append(1)
            over.wait(1.0)
            member.stop()
            changes.append(-1)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield changes
    finally:
        over.set()
        thread.join(60)


def test_effects_of_a_key_keep_their_order_through_failures_and_rebalances(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """mopl#266: A's backoff let B pass."""
    dice = random.Random(6)
    keys = [uuid4() for _ in range(KEYS)]
    troubled = set(keys[: KEYS // 10])
    fail, applied = 0, 0
    with Publisher(settings) as publisher:
        for number in range(EVENTS):
            key = dice.choice(keys)
            times = dice.choice([1, 2, 3]) if key in troubled and dice.random() < 0.2 else 0
            fail, applied = fail + (times > 2), applied + (times <= 2)
            publisher.publish(uploaded(key, name=f"{number}:{times}"))
    with running(audit_group()), rebalancing(settings) as changes:
        wait_until(
            lambda: database.execute("SELECT count(*) FROM effects").fetchone() == (applied,),
            SECONDS,
            what=f"{applied} effects",
            interval=0.5,
        )
    print(f"{EVENTS} events, {fail} always fail, {len(changes)} changes of the membership")
    assert inversions(database) == []
    assert len(await_dead_letters(settings, "audit", fail)) == fail


def test_a_record_is_appended_once_to_be_parked_and_once_for_each_failure(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """Appended again while it waits, a key with many records would take appends of the square of their number."""
    key = uuid4()
    with Publisher(settings) as publisher:
        for number in range(SLOWEST):
            publisher.publish(uploaded(key, name=f"{number}:3"))
        publisher.publish(uploaded(key, name=f"{SLOWEST}:0"))
    with running(audit_group(tiers=[Tier("retry-1m", 0.02), Tier("retry-10m", 0.03)])):
        await_effects(database, 1, SECONDS)
        letters = await_dead_letters(settings, "audit", SLOWEST)
    retries = lag.group_offsets(settings, "audit", ["audit.retry-1m", "audit.retry-10m"])
    appends = sum(one.high for one in retries)
    print(f"{SLOWEST} records that fail three times: {appends} appends to tiers, {len(letters)} dead letters")
    assert len(letters) == SLOWEST
    assert appends <= 3 * SLOWEST, "parked once, or failed first, and then two failures of each"
    assert appends + len(letters) <= 500 * SLOWEST / 120


@pytest.mark.timed
def test_a_rebalance_inside_a_delay_makes_nothing_late(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """spring-kafka#2525: after a rebalance a partition of a retry topic stayed paused."""
    delay, late = 1.0, list[float]()
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}

    def group() -> ConsumerGroup:
        audit = ConsumerGroup("audit", tiers=[Tier("retry-1m", delay)])

        @audit.handler(DocumentUploaded)
        def note(event: DocumentUploaded, ctx: Context) -> None:
            if ctx.attempt == 1:
                begun[event.name] = SYSTEM.monotonic()
                raise Transient("busy")
            ended[event.name] = SYSTEM.monotonic()

        return audit

    second: RunningGroup | None = None
    with running(group()), Publisher(settings) as publisher:
        for number in range(REBALANCES):
            name = str(number)
            publisher.publish(uploaded(name=name))
            wait_until(lambda name=name: name in begun, what="the first attempt")  # type: ignore[misc]
            if second is None:
                second = RunningGroup(group(), settings)
            else:
                second.stop()
                second = None
            wait_until(lambda name=name: name in ended, what="the second attempt")  # type: ignore[misc]
            late.append(ended[name] - begun[name] - delay)
        if second is not None:
            second.stop()
        wait_until(lambda: sum(one.lag for one in lag.group_offsets(settings, "audit")) == 0, what="lag 0")
        for reason in ("copies", "opening", "siblings", "waiting"):
            wait_until(lambda r=reason: metrics.PAUSED.labels("audit", r)._value.get() == 0, what="nothing is paused")  # type: ignore[misc]
    assert min(late) >= 0
    within(2.0 + 0.1 * delay, max(late), f"of {REBALANCES} rebalances one made a retry late by")


def wait_in_a_tier(settings: Settings, count: int) -> None:
    """Append copies of so many records of 1,000 keys, all due in an hour; their sources were read past them."""
    tier, due_ms = Names(settings.kafka.namespace).topic("audit.retry-1m"), SYSTEM.now_ms() + 3_600_000
    template = records.build(Codec(), uploaded(name="0:0"), {})
    origin = cluster.topic_ids(settings, ["documents"])["documents"]
    with LogProducer(settings) as producer:
        for number in range(count):
            hop = Hop(Origin(origin, "documents", number % 6, number), 2, 1, due_ms, timestamp_ms=due_ms)
            headers = retry_headers.write(template.headers, hop, None, "audit")
            key = b"key-%d" % (number % 1_000)
            producer.produce(tier, key=key, value=template.value, headers=headers, partition=number % 6)


@pytest.mark.timeout(900 if WAITS_LONG else 120)
def test_a_member_is_ready_soon_however_many_records_wait(
    settings: Settings, topics: None, database: psycopg.Connection
) -> None:
    cluster.ensure(settings, group_topics("audit", 6, [tier.name for tier in TIERS]))
    wait_in_a_tier(settings, WAITING)
    small = settings.groups.model_copy(update={"max_in_flight_bytes": 4_000_000})
    thresholds = gc.get_threshold()
    collector.spare()  # as `offsetzero groups run` does
    begun, computed = SYSTEM.monotonic(), time.process_time()
    member = RunningGroup(audit_group(), settings.model_copy(update={"groups": small}))

    def is_ready() -> bool:
        body = member.runtime.health().body
        sources = [one for one in body["partitions"] if one["topic"] == "documents"]
        return body["handlers"]["waiting"] == WAITING and bool(sources) and not any(one["pauses"] for one in sources)

    wait_until(is_ready, 300, what=f"{WAITING} records that wait", interval=0.2)
    seconds, computed = SYSTEM.monotonic() - begun, time.process_time() - computed
    member.stop()
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    print(f"{WAITING} waiting records: ready after {seconds:.1f} s, {computed:.1f} s of computing")
    assert computed <= 15 or not WAITS_LONG, "seconds of a machine that has nothing else to do"


def test_payloads_that_do_not_fit_into_memory_are_read_again(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    small = settings.groups.model_copy(update={"max_in_flight_bytes": 20_000})
    key = uuid4()
    with Publisher(settings) as publisher:
        for number in range(300):
            publisher.publish(uploaded(key, name=f"{number}:{int(number % 50 == 0)}"))
    with running(audit_group(), settings.model_copy(update={"groups": small})):
        await_effects(database, 300, 60)
    assert inversions(database) == []
    assert sum(one.lag for one in lag.group_offsets(settings, "audit")) == 0


def send_back(settings: Settings, letter: DeadLetter, *, discard: bool) -> None:
    """As `offsetzero dlq redrive` or `discard` does."""
    hop = retry_headers.redriven(letter.hop, uuid4(), discard=discard)
    with LogProducer(settings) as producer:
        producer.produce(
            Names(settings.kafka.namespace).topic("audit.redrive"),
            key=letter.key,
            value=letter.value,
            headers=retry_headers.write(letter.headers, hop, None, "audit"),
            partition=letter.hop.origin.partition,
        ).result(10)


@pytest.mark.parametrize("discard", [False, True])
def test_a_dead_letter_holds_up_its_key_until_an_operator_has_seen_to_it(
    settings: Settings, running: Running, database: psycopg.Connection, discard: bool
) -> None:
    """wolverine#3476: later messages of the key overtook the dead one."""
    held, other = uuid4(), uuid4()
    group = audit_group(on_dead_letter="hold", tiers=[Tier("retry-1m", 0.1)])
    with Publisher(settings) as publisher:
        for number, times in enumerate((0, 2, 0, 0)):
            publisher.publish(uploaded(held, name=f"{number}:{times}"))
        publisher.publish(uploaded(other, name="9:0"))
    with running(group):
        [letter] = await_dead_letters(settings, "audit", 1)
        await_effects(database, 2)
    assert database.execute("SELECT group_name, partition, key, redrive_no FROM holds").fetchall() == [
        ("audit", letter.hop.origin.partition, str(held).encode(), 0)
    ]
    with Publisher(settings) as publisher:
        publisher.publish(uploaded(held, name="4:0"))
        publisher.publish(uploaded(other, name="10:0"))
    with running(group):
        await_effects(database, 3)
        assert {number for key, number, _ in effects(database) if key == held} == {"0"}, "it survives a restart"
        send_back(settings, letter, discard=discard)
        await_effects(database, 6 if discard else 7)
        with Publisher(settings) as publisher:
            publisher.publish(uploaded(held, name="5:0"))
        await_effects(database, 7 if discard else 8)
    numbers = [int(number) for key, number, _ in effects(database) if key == held]
    assert numbers == [number for number in range(6) if not (discard and number == 1)]
    assert database.execute("SELECT * FROM holds").fetchall() == []
    outcomes = database.execute(
        "SELECT redrive_no, outcome FROM processed_events WHERE event_id = %s ORDER BY redrive_no",
        (letter.meta.id if letter.meta is not None else "",),
    ).fetchall()
    assert outcomes == [(0, "dead-lettered"), (1, "discarded" if discard else "applied")]


@pytest.mark.parametrize("batch", [False, True])
def test_a_key_waits_for_a_dead_letter_that_its_former_member_still_wrote(
    settings: Settings, running: Running, database: psycopg.Connection, batch: bool
) -> None:
    """The hold is placed after this member has read them: it finds that record done, and the next must wait."""
    key, ids = uuid4(), [uuid7() for _ in range(3)]
    begun, gate = threading.Event(), threading.Event()
    group = ConsumerGroup("audit", on_dead_letter="hold", tiers=[Tier("retry-1m", 0.1)])

    def note(event: DocumentUploaded, ctx: Context | BatchContext) -> None:
        begun.set()
        assert gate.wait(60)
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, 1)", (event.document_id, event.name)
        )

    def note_all(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        for event in events:
            note(event, ctx)

    if batch:
        group.batch(DocumentUploaded)(note_all)
    else:
        group.handler(DocumentUploaded)(note)
    with Publisher(settings) as publisher:
        first = publisher.publish(uploaded(key, name="0"), event_id=ids[0], source="/test").result(30)
    with running(group), Publisher(settings) as publisher:
        assert begun.wait(60)
        dead = publisher.publish(uploaded(key, name="1"), event_id=ids[1], source="/test").result(30)
        publisher.publish(uploaded(key, name="2"), event_id=ids[2], source="/test").result(30)
        topic_id = cluster.topic_ids(settings, ["documents"])["documents"]
        run(database, holds.place("audit", Hold(topic_id, dead.partition, dead.offset, str(key).encode(), 0, 0)))
        run(database, processed.claim(EventIdentity("audit", "/test", str(ids[1])), Outcome.DEAD_LETTERED))
        gate.set()
        appended = "audit.retry-1m"
        wait_until(
            lambda: sum(one.high for one in lag.group_offsets(settings, "audit", [appended])) == 1, what="2 is parked"
        )
        wait_until(lambda: lag_of(settings, first.partition) == 0, what="the source is done")
    assert [number for _, number, _ in effects(database)] == ["0"]


def lag_of(settings: Settings, partition: int) -> int:
    """Of `documents`."""
    return sum(one.lag for one in lag.group_offsets(settings, "audit", ["documents"]) if one.partition == partition)


def test_without_order_the_others_of_the_key_go_on(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    key = uuid4()
    with Publisher(settings) as publisher:
        for number, times in enumerate((1, 0, 0)):
            publisher.publish(uploaded(key, name=f"{number}:{times}"))
    with running(audit_group(ordering="none", tiers=[Tier("retry-1m", 1.0)])):
        rows = await_effects(database, 3)
    assert [int(number) for _, number, _ in rows] == [1, 2, 0]
    appends = sum(one.high for one in lag.group_offsets(settings, "audit", ["audit.retry-1m"]))
    assert appends == 1, "nothing is parked"
    assert list(itertools.pairwise(row[2] for row in rows)) == [(1, 1), (1, 2)]
