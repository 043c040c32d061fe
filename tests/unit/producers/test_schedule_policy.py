"""What a schedule has to do now: also after a sleep, and with clocks that are set forward and back."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from offsetzero.errors import InvalidEvent
from offsetzero.producers.schedules.policy import LATE, CatchUp, Decision, decide
from offsetzero.producers.schedules.timetable import Timetable, timetable
from offsetzero.schemas.ids import time_of, uuid7_of

HOURLY = Timetable("0 * * * *", "UTC")
DAY = datetime(2026, 11, 30, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def at(hours: float, seconds: float = 0.0) -> datetime:
    return DAY + timedelta(hours=hours, seconds=seconds)


# policy, done until, now: the fire times, missed since, done until then, next
CASES = {
    "nothing is due": (CatchUp.ONCE, at(0), at(0.5), Decision((), None, at(0), at(1))),
    "one is due": (CatchUp.ONCE, at(0), at(1), Decision((at(1),), None, at(1), at(2))),
    "one is a little late": (CatchUp.SKIP, at(0), at(1, 59), Decision((at(1),), None, at(1, 59), at(2))),
    "one is too late, and skipped": (CatchUp.SKIP, at(0), at(1, 61), Decision((), at(1), at(1, 61), at(2))),
    "one is late, and made up for": (CatchUp.ONCE, at(0), at(1, 61), Decision((at(1),), None, at(1, 61), at(2))),
    "of several the last": (CatchUp.ONCE, at(0), at(3.5), Decision((at(3),), at(1), at(3.5), at(4))),
    "of several none": (CatchUp.SKIP, at(0), at(3.5), Decision((), at(1), at(3.5), at(4))),
    "of several the one that is on time": (CatchUp.SKIP, at(0), at(3), Decision((at(3),), at(1), at(3), at(4))),
    "all of several": (CatchUp.ALL, at(0), at(3.5), Decision((at(1), at(2), at(3)), None, at(3.5), at(4))),
    "all of too many are the last": (
        CatchUp.ALL,
        at(0),
        at(150),
        Decision(tuple(at(hour) for hour in range(51, 151)), at(1), at(150), at(151)),
    ),
    "the clock was set back": (CatchUp.ONCE, at(2), at(0.5), Decision((), None, at(0.5), at(1))),
}


@pytest.mark.parametrize(("catch_up", "done_until", "now", "expected"), CASES.values(), ids=list(CASES))
def test_what_is_to_be_done(catch_up: CatchUp, done_until: datetime, now: datetime, expected: Decision) -> None:
    assert decide(HOURLY, done_until, now, catch_up) == expected


class Clocks(RuleBasedStateMachine):
    """A scheduler that looks each minute, sleeps, and has a clock that somebody sets; what it claims is kept."""

    catch_up: CatchUp

    def __init__(self) -> None:
        super().__init__()
        self.now = self.done_until = self.highest = at(0)
        self.claimed: set[datetime] = set()
        self.table = HOURLY

    @initialize(minutes=st.sampled_from([7, 20, 60]))
    def begin(self, minutes: int) -> None:
        self.table = timetable(f"*/{minutes} * * * *" if minutes < 60 else "0 * * * *", "Europe/Berlin")

    @rule(minutes=st.integers(1, 10))
    def work(self, minutes: int) -> None:
        """Time passes, and it looks all the time: what comes then is done then, or was before."""
        begun = self.now
        for _ in range(minutes):
            self.now += MINUTE
            self.look()
        assert self.claimed.issuperset(self.table.newest(begun, self.now, 100)), "one was lost"

    @rule(seconds=st.integers(1, 9_000))
    def sleep(self, seconds: int) -> None:
        """Or the clock is set forward, which is the same: nobody can tell."""
        begun = self.now
        self.now += seconds * SECOND
        self.look()
        newest = self.table.newest(begun, self.now, 1)
        if self.catch_up is not CatchUp.SKIP or [one for one in newest if self.now - one < LATE]:
            assert self.claimed.issuperset(newest), "none of what was missed was done"

    @rule(seconds=st.integers(1, 9_000))
    def set_back(self, seconds: int) -> None:
        self.now = max(self.now - seconds * SECOND, at(0))
        before = set(self.claimed)
        self.look()
        assert self.claimed == before, "nothing is due because the clock was set back"

    def look(self) -> None:
        self.highest = max(self.highest, self.now)
        decision = decide(self.table, self.done_until, self.now, self.catch_up)
        assert all(fire_at <= self.now for fire_at in decision.fires), "it fires too early"
        self.claimed.update(decision.fires)  # as in the table: a second claim changes nothing
        self.done_until = decision.done_until
        assert decision.next_at == self.table.after(self.done_until)

    def teardown(self) -> None:
        if self.catch_up is CatchUp.ALL:
            assert self.claimed == set(self.table.newest(at(0), self.highest, 10_000)), "one was left out"


class ClocksOnce(Clocks):
    catch_up = CatchUp.ONCE


class ClocksSkip(Clocks):
    catch_up = CatchUp.SKIP


class ClocksAll(Clocks):
    catch_up = CatchUp.ALL


for _machine in (ClocksOnce, ClocksSkip, ClocksAll):
    _machine.TestCase.settings = settings(stateful_step_count=12)
TestOnce, TestSkip, TestAll = ClocksOnce.TestCase, ClocksSkip.TestCase, ClocksAll.TestCase


def test_the_id_of_an_event_follows_from_schedule_and_fire_time() -> None:
    one = uuid7_of(at(1), b"schedule")
    assert one == uuid7_of(at(1), b"schedule")
    assert len({one, uuid7_of(at(2), b"schedule"), uuid7_of(at(1), b"other"), uuid7_of(at(1), b"sched", b"ule")}) == 4
    assert (one.version, one.variant) == (7, "specified in RFC 4122")
    assert time_of(one) == at(1)
    assert uuid7_of(at(1), b"b") < uuid7_of(at(1) + timedelta(milliseconds=1), b"a"), "in the order of time"


def test_an_id_of_another_kind_says_no_time() -> None:
    with pytest.raises(InvalidEvent):
        time_of(uuid7_of(at(1)).__class__(int=4 << 76))
