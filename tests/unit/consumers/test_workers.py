"""Workers: an error of ours ends the process rather than stall it, and nothing is taken for done."""

import threading
from typing import NoReturn

from offsetzero.clock import SYSTEM
from offsetzero.consumers.dispatch import Dispatcher
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.resources import spawn
from offsetzero.consumers.run import Run
from offsetzero.consumers.workers import ThreadWorkers


class Broken:
    """In place of `Handling`, with a bug in it."""

    def work(self, run: Run) -> NoReturn:
        run.begin()
        raise AssertionError("a bug of the runtime")


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
