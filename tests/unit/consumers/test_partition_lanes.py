"""Partitions in the order of their offsets: what is handed out is always what comes first, to one run at a time."""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.partition_lanes import PartitionLanes
from offsetzero.consumers.working.run import Ending, Run
from offsetzero.consumers.working.turns import AGAIN_SECONDS
from support import ManualClock


class PartitionLanesMachine(RuleBasedStateMachine):
    """Behind a dispatcher, against a naive model: for each partition the list of what is not done."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.dispatcher = Dispatcher(self.clock, PartitionLanes(), 5, whole=False)  # type: ignore[arg-type]
        self.partitions = [OwnedPartition("documents", "id", number) for number in range(3)]
        self.offsets = dict.fromkeys(range(3), 0)
        self.undone: dict[OwnedPartition, list[Record]] = defaultdict(list)
        self.held: dict[OwnedPartition, float] = {}
        self.run: Run | None = None

    @rule(number=st.integers(0, 2), count=st.integers(1, 4), step=st.integers(1, 3))
    def deliver(self, number: int, count: int, step: int) -> None:
        owned = self.partitions[number]
        records = []
        for _ in range(count):
            self.offsets[number] += step
            records.append(Record(owned, self.offsets[number], b"k", b"v", [], 0))
        self.undone[owned] += records
        self.dispatcher.add(records)

    @precondition(lambda self: self.run is None)
    @rule()
    def take(self) -> None:
        self.run = self.dispatcher.take_nowait(5)
        free = [owned for owned, records in self.undone.items() if records and owned not in self.held]
        assert bool(free) == (self.run is not None), "nothing is left lying"
        if self.run is None:
            return
        taken: dict[OwnedPartition, list[Record]] = defaultdict(list)
        for record in self.run.waiting:
            taken[record.owned].append(record)
        for owned, records in taken.items():
            assert owned not in self.held, "nothing overtakes what runs again later"
            assert records == self.undone[owned][: len(records)]

    @precondition(lambda self: self.run is not None)
    @rule(begun=st.integers(0, 5), done=st.integers(0, 5))
    def end(self, begun: int, done: int) -> None:
        """Of the run the first `begun` are worked on; of each partition the first `done` get through."""
        run, self.run = self.run, None
        assert run is not None
        records: list[Record] = []
        while len(records) < begun and (record := run.begin(tuple(records))) is not None:
            records.append(record)
        passed: dict[OwnedPartition, int] = defaultdict(int)
        for record in records:
            passed[record.owned] += 1
            is_done = passed[record.owned] <= done
            run.ended.append((record, Ending.DONE if is_done else Ending.AGAIN))
            if is_done:
                assert self.undone[record.owned].pop(0) is record
            else:
                self.held.setdefault(record.owned, self.clock.monotonic() + AGAIN_SECONDS)
        self.dispatcher.end((run,))

    @rule()
    def wait(self) -> None:
        self.clock.advance(AGAIN_SECONDS)
        self.dispatcher.tick()
        self.held = {owned: due for owned, due in self.held.items() if due > self.clock.monotonic()}

    @precondition(lambda self: self.run is None)
    @rule(number=st.integers(0, 2))
    def revoke(self, number: int) -> None:
        owned = self.partitions[number]
        owned.revoke()
        self.dispatcher.purge()
        self.undone.pop(owned, None)
        self.held.pop(owned, None)
        self.partitions[number] = OwnedPartition("documents", "id", number)

    @invariant()
    def what_is_in_flight_is_counted(self) -> None:
        assert self.dispatcher.in_flight == sum(len(records) for records in self.undone.values())


TestPartitionLanes = PartitionLanesMachine.TestCase
TestPartitionLanes.settings = settings(stateful_step_count=40)
