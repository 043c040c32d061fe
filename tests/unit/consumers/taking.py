"""Takes records one by one from a dispatcher, as a worker does that ends each run with its one record."""

from offsetzero.consumers.record import Record
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.run import Ending, Run

_runs: dict[Record, Run] = {}


def take(dispatcher: Dispatcher) -> Record | None:
    """The next record that may run, begun."""
    run = dispatcher.take_nowait()
    if run is None:
        return None
    record = run.begin()
    assert record is not None
    _runs[record] = run
    return record


def end(dispatcher: Dispatcher, record: Record, ending: Ending) -> None:
    """End what `take` gave."""
    run = _runs.pop(record)
    run.ended.append((record, ending))
    dispatcher.end([run])


def finish(dispatcher: Dispatcher, record: Record, *, done: bool) -> None:
    """End it with its outcome safe, or not."""
    end(dispatcher, record, Ending.DONE if done else Ending.LEFT)
