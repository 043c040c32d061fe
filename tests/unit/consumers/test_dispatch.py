"""What may run: one record of a key at a time, in order; many keys at once; due times kept."""

import threading
from collections import defaultdict

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from unit.consumers.taking import end, finish, take

from offsetzero.clock import SYSTEM
from offsetzero.consumers.record import OVERHEAD, OwnedPartition, Record
from offsetzero.consumers.working.dispatch import HELD_UP_SECONDS, Dispatcher, Room
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.run import Ending, Run
from offsetzero.consumers.working.turns import AGAIN_SECONDS
from support import ManualClock, machine

KEYS = [b"a", b"b", b"c", None]
ENDINGS = [Ending.DONE, Ending.LEFT, Ending.AGAIN]  # what is moved to retry topics, and behind that: test_order


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
    @rule(data=st.data(), seconds=st.integers(0, 5))
    def postpone(self, data: st.DataObject, seconds: int) -> None:
        """Some know of a time before which a next try is of no use."""
        record = data.draw(st.sampled_from(self.running))
        self.running.remove(record)
        record.again_at = self.clock.monotonic() + seconds
        end(self.dispatcher, record, Ending.AGAIN)
        if record.owned.active:
            self.held.append((self.clock.monotonic() + max(AGAIN_SECONDS, seconds), record))

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
TestDispatch.settings = machine()


