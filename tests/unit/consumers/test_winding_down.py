"""The end of a member, and of a handler's patience: what the dispatcher still hands out then."""

from typing import Any

import pytest
from unit.consumers.taking import end, finish, take

from offsetzero.consumers.record import BULK, OwnedPartition, Record, bulk_of
from offsetzero.consumers.working.atwork import AtWork
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.limits import Limit
from offsetzero.consumers.working.run import Doing, Ending, Run
from offsetzero.retry.failures import Transient
from support import ManualClock

LATE = Transient("handler-timeout", "")


class Desk:
    """A dispatcher and two partitions."""

    def __init__(self, batch: int = 0, **lanes: Any) -> None:
        self.clock = ManualClock()
        self.dispatcher = Dispatcher(self.clock, KeyLanes(**lanes), batch)
        self.partitions = [OwnedPartition("documents", "id", number) for number in (0, 1)]

    def deliver(self, *keys: str, partition: int = 0) -> list[Record]:
        """Records of these keys, at the offsets that follow."""
        owned = self.partitions[partition]
        records = []
        for key in keys:
            record = Record(owned, owned.position or 0, key.encode(), b"v", [], 0)
            owned.deliver(record)
            records.append(record)
        self.dispatcher.add(records)
        return records

    def begin(self) -> Run:
        """A worker takes a run, and its function is entered."""
        run = self.dispatcher.take_nowait(self.dispatcher._batch or 1)
        assert run is not None
        run.at_work = AtWork(self.clock)
        run.begin_all() if run.running else run.begin()
        run.at_work.enter(None)
        return run


def test_at_the_end_only_the_gaps_before_what_was_begun_are_filled() -> None:
    desk = Desk()
    desk.deliver("a", "a", "b", "c", "d")
    other = desk.deliver("e", "f", partition=1)
    first, third = take(desk.dispatcher), take(desk.dispatcher)
    assert first is not None
    assert third is not None
    assert (first.offset, third.offset) == (0, 2)
    finish(desk.dispatcher, third, done=True)
    desk.dispatcher.wind_down(desk.partitions)
    assert take(desk.dispatcher) is None, "the second record is behind the first; the others would be new"
    finish(desk.dispatcher, first, done=True)
    second = take(desk.dispatcher)
    assert second is not None
    assert second.offset == 1
    assert desk.dispatcher.has_begun
    finish(desk.dispatcher, second, done=True)
    assert not desk.dispatcher.has_begun
    assert desk.partitions[0].committable() == 3
    assert desk.partitions[1].committable() == other[0].offset
    assert desk.dispatcher.in_flight == 0


def test_at_the_end_nothing_waits_for_a_record_that_runs_again_later() -> None:
    desk = Desk()
    desk.deliver("a")
    record = take(desk.dispatcher)
    assert record is not None
    end(desk.dispatcher, record, Ending.AGAIN)
    desk.dispatcher.wind_down(desk.partitions)
    assert not desk.dispatcher.has_begun


def test_at_the_end_nothing_waits_for_what_stands_behind_a_record_that_runs_again_later() -> None:
    desk = Desk()
    desk.deliver("a", "a", "b")
    first, third = take(desk.dispatcher), take(desk.dispatcher)
    assert first is not None
    assert third is not None
    end(desk.dispatcher, first, Ending.AGAIN)
    finish(desk.dispatcher, third, done=True)
    desk.dispatcher.wind_down(desk.partitions)
    assert desk.dispatcher.in_flight == 2, "the second record of the key lies before the third, which is done"
    assert not desk.dispatcher.has_begun


def test_what_a_worker_has_taken_and_not_begun_is_dropped_at_the_end() -> None:
    desk = Desk()
    desk.deliver("a", "b", "c")
    run = desk.dispatcher.take_nowait(3)
    assert run is not None
    assert run.begin() is not None
    desk.dispatcher.wind_down(desk.partitions)
    assert run.begin() is None
    assert take(desk.dispatcher) is None


