"""Workers: an error of ours ends the process rather than stall it, and nothing is taken for done."""

import threading
from typing import Any, NoReturn

from offsetzero.clock import SYSTEM
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.resources import spawn
from offsetzero.consumers.working.atwork import AT_WORK
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.run import Ending, Run
from offsetzero.consumers.working.workers import ThreadWorkers
from offsetzero.retry.failures import Transient
from support import wait_until


class Broken:
    """In place of `Handling`, with a bug in it."""

    def work(self, run: Run) -> NoReturn:
        run.begin()
        raise AssertionError("a bug of the runtime")


class Late:
    """In place of `Handling`: each run is given up before it ends."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def work(self, run: Run) -> None:
        assert run.begin() is not None
        at_work = AT_WORK.get()
        assert at_work is not None
        at_work.enter(None)
        try:
            self.entered.set()
            self.go_on.wait(10)
        finally:
            at_work.leave()


def test_threads_that_were_given_up_and_have_ended_are_not_kept() -> None:
    dispatcher, crashed = Dispatcher(SYSTEM), list[BaseException]()
    made: list[Late] = []

    def make() -> Any:
        made.append(Late())
        return made[-1]

    workers = ThreadWorkers(dispatcher, make, 1, crashed.append, SYSTEM, spawn)
    workers.start()
    dispatcher.add([Record(OwnedPartition("documents", "id", 0), 0, b"k", b"v", [], 0)])
    for number in range(5):
        wait_until(lambda number=number: len(made) > number and made[number].entered.is_set(), 5, what="the handler")
        ((run, _),) = dispatcher.held_up(0.0)
        assert dispatcher.abandon(run, 0.0, Transient("handler-timeout", "late"))
        workers.replace(run)
        made[number].go_on.set()
    wait_until(lambda: len(workers._threads) == 1 and workers.late() == 0, 5, what="one thread")
    dispatcher.close()
    made[-1].go_on.set()
    workers.join()
    assert crashed == []


def test_a_crash_is_told_and_its_record_is_neither_done_nor_running() -> None:
    told: list[BaseException] = []
    crashed = threading.Event()
    dispatcher = Dispatcher(SYSTEM)
    workers = ThreadWorkers(
        dispatcher,
        Broken,  # type: ignore[arg-type]
        1,
        lambda error: (told.append(error), crashed.set())[0],  # type: ignore[func-returns-value]
        SYSTEM,
        spawn,
    )
    workers.start()
    record = Record(OwnedPartition("documents", "id", 0), 0, b"k", b"v", [], 0)
    dispatcher.add([record])
    assert crashed.wait(5)
    dispatcher.close()
    workers.join()
    assert [str(error) for error in told] == ["a bug of the runtime"]
    assert not record.done
    assert dispatcher.wait_idle(0) == []


def test_what_a_worker_has_not_begun_goes_to_others_before_it_waits() -> None:
    """The dead letter of one record must not hold up the others of its worker's run."""
    dispatcher = Dispatcher(SYSTEM)
    dispatcher.add([Record(OwnedPartition("documents", "id", 0), n, str(n).encode(), b"v", [], 0) for n in range(5)])
    run = dispatcher.take_nowait(5)
    assert run is not None
    first = run.begin()
    assert first is not None
    run.ended.append((first, Ending.DONE))
    second = run.begin()
    dispatcher.release(run)
    assert first.done
    assert run.running == (second,)
    other = dispatcher.take_nowait(5)
    assert other is not None
    assert [record.offset for record in other.waiting] == [2, 3, 4]
    assert run.begin() is None