class RunsMachine(RuleBasedStateMachine):
    """Workers that take runs of many records, end them piece by piece, are held up, and lose partitions meanwhile.

    Nothing may be lost between lanes, runs and due times, and no record is begun before an earlier one of its key has
    ended. With a `batch` a run is worked on in one call.
    """

    @initialize(batch=st.sampled_from([0, 2, 3]))
    def make(self, batch: int) -> None:
        self.batch = batch
        self.clock = ManualClock()
        self.lanes = KeyLanes()
        self.dispatcher = Dispatcher(self.clock, self.lanes, batch)
        self.partitions = [OwnedPartition("documents", "id", number) for number in range(2)]
        self.added: list[Record] = []
        self.ended: set[Record] = set()
        self.runs: list[Run] = []

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), number=st.integers(0, 1))
    def add(self, keys: list[bytes | None], number: int) -> None:
        count = len(self.added)
        records = [Record(self.partitions[number], count + n, key, b"v", [], 0) for n, key in enumerate(keys)]
        self.dispatcher.add(records)
        self.added += records

    @rule(limit=st.integers(1, 3))
    def take(self, limit: int) -> None:
        run = self.dispatcher.take_nowait(self.batch or limit)
        if run is None:
            return
        self.runs.append(run)
        for record in run.begin_all():
            self.begins(record, run)

    @precondition(lambda self: self.runs and not self.batch)
    @rule(data=st.data(), ending=st.sampled_from(ENDINGS))
    def work(self, data: st.DataObject, ending: Ending) -> None:
        """A worker begins the next record of its run and ends it; when none is left, it ends the run."""
        run = data.draw(st.sampled_from(self.runs))
        record = run.begin()
        if record is None:
            self.runs.remove(run)
            self.dispatcher.end([run])
            return
        self.begins(record, run)
        self.ends(run, record, ending)

    @precondition(lambda self: self.runs and self.batch)
    @rule(data=st.data())
    def work_on_all(self, data: st.DataObject) -> None:
        """A worker ends all of its run; what follows a record that must run again does so, too."""
        run = data.draw(st.sampled_from(self.runs))
        again: set[bytes | None] = set()
        for record in run.running:
            ending = Ending.AGAIN if record.key in again else data.draw(st.sampled_from(ENDINGS))
            if ending is Ending.AGAIN and record.key is not None:
                again.add(record.key)
            self.ends(run, record, ending)
        self.runs.remove(run)
        self.dispatcher.end([run])

    @rule(seconds=st.sampled_from([0.0, HELD_UP_SECONDS * 2, AGAIN_SECONDS]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.dispatcher.tick()

    @rule(number=st.integers(0, 1))
    def revoke(self, number: int) -> None:
        self.partitions[number].revoke()
        self.partitions[number] = OwnedPartition("documents", "id", number)
        self.dispatcher.purge()

    def begins(self, record: Record, run: Run) -> None:
        assert record.owned.active
        for other in self.added:
            if other is record:
                return
            together = self.batch and other in run.running
            if other.key == record.key is not None and other.owned.active:
                assert together or other in self.ended, "an earlier record of the key has not ended"

    def ends(self, run: Run, record: Record, ending: Ending) -> None:
        run.ended.append((record, ending))
        if ending is not Ending.AGAIN:
            self.ended.add(record)

    @invariant()
    def what_is_in_flight_is_somewhere(self) -> None:
        if not hasattr(self, "runs"):
            return
        found = {*self.lanes._ready, *(one for _, _, one, _ in self.dispatcher._later._heap)}
        found.update(*self.lanes._behind.values())
        for run in self.runs:
            running = run.running if self.batch else ()  # alone, it is in `ended` when a rule is over
            found.update(run.waiting, running, (one for one, _ in run.ended))
        assert self.dispatcher.in_flight == len(found)
        assert all(one in found or one in self.ended for one in self.added if one.owned.active), "a record is lost"

    def teardown(self) -> None:
        """Whatever happened: all that is there gets its turn."""
        if not hasattr(self, "runs"):
            return
        for run in self.runs:
            for record in run.running if self.batch else ():
                self.ends(run, record, Ending.DONE)
        self.dispatcher.end(self.runs)
        self.clock.advance(AGAIN_SECONDS)
        self.dispatcher.tick()
        while (run := self.dispatcher.take_nowait(self.batch or 1)) is not None:
            for record in run.begin_all() if self.batch else [run.begin()]:
                assert record is not None
                self.ends(run, record, Ending.DONE)
            self.dispatcher.end([run])
        assert self.dispatcher.has_drained(0, 0)
        assert all(one in self.ended for one in self.added if one.owned.active)


TestRuns = RunsMachine.TestCase
TestRuns.settings = machine()


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
    assert dispatcher.wait_for_room(Room(10, 10_000), 1, 0) == 8
    assert dispatcher.wait_for_room(Room(2, 10_000), 1, 0.01) == 0
    assert dispatcher.wait_for_room(Room(10, 2 * OVERHEAD + 150), 1, 0.01) == 0
    taken = take(dispatcher)
    assert taken is not None
    finish(dispatcher, taken, done=True)
    assert dispatcher.wait_for_room(Room(2, 2 * OVERHEAD + 150), 1, 0) == 1
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


def suspects(count: int) -> list[Record]:
    """Records of a partition that a member has died with, each of another key."""
    suspected = OwnedPartition("documents", "id", 0)
    suspected.suspects_end = count
    return [Record(suspected, number, b"%d" % number, b"v", [], 0) for number in range(count)]


def find_marked(dispatcher: Dispatcher, record: Record | None) -> None:
    """As a worker does that finds the mark of a member which has died."""
    assert record is not None
    record.lone = True
    end(dispatcher, record, Ending.ALONE)


def test_suspects_run_side_by_side_and_those_that_are_found_marked_while_nothing_else_does() -> None:
    dispatcher = Dispatcher(ManualClock())
    dispatcher.add(suspects(5))
    running = [take(dispatcher), take(dispatcher), take(dispatcher)]
    find_marked(dispatcher, running[1])
    assert dispatcher.take(0.0) is None, "what was begun before ends first"
    find_marked(dispatcher, running[0])
    assert running[2] is not None
    finish(dispatcher, running[2], done=True)
    for number in (1, 0):
        alone = take(dispatcher)
        assert alone is not None
        assert (alone.offset, alone.is_suspect) == (number, True)
        assert dispatcher.take(0.0) is None
        finish(dispatcher, alone, done=number == 0)
    after = [take(dispatcher), take(dispatcher)]
    assert [record and record.offset for record in after] == [3, 4], "nothing found is left"


def test_one_that_was_found_marked_and_waits_for_the_database_runs_alone_again_until_its_mark_is_closed() -> None:
    clock = ManualClock()
    dispatcher = Dispatcher(clock)
    dispatcher.add(suspects(2))
    find_marked(dispatcher, take(dispatcher))
    for _ in range(2):
        alone = take(dispatcher)
        assert alone is not None
        assert (alone.offset, take(dispatcher)) == (0, None)
        end(dispatcher, alone, Ending.AGAIN)
        other = take(dispatcher)
        assert other is not None, "it need not wait meanwhile"
        end(dispatcher, other, Ending.AGAIN)
        clock.advance(AGAIN_SECONDS)
        dispatcher.tick()
    alone.clear()
    assert {record and record.offset for record in (take(dispatcher), take(dispatcher))} == {0, 1}


def test_one_that_was_found_marked_and_is_revoked_holds_nobody_up() -> None:
    dispatcher = Dispatcher(ManualClock())
    dispatcher.add([*suspects(1), Record(OwnedPartition("documents", "id", 1), 0, b"a", b"v", [], 0)])
    found, other = take(dispatcher), take(dispatcher)
    find_marked(dispatcher, found)
    assert found is not None
    found.owned.revoke()
    dispatcher.purge()
    assert other is not None
    finish(dispatcher, other, done=True)
    dispatcher.add([Record(other.owned, 1, b"a", b"v", [], 0)])
    assert take(dispatcher) is not None
    assert dispatcher.in_flight == 1


def test_one_that_was_found_marked_is_not_begun_when_the_member_winds_down_nor_is_what_is_behind_it() -> None:
    dispatcher = Dispatcher(ManualClock())
    suspected = OwnedPartition("documents", "id", 0)
    suspected.suspects_end = 3
    for number, key in enumerate((b"a", b"a", b"b")):
        suspected.deliver(record := Record(suspected, number, key, b"v", [], 0))
        dispatcher.add([record])
    find_marked(dispatcher, take(dispatcher))
    dispatcher.wind_down([suspected])
    assert take(dispatcher) is None
    assert not dispatcher.has_begun


def test_with_suspects_a_batch_has_one_record() -> None:
    dispatcher = Dispatcher(ManualClock(), batch=10)
    dispatcher.add([*suspects(2), Record(OwnedPartition("documents", "id", 1), 0, b"a", b"v", [], 0)])
    runs = [dispatcher.take_nowait(10) for _ in range(3)]
    assert [run and run.count for run in runs] == [1, 1, 1]


def test_while_others_are_ready_room_for_a_few_is_waited_for() -> None:
    dispatcher = Dispatcher(SYSTEM)
    owned = OwnedPartition("documents", "id", 0)
    dispatcher.add(Record(owned, number, b"%d" % number, b"v", [], 0) for number in range(4))
    begun = SYSTEM.monotonic()
    assert dispatcher.wait_for_room(Room(5, 10_000), 2, 0.05) == 1
    assert SYSTEM.monotonic() - begun >= 0.05, "room for two was waited for"
    for _ in range(4):
        take(dispatcher)
    begun = SYSTEM.monotonic()
    assert dispatcher.wait_for_room(Room(5, 10_000), 2, 10.0) == 1
    assert SYSTEM.monotonic() - begun < 5, "nothing is ready any more: whatever comes next is of use"
