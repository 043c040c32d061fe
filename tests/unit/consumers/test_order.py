"""The order of keys across retries: parking, live copies, lowest origin first, nothing before the source has passed."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from unit.consumers.fake_client import FakeProducer
from unit.consumers.taking import finish, take

from offsetzero.consumers.order import Copy, Meeting, Order, Version
from offsetzero.consumers.reading.marks import read_mark
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import Refusals
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.parking import Parking
from offsetzero.consumers.working.turns import AGAIN_SECONDS
from offsetzero.errors import PublishError
from offsetzero.topics.names import Names
from support import ManualClock, machine

KEYS = [b"a", b"b", None]


class Member:
    """A dispatcher with one source partition and one retry partition, and the log that its appends go to."""

    def __init__(self, *, ordered: bool = True) -> None:
        self.clock = ManualClock()
        self.dispatcher = Dispatcher(self.clock, ordered=ordered)
        self.source = OwnedPartition("documents", "id", 0)
        self.source.begin(0, 0)
        self.source.order.is_complete = True
        self.retry = OwnedPartition("audit.retry-1m", "id-2", 0)
        self.retry.begin(0, 0)
        self.producer = FakeProducer()
        refusals = Refusals("audit", self.clock)
        self.parking = Parking("audit", "audit.retry-1m", self.producer, Names(""), self.clock, refusals)  # type: ignore[arg-type]
        self.log: list[tuple[bytes | None, int, Version, float]] = []  # key, origin, version, due

    def deliver(self, key: bytes | None) -> Record:
        record = Record(self.source, self.source.position or 0, key, b"v", [], 0)
        self.source.deliver(record)
        self.dispatcher.add([record])
        return record

    def read(self) -> Copy:
        """Read the next copy of the retry partition."""
        offset = self.retry.position or 0
        key, origin, version, due = self.log[offset]
        record = Record(self.retry, offset, key, b"v", [], 0)
        lane = self.dispatcher.lane(key, origin)
        copy = record.copy = Copy(self.source.order, lane, origin, version, self.retry, offset, due, record)
        self.retry.deliver(copy)
        self.dispatcher.take_in([copy])
        return copy

    def take(self) -> Record | None:
        return take(self.dispatcher)

    def move(self, record: Record, delay: float) -> Version:
        """It has failed, and its copy is acknowledged."""
        _, hop, _ = version_of(record)
        record.moved = (version_of(record)[0], hop + 1, round(self.clock.now_ms() + delay * 1000))
        self.log.append((record.key, origin_of(record), record.moved, self.clock.monotonic() + delay))
        finish(self.dispatcher, record, done=True)
        return record.moved

    def park(self) -> list[dict[str, Any]]:
        """Send what is to be parked; returns what was appended, none of it acknowledged."""
        before = len(self.producer.appended)
        self.dispatcher.park(self.parking)
        return [record for record, _ in self.producer.appended[before:]]

    def acknowledge(self) -> None:
        """All that was parked is in the log."""
        for record, delivery in self.producer.appended:
            if delivery.answer is None:
                self.land(record)
                delivery.answer = True
        self.dispatcher.park(self.parking)

    def land(self, record: dict[str, Any]) -> None:
        mark = read_mark(dict(record["headers"]), 0)
        assert mark is not None
        self.log.append((record["key"], mark.origin, mark.version, self.clock.monotonic()))


def origin_of(record: Record) -> int:
    return record.offset if record.copy is None else record.copy.origin


def version_of(record: Record) -> Version:
    return (0, 0, 0) if record.copy is None else record.copy.version


class OrderMachine(RuleBasedStateMachine):
    """Against a naive model: of each record that is not done, its key and the highest version that was heard of."""

    def __init__(self) -> None:
        super().__init__()
        self.member = Member()
        self.keys: dict[int, bytes | None] = {}
        self.open: dict[int, Version] = {}
        self.running: list[Record] = []
        self.parked: set[int] = set()
        self.noted = 0
        self.faults = 0

    @rule(key=st.sampled_from(KEYS))
    def deliver(self, key: bytes | None) -> None:
        record = self.member.deliver(key)
        self.keys[record.offset] = key
        self.open[record.offset] = (0, 0, 0)

    @rule()
    def take(self) -> None:
        record = self.member.take()
        if record is None:
            return
        origin, now = origin_of(record), self.member.clock.monotonic()
        assert self.open[origin] == version_of(record), "an older copy is not read"
        if record.key is not None:
            lower = [other for other in self.open if other < origin and self.keys[other] == record.key]
            assert not lower, "the lowest of its key first"
            assert all(other.key != record.key for other in self.running)
        assert record.copy is None or record.copy.due <= now, "never early"
        self.running.append(record)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.running))
        self.running.remove(record)
        if self.open[origin_of(record)] == version_of(record):
            del self.open[origin_of(record)]
        finish(self.member.dispatcher, record, done=True)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), delay=st.integers(0, 3), twin=st.booleans())
    def fail(self, data: st.DataObject, delay: int, twin: bool) -> None:
        """It is appended to a tier; `twin`: an append before that had no answer, and has landed all the same."""
        record = data.draw(st.sampled_from(self.running))
        self.running.remove(record)
        if twin:
            redrive_no, hop, _ = version_of(record)
            early = (redrive_no, hop + 1, self.member.clock.now_ms() - 1)
            self.member.log.append((record.key, origin_of(record), early, self.member.clock.monotonic()))
        self.open[origin_of(record)] = self.member.move(record, delay)

    @rule()
    def park(self) -> None:
        self.member.park()
        self._note()

    def _note(self) -> None:
        """What was appended since the last time."""
        for record, _ in self.member.producer.appended[self.noted :]:
            origin = read_mark(dict(record["headers"]), 0).origin  # type: ignore[union-attr]
            assert self.faults or origin not in self.parked, "one append for each parked record"
            self.parked.add(origin)
            self.open[origin] = (0, 1, 0)
        self.noted = len(self.member.producer.appended)

    @rule()
    def acknowledge(self) -> None:
        self.member.acknowledge()
        self._note()

    @rule(lands=st.booleans())
    def refuse(self, lands: bool) -> None:
        """Appends have no answer, and have landed or not: they are repeated."""
        for record, delivery in self.member.producer.appended:
            if delivery.answer is None:
                self.faults += 1
                if lands:
                    self.member.land(record)
                delivery.answer = PublishError("no answer")
        self.member.dispatcher.park(self.member.parking)
        self._note()

    @precondition(lambda self: (self.member.retry.position or 0) < len(self.member.log))
    @rule()
    def read(self) -> None:
        copy = self.member.read()
        if copy.origin not in self.open:  # a twin that comes when all is over: at least once, as the design has it
            self.open[copy.origin] = copy.version
        assert self.open[copy.origin] >= copy.version or self.keys[copy.origin] is None

    @rule(seconds=st.sampled_from([0.0, 1.0, AGAIN_SECONDS]))
    def pass_time(self, seconds: float) -> None:
        self.member.clock.advance(seconds)
        self.member.dispatcher.tick()

    @invariant()
    def nothing_is_committed_past_what_is_open(self) -> None:
        lowest = min((origin for origin, version in self.open.items() if version == (0, 0, 0)), default=None)
        assert lowest is None or (self.member.source.committable() or 0) <= lowest

    def teardown(self) -> None:
        """Whatever happened: all of it gets its turn."""
        for record in self.running:
            finish(self.member.dispatcher, record, done=True)
        self.running.clear()
        for _ in range(400):
            self.member.clock.advance(1)
            self.member.dispatcher.tick()
            self.member.park()
            self.member.acknowledge()
            while (self.member.retry.position or 0) < len(self.member.log):
                self.member.read()
            while (record := self.member.take()) is not None:
                finish(self.member.dispatcher, record, done=True)
            if not self.member.dispatcher.waiting and self.member.dispatcher.has_drained(0, 0):
                break
        assert self.member.dispatcher.waiting == 0
        assert self.member.dispatcher.waiting_bytes == 0
        assert self.member.source.committable() == self.member.source.position
        assert self.member.retry.committable() == self.member.retry.position


TestOrder = OrderMachine.TestCase
TestOrder.settings = machine()


def test_a_source_record_that_finds_its_key_waiting_is_parked_once_and_runs_after_it() -> None:
    """mopl#266: A's backoff let B pass."""
    member = Member()
    first, second, third = member.deliver(b"a"), member.deliver(b"a"), member.deliver(b"a")
    assert member.take() is first
    member.move(first, 5)
    assert member.take() is None
    one, _ = member.park()
    assert one["topic"] == "audit.retry-1m"
    written = {name: value for name, value in one["headers"] if name in ("oz_origin", "oz_attempt", "oz_hop", "oz_due")}
    assert written == {"oz_origin": b"id/0/1", "oz_attempt": b"1", "oz_hop": b"1", "oz_due": b"0"}
    assert member.source.committable() == 1, "not done before the broker has it"
    member.acknowledge()
    assert member.source.committable() == 3
    while len(member.log) > (member.retry.position or 0):
        member.read()
    assert member.take() is None, "the first is not due yet"
    member.clock.advance(5)
    member.dispatcher.tick()
    for offset in (0, 1, 2):
        taken = member.take()
        assert taken is not None
        assert origin_of(taken) == offset
        assert member.take() is None
        finish(member.dispatcher, taken, done=True)
    later = member.deliver(b"a")
    assert member.take() is later, "nothing of the key waits any more"
    assert (second.done, third.done) == (True, True)


