"""The committed offset: the lowest record that is not done, whatever the order of endings and the gaps."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from offsetzero.consumers.record import OwnedPartition, Record
from support import machine


class OffsetsMachine(RuleBasedStateMachine):
    """Against a naive model: every delivered offset in a dictionary, searched from the start each time."""

    def __init__(self) -> None:
        super().__init__()
        self.owned = OwnedPartition("documents", "id", 0)
        self.records: dict[int, Record] = {}
        self.end = 0
        self.last = 0

    @rule(gap=st.integers(0, 5))
    def deliver(self, gap: int) -> None:
        offset = self.end + gap  # compaction and aborted transactions leave gaps
        record = Record(self.owned, offset, b"k", b"v", [], 0)
        self.owned.deliver(record)
        self.records[offset] = record
        self.end = offset + 1

    @rule(limit=st.integers(0, 3))
    def forget_done(self, limit: int) -> None:
        self.owned.committable()
        before = self.owned.begun(())
        self.owned.forget_done(limit)
        assert self.owned.begun(()) == before

    @rule(markers=st.integers(0, 3))
    def reach_the_end(self, markers: int) -> None:
        self.end += markers
        self.owned.reach(self.end)

    @precondition(lambda self: any(not r.done for r in self.records.values()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from([o for o, r in self.records.items() if not r.done]))
        self.records[offset].done = True

    @rule(data=st.data())
    def ask_what_follows(self, data: st.DataObject) -> None:
        """Once some are done besides, the position is where it was asked to be, or where it was before."""
        asked = data.draw(st.sets(st.sampled_from(sorted(self.records))) if self.records else st.just(set()))
        ending = [self.records[offset] for offset in asked]
        before, after = self.owned.committable(), self.owned.position_after(set(ending))
        lowest = min((o for o, one in self.records.items() if not one.done and o not in asked), default=self.end)
        assert after == (None if before is None or lowest == before else lowest)

    @rule()
    def come_back(self) -> None:
        """The partition is revoked and assigned again: it is read on from what was committed."""
        committed = self.owned.committable()
        self.owned.revoke()
        assert (self.owned.committable(), self.owned.undone) == (None, 0)
        read_again = [offset for offset in self.records if committed is not None and offset >= committed]
        self.owned = OwnedPartition("documents", "id", 0)
        if committed is not None:
            self.owned.begin(committed, committed)
            self.end = committed
        stale, self.records = self.records, {}
        for offset in read_again:
            self.records[offset] = Record(self.owned, offset, b"k", b"v", [], 0)
            self.owned.deliver(self.records[offset])
            self.end = offset + 1
        for record in stale.values():
            record.done = True  # late, and of no interest any more

    @invariant()
    def commits_the_lowest_undone_offset(self) -> None:
        undone = [offset for offset, record in self.records.items() if not record.done]
        expected = min(undone) if undone else (self.end if self.owned.position is not None else None)
        got = self.owned.committable()
        assert got == expected
        assert self.owned.undone >= len(undone)
        head = self.owned.head()
        assert (head.offset if head is not None else None) == min(undone, default=None)
        done = [offset for offset in self.records if offset not in undone and offset >= (got or 0)]
        assert self.owned.begun(()) == max(done, default=-1)
        if got is not None:
            assert got >= self.last, "a commit never goes back"
            self.last = got


TestOffsets = OffsetsMachine.TestCase
TestOffsets.settings = machine()


def test_nothing_delivered_commits_nothing() -> None:
    assert OwnedPartition("documents", "id", 0).committable() is None


def test_a_late_ending_changes_nothing_after_the_partition_came_back() -> None:
    """confluentinc/parallel-consumer#875: a stale entry displaced a fresh record after reassignment."""
    old = OwnedPartition("documents", "id", 0)
    stale = Record(old, 7, b"k", b"v", [], 0)
    old.deliver(stale)
    old.revoke()
    new = OwnedPartition("documents", "id", 0)
    new.deliver(Record(new, 7, b"k", b"v", [], 0))
    stale.done = True
    assert new.committable() == 7


def test_what_is_done_behind_a_record_that_waits_for_long_is_not_kept() -> None:
    owned = OwnedPartition("audit.retry-1m", "id", 0)
    for offset in range(10_000):
        record = Record(owned, offset, b"k", b"v", [], 0)
        owned.deliver(record)
        record.done = offset > 0
        owned.forget_done(100)
        assert owned.undone <= 101
    assert (owned.committable(), owned.begun(())) == (0, 9_999)
