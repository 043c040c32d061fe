"""What is fetched no more while enough is in flight, and is again."""

from typing import Any

from offsetzero.consumers.reading.pressure import Pressure
from offsetzero.consumers.record import OwnedPartition, PauseReason
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.settings import GroupSettings
from support import ManualClock


class Fetching:
    """What it is told."""

    def __init__(self) -> None:
        self.resumed: list[OwnedPartition] = []

    def end(self, _stay: OwnedPartition) -> int:
        return -1

    def pause(self, stays: list[OwnedPartition]) -> None:
        """It is fetched no more."""

    def resume(self, stays: list[tuple[OwnedPartition, int]]) -> None:
        self.resumed += [stay for stay, _ in stays]


def test_backfill_that_made_room_is_read_again_when_there_is_nothing_to_make_room_for() -> None:
    """The live partitions were revoked, or are not read yet: it stayed paused until they were back."""
    fetching: Any = Fetching()
    clock = ManualClock()
    dispatcher = Dispatcher(clock, KeyLanes(1, []), 0)
    pressure = Pressure(fetching, "audit", frozenset(["audit.redrive"]), dispatcher, GroupSettings(), clock)
    bulk, redrive = (OwnedPartition(topic, "id", 0) for topic in ("documents.bulk", "audit.redrive"))
    pressure.pause([bulk], PauseReason.LANE)
    assert pressure.room([bulk, redrive]) > 0
    assert not bulk.pauses
    assert fetching.resumed == [bulk]