def test_other_keys_go_on() -> None:
    member = Member()
    first, other, anonymous = member.deliver(b"a"), member.deliver(b"b"), member.deliver(None)
    taken = [member.take(), member.take(), member.take()]
    assert taken == [first, other, anonymous]
    member.move(first, 60)
    finish(member.dispatcher, other, done=True)
    assert member.take() is None
    more = member.deliver(b"b")
    assert member.take() is more


@pytest.mark.parametrize("ordered", [True, False])
def test_with_ordering_none_nothing_is_parked(ordered: bool) -> None:
    member = Member(ordered=ordered)
    first, second = member.deliver(b"a"), member.deliver(b"a")
    assert member.take() is first
    member.move(first, 60)
    assert (member.take() is second) is not ordered
    assert bool(member.park()) is ordered


def test_a_copy_waits_until_the_source_is_read_past_its_origin() -> None:
    member = Member()
    member.log.append((b"a", 1, (0, 1, 0), 0.0))
    member.read()
    assert member.take() is None
    first = member.deliver(b"a")
    assert member.take() is None, "parked: its key waits"
    member.park()
    member.acknowledge()
    member.read()
    taken = member.take()
    assert taken is not None
    assert origin_of(taken) == first.offset
    finish(member.dispatcher, taken, done=True)
    again = member.deliver(b"a")
    assert again.done, "its copy is known: it is finished unread"
    member.dispatcher.tick()
    taken = member.take()
    assert taken is not None
    assert origin_of(taken) == again.offset == 1


