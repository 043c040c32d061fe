"""What is fetched no more while enough is in flight, and is again."""

from itertools import count
from typing import Any

from unit.consumers.taking import finish, take

from offsetzero.consumers.reading.pressure import BATCH, Pressure
from offsetzero.consumers.record import OwnedPartition, PauseReason, Record
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


def test_a_lane_for_backfill_has_little_in_flight_at_first_and_follows_the_pace_of_its_handlers() -> None:
    """A live record that comes behind what is taken at once waits until all of that is taken."""
    fetching: Any = Fetching()
    clock = ManualClock()
    dispatcher = Dispatcher(clock, KeyLanes(1, []), 0)
    limits = GroupSettings(max_in_flight=8 * BATCH)
    pressure = Pressure(fetching, "audit", frozenset(), dispatcher, limits, clock)
    bulk, live = (OwnedPartition(topic, "id", 0) for topic in ("documents.bulk", "documents"))
    offsets = count()

    def fill() -> None:
        """Deliver whatever there is room for, until backfill is paused."""
        while (room := min(pressure.room([bulk, live]), BATCH)) and not bulk.pauses:
            dispatcher.add([Record(bulk, next(offsets), None, b"v", [], 0) for _ in range(room)])

    def work_off(seconds: float) -> None:
        """So many seconds for half of what is in flight."""
        for _ in range(dispatcher.in_flight // 2 + 1):
            record = take(dispatcher)
            assert record is not None
            finish(dispatcher, record, done=True)
        clock.advance(seconds)

    in_flight = []
    for seconds in (0.1, 0.1, 0.1, 0.1, 5.0, 20.0, 20.0, 20.0, 20.0):
        fill()
        in_flight.append(dispatcher.in_flight)
        work_off(seconds)
    most = [BATCH * times for times in (1, 2, 4, 4, 4, 4, 2, 1, 1)]  # half of what may be in flight, at last
    assert all(limit // 2 - 1 <= one <= limit for one, limit in zip(in_flight, most, strict=True)), in_flight
