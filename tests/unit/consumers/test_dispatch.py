"""What may run: one record of a key at a time, in order; many keys at once; due times kept."""

import threading
from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from unit.consumers.taking import end, finish, take

from offsetzero.clock import SYSTEM
from offsetzero.consumers.dispatch import AGAIN_SECONDS, Dispatcher
from offsetzero.consumers.record import OVERHEAD, OwnedPartition, Record
from offsetzero.consumers.run import Ending, Run
from support import ManualClock

KEYS = [b"a", b"b", b"c", None]


class DispatchMachine(RuleBasedStateMachine):
    """Against a naive model: a list for each key, of which only the first may be taken."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.dispatcher = Dispatcher(self.clock)
        self.partitions = [OwnedPartition("documents", "id", number) for number in range(2)]
        self.offsets = [0, 0]
        self.queued: dict[bytes | None, list[Record]] = defaultdict(list)
        self.later: list[tuple[float, Record]] = []
        self.held: list[tuple[float, Record]] = []
        self.running: list[Record] = []

    def record(self, key: bytes | None, number: int) -> Record:
        self.offsets[number] += 1
        return Record(self.partitions[number], self.offsets[number], key, b"v", [], 0)

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 1))
    def add(self, key: bytes | None, number: int) -> None:
        record = self.record(key, number)
        self.dispatcher.add([record])
        self.queued[key].append(record)

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 1), seconds=st.integers(1, 5))
    def add_later(self, key: bytes | None, number: int, seconds: int) -> None:
        record = self.record(key, number)
        self.dispatcher.add_later(record, self.clock.monotonic() + seconds)
        self.later.append((self.clock.monotonic() + seconds, record))

    @rule()
    def take(self) -> None:
        record = take(self.dispatcher)
        if record is None:
            assert not self.runnable()
            return
        assert record in self.runnable()
        self.queued[record.key].remove(record)
        self.running.append(record)

    def runnable(self) -> list[Record]:
        busy = {r.key for r in self.running} | {r.key for _, r in self.held}
        found: list[Record] = []
        for key, records in self.queued.items():
            if key is None:
                found += records
            elif records and key not in busy:
                found.append(records[0])
        return found

    @precondition(lambda self: self.running)
    @rule(data=st.data(), done=st.booleans())
    def finish(self, data: st.DataObject, done: bool) -> None:
        record = data.draw(st.sampled_from(self.running))
        self.running.remove(record)
        finish(self.dispatcher, record, done=done)
        assert record.done is done

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def postpone(self, data: st.DataObject) -> None:
        record = data.draw(st.sampled_from(self.running))
        self.running.remove(record)
        end(self.dispatcher, record, Ending.AGAIN)
        if record.owned.active:
            self.held.append((self.clock.monotonic() + AGAIN_SECONDS, record))

    @rule(seconds=st.integers(0, 4))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.dispatcher.tick()
        now = self.clock.monotonic()
        for _, record in sorted((item for item in self.held if item[0] <= now), key=lambda item: item[0]):
            self.queued[record.key].insert(0, record)
        self.held = [item for item in self.held if item[0] > now]
        for _, record in sorted((item for item in self.later if item[0] <= now), key=lambda item: item[0]):
            self.queued[record.key].append(record)
        self.later = [item for item in self.later if item[0] > now]

    @rule(number=st.integers(0, 1))
    def revoke(self, number: int) -> None:
        self.partitions[number].revoke()
        self.partitions[number] = OwnedPartition("documents", "id", number)
        self.dispatcher.purge()
        self.later = [item for item in self.later if item[1].owned.active]
        self.held = [item for item in self.held if item[1].owned.active]
        for records in self.queued.values():
            records[:] = [record for record in records if record.owned.active]

    @invariant()
    def one_of_a_key(self) -> None:
        keys = [record.key for record in self.running if record.key is not None]
        assert len(keys) == len(set(keys))
        assert self.dispatcher.waiting == len(self.later)


TestDispatch = DispatchMachine.TestCase
TestDispatch.settings = settings(max_examples=500, stateful_step_count=40, deadline=None)


def record(offset: int, key: bytes = b"k", size: int = 1) -> Record:
    return Record(OwnedPartition("documents", "id", 0), offset, key, b"v" * size, [], 0)


def test_take_waits_for_a_record_and_ends_with_close() -> None:
    dispatcher = Dispatcher(SYSTEM)
    taken: list[Run | None] = []
    thread = threading.Thread(target=lambda: taken.extend([dispatcher.take(), dispatcher.take()]))
    thread.start()
    dispatcher.add([record(1)])
    dispatcher.close()
    thread.join(5)
    assert not thread.is_alive()
    assert taken[-1] is None


def test_room_counts_records_and_bytes() -> None:
    dispatcher = Dispatcher(SYSTEM)
    dispatcher.add([record(1, b"a", 100), record(2, b"b", 100)])
    assert dispatcher.wait_for_room(10, 10_000, 0) == 8
    assert dispatcher.wait_for_room(2, 10_000, 0.01) == 0
    assert dispatcher.wait_for_room(10, 2 * OVERHEAD + 150, 0.01) == 0
    taken = take(dispatcher)
    assert taken is not None
    finish(dispatcher, taken, done=True)
    assert dispatcher.wait_for_room(2, 2 * OVERHEAD + 150, 0) == 1
    assert (taken.done, taken.value) == (True, None), "a done record holds no payload"


def test_wait_idle_names_what_still_runs() -> None:
    dispatcher = Dispatcher(SYSTEM)
    dispatcher.add([record(1)])
    taken = take(dispatcher)
    assert taken is not None
    assert dispatcher.wait_idle(0.01) == [taken]
    assert dispatcher.wait_idle(0.01, [OwnedPartition("documents", "id", 1)]) == []
    finish(dispatcher, taken, done=True)
    assert dispatcher.wait_idle(1) == []


def test_a_due_record_wakes_the_workers() -> None:
    clock = ManualClock()
    dispatcher = Dispatcher(clock)
    woken: list[bool] = []
    dispatcher.on_runnable(lambda: woken.append(True))
    dispatcher.add_later(record(1), clock.monotonic() + 2)
    assert dispatcher.tick() == pytest.approx(2)
    assert take(dispatcher) is None
    clock.advance(2)
    assert dispatcher.tick() is None
    assert woken
    assert take(dispatcher) is not None
