"""What the watch finds: stuck handlers, the head of line, partitions that do not move and nothing says why."""

from dataclasses import replace

import pytest

from offsetzero.consumers.watching.watch import Findings, Head, Part, Running, Watch
from offsetzero.consumers.working.run import Doing

STUCK, STALL = 60.0, 120.0
IDLE = Part("stay", "documents", 0, committed=5, position=5, end=5, undone=0, head=None)
PLACE = IDLE.place


def head(doing: Doing, offset: int = 5) -> Part:
    return replace(IDLE, position=9, undone=4, head=Head(offset, "k", doing))


class Time:
    """Looks at one partition once a second, as the polling thread does, and asks the cluster when that is wanted."""

    def __init__(self) -> None:
        self.watch = Watch(STUCK, STALL)
        self.now = 0.0
        self.end: int | None = 5  # what the cluster says; None when it does not answer
        self.turnovers = 0
        self.drains = True  # whether all that the client has fetched is handed out again and again

    def pass_(self, seconds: float, part: Part) -> Findings:
        for _ in range(round(seconds)):
            self.now += 1
            self.turnovers += self.drains
            found = self.watch.look(self.now, [], [part], self.turnovers)
            if found.suspects and self.now % 15 == 0:
                ends = None if self.end is None else dict.fromkeys(found.suspects, self.end)
                self.watch.answered(self.now, ends, self.turnovers)
        return found


@pytest.mark.parametrize("doing", [Doing.RUNNING, Doing.WAITING, Doing.QUEUED])
def test_a_head_of_line_with_a_reason_is_aged_and_never_stalled(doing: Doing) -> None:
    found = Time().pass_(10_000, head(doing))
    assert found.stalled == []
    assert found.still == {PLACE: 9_999}


def test_a_record_that_could_run_and_does_not_is_a_stall() -> None:
    time = Time()
    assert time.pass_(STALL, head(Doing.NOTHING)).stalled == []
    (said,) = time.pass_(1, head(Doing.NOTHING)).stalled
    assert "documents/0" in said
    assert "offset 5" in said


def test_what_is_read_behind_the_head_is_no_progress() -> None:
    time = Time()
    for position in range(10, 10 + int(STALL)):
        time.pass_(1, replace(head(Doing.NOTHING), position=position))
    assert time.pass_(1, head(Doing.NOTHING)).stalled


def test_progress_of_the_head_is() -> None:
    time = Time()
    for offset in range(1000):
        assert time.pass_(1, head(Doing.NOTHING, offset)).stalled == []


def test_a_log_that_goes_on_and_is_not_fetched_is_a_stall() -> None:
    """arroyo#304, quix-streams#1124. What was last fetched knows nothing of it."""
    time = Time()
    time.end = 6
    assert time.pass_(STALL, IDLE).stalled == []
    assert time.pass_(15, IDLE).stalled


def test_what_may_lie_behind_much_of_other_partitions_is_no_stall_until_all_of_that_is_handed_out() -> None:
    """The client's queue is one: with slow handlers a retry comes after minutes of what was fetched before it."""
    time = Time()
    time.end, time.drains = 6, False
    assert time.pass_(10_000, IDLE).stalled == []
    time.turnovers += 1
    assert time.pass_(100, IDLE).stalled == [], "it may have been fetched just now"
    time.turnovers += 1
    assert time.pass_(1, IDLE).stalled


def test_a_partition_without_more_is_idle_for_ever() -> None:
    assert Time().pass_(10_000, IDLE).stalled == []


def test_a_record_that_comes_after_a_long_idle_time_has_the_same_time_as_others() -> None:
    time = Time()
    time.pass_(1000, IDLE)
    time.end = 6
    assert time.pass_(STALL / 2, IDLE).stalled == []
    assert time.pass_(STALL, IDLE).stalled


def test_a_cluster_that_does_not_answer_explains_everything_and_has_time_to_come_back() -> None:
    time = Time()
    time.end = None
    assert time.pass_(10_000, IDLE).stalled == []
    time.end = 6
    assert time.pass_(STALL / 2 - 1, IDLE).stalled == [], "the client has to connect again"
    assert time.pass_(STALL, IDLE).stalled


def test_a_pause_with_a_recorded_reason_is_no_stall() -> None:
    time = Time()
    time.end = 6
    assert time.pass_(10_000, replace(IDLE, pauses=("back-pressure",))).stalled == []
    assert time.pass_(STALL, IDLE).stalled == [], "the time begins when the reason ends"
    assert time.pass_(STALL, IDLE).stalled


def test_a_new_stay_begins_anew() -> None:
    time = Time()
    time.pass_(STALL, head(Doing.NOTHING))
    found = time.pass_(1, replace(head(Doing.NOTHING), stay="another"))
    assert found.stalled == []
    assert found.still == {PLACE: 0.0}


def test_a_partition_that_was_never_read_counts_from_its_beginning() -> None:
    time = Time()
    time.end = 0
    never = replace(IDLE, position=None, committed=None, end=None)
    assert time.pass_(1000, never).stalled == []
    time.end = 3
    assert time.pass_(1000, never).stalled


def at(seconds: float, offset: int = 7, run: str = "run") -> Running:
    return Running(run, "documents", 1, offset, "k", seconds)


def test_a_stuck_handler_is_told_once_then_rarely_and_when_it_ends() -> None:
    watch = Watch(STUCK, STALL)
    told = []
    for age in range(1, 4000):
        found = watch.look(float(age), [at(float(age))], [], 0)
        told += [("begun", one.seconds) for one in found.begun] + [("told", one.seconds) for one in found.told]
        assert bool(found.stuck) == (age >= STUCK)
        assert not found.ended
    assert told == [
        ("begun", 60),
        ("told", 120),
        ("told", 240),
        ("told", 480),
        ("told", 960),
        ("told", 1920),
        ("told", 3840),
    ]
    found = watch.look(4000.0, [], [], 0)
    assert [one.seconds for one in found.ended] == [3999]
    assert not watch.look(4001.0, [], [], 0).ended


def test_the_next_record_of_the_same_worker_is_another_handling() -> None:
    watch = Watch(STUCK, STALL)
    watch.look(0.0, [at(61.0)], [], 0)
    found = watch.look(1.0, [at(0.5, offset=8)], [], 0)
    assert [one.offset for one in found.ended] == [7]
    assert not found.stuck