def test_a_record_that_is_given_up_is_handed_out_as_failed_before_those_of_its_key() -> None:
    desk = Desk()
    first, second = desk.deliver("a", "a")
    run = desk.begin()
    desk.clock.advance(2)
    assert desk.dispatcher.abandon(run, 1.0, LATE)
    assert desk.dispatcher.running == 0
    again = take(desk.dispatcher)
    assert again is first
    assert again.failed is LATE
    run.ended.append((first, Ending.DONE))  # whatever the late worker says
    desk.dispatcher.end([run])
    assert not first.done
    assert desk.dispatcher.in_flight == 2
    finish(desk.dispatcher, first, done=True)
    assert take(desk.dispatcher) is second
    assert second.failed is None


def test_a_function_that_has_ended_is_not_given_up() -> None:
    desk = Desk()
    (record,) = desk.deliver("a")
    run = desk.begin()
    desk.clock.advance(2)
    assert run.at_work is not None
    run.at_work.leave()
    assert not desk.dispatcher.abandon(run, 1.0, LATE)
    run.ended.append((record, Ending.DONE))
    desk.dispatcher.end([run])
    assert record.done
    assert record.failed is None


def test_the_records_of_a_batch_that_is_given_up_run_alone_and_in_their_order() -> None:
    desk = Desk(batch=10)
    desk.deliver("a", "b", "a", "b")
    run = desk.begin()
    assert len(run.running) == 4
    desk.clock.advance(2)
    assert desk.dispatcher.abandon(run, 1.0, LATE)
    desk.deliver("a", "c")
    seen = []
    while (next_run := desk.dispatcher.take_nowait(10)) is not None:
        records = next_run.begin_all()
        assert not any(record.failed for record in records), "which one is at fault is not known"
        seen.append([record.offset for record in records])
        next_run.ended.extend((record, Ending.DONE) for record in records)
        desk.dispatcher.end([next_run])
    assert seen == [[0], [1], [5], [2], [3], [4]]


def test_a_batch_of_one_that_is_given_up_has_failed() -> None:
    desk = Desk(batch=10)
    (record,) = desk.deliver("a")
    run = desk.begin()
    desk.clock.advance(2)
    assert desk.dispatcher.abandon(run, 1.0, LATE)
    assert record.failed is LATE


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_record_is_doing(workers: int) -> None:
    desk = Desk()
    a, b, again = desk.deliver("a", "b", "a")
    assert desk.dispatcher.doing(a, workers) is Doing.NOTHING
    taken = take(desk.dispatcher)
    assert taken is a
    assert desk.dispatcher.doing(a, workers) is Doing.RUNNING
    assert desk.dispatcher.doing(b, workers) is (Doing.QUEUED if workers == 1 else Doing.NOTHING)
    assert desk.dispatcher.doing(again, workers) is Doing.QUEUED
    end(desk.dispatcher, a, Ending.AGAIN)
    assert desk.dispatcher.doing(a, workers) is Doing.WAITING
    assert desk.dispatcher.doing(again, workers) is Doing.QUEUED
    desk.clock.advance(2)
    desk.dispatcher.tick()
    assert desk.dispatcher.doing(a, workers) is Doing.NOTHING


def test_what_pauses_is_not_stalled_though_nothing_runs_and_what_does_not_pause_is() -> None:
    """Ten records a second of six partitions: the first of one may wait for minutes behind those of the others."""
    desk = Desk(limits=[Limit(BULK, 1, bulk_of)])
    desk.partitions[1] = OwnedPartition("documents.bulk", "id", 1)
    (live,), (backfill,) = desk.deliver("a"), desk.deliver("b", partition=1)
    desk.dispatcher.resize(BULK, 0)
    assert desk.dispatcher.doing(backfill, 2) is Doing.QUEUED
    assert desk.dispatcher.doing(live, 2) is Doing.NOTHING
    assert take(desk.dispatcher) is live
    finish(desk.dispatcher, live, done=True)
    assert take(desk.dispatcher) is None
    desk.dispatcher.resize(BULK, 1)
    assert desk.dispatcher.doing(backfill, 2) is Doing.NOTHING
    desk.dispatcher.resize(BULK, 0)
    assert take(desk.dispatcher) is backfill, "it has its place"


def test_what_is_ready_waits_for_a_worker_that_is_busy_elsewhere() -> None:
    desk = Desk()
    (a,) = desk.deliver("a")
    with desk.dispatcher.elsewhere():
        assert desk.dispatcher.doing(a, 1) is Doing.QUEUED
    assert desk.dispatcher.doing(a, 1) is Doing.NOTHING