def test_copies_run_once_it_is_known_what_waited_at_the_assignment() -> None:
    member = Member()
    member.source.begin(9, 9)
    member.source.order.is_complete = False
    member.log += [(b"a", 5, (0, 1, 0), 0.0), (b"a", 3, (0, 2, 0), 0.0)]
    member.read()
    assert member.take() is None, "one of its key may still come"
    member.read()
    member.source.order.is_complete = True
    member.dispatcher.tick()
    taken = member.take()
    assert taken is not None
    assert origin_of(taken) == 3


def test_of_a_records_copies_only_the_latest_runs() -> None:
    order = Order(OwnedPartition("documents", "id", 0))
    older, newer = Copy(order, b"a", 5, (0, 1, 9), order.home, 0), Copy(order, b"a", 5, (0, 2, 3), order.home, 1)
    assert order.take_in(older) is None
    assert order.take_in(newer) is older
    assert order.take_in(older) is older
    assert order.first(b"a") is newer
    redriven = Copy(order, b"a", 5, (1, 1, 0), order.home, 2)
    assert order.take_in(redriven) is newer, "a higher redrive_no opens a record again"
    assert order.meets(b"a", 5) is Meeting.UNREAD
    assert order.meets(b"a", 6) is Meeting.PARK
    assert order.meets(b"b", 6) is Meeting.RUN


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"oz_hop": None},
        {"oz_origin": b"id/1/5"},
        {"oz_origin": b"id/0/minus"},
        {"oz_origin": b"5"},
        {"oz_due": b"-1"},
        {"oz_redrive_no": b"9" * 30},
    ],
)
def test_what_cannot_be_read_is_nobodys_copy(wrong: dict[str, bytes | None]) -> None:
    sound = {"oz_origin": b"id/0/5", "oz_attempt": b"2", "oz_hop": b"1", "oz_due": b"77", "oz_redrive_no": b"3"}
    assert read_mark(sound, 0) == (b"id", 5, (3, 1, 77))
    assert read_mark({**sound, **wrong} if wrong else {}, 0) is None
