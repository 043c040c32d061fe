"""The event loop of async groups: a place that becomes free is taken, and a member that ends settles nothing."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from offsetzero.clock import SYSTEM
from offsetzero.consumers.group import Route
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.resources import spawn
from offsetzero.consumers.working.atwork import AT_WORK
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.effects import Threads
from offsetzero.consumers.working.handling import AsyncHandling, Parts
from offsetzero.consumers.working.loop_workers import LoopWorkers
from offsetzero.consumers.working.run import Ending
from offsetzero.consumers.working.tally import Tally
from offsetzero.consumers.working.transaction import in_handler
from offsetzero.retry.failures import Transient
from support import wait_until


class Waiting:
    """In place of reader, effects and settler: a handler of a database group, which waits for ever."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.settled: list[int] = []

    def read(self, record: Record) -> Call:
        call = Call(record, "audit", None)
        call.route = Route.to(nothing)
        return call

    def must_wait(self, record: Record) -> bool:
        return False

    def begin(self, call: Call) -> None:
        return None

    async def perform_async(self, call: Call, ctx: Any) -> str:
        ctx.connection = SimpleNamespace()
        with in_handler(ctx.connection, ctx):
            self.entered.set()
            await asyncio.get_running_loop().create_future()
        return "applied"

    def is_away(self, error: BaseException, record: Record | None) -> bool:
        return False

    def end(self, call: Call, failure: BaseException) -> Ending:
        self.settled.append(call.record.offset)
        return Ending.DONE


class Blocking:
    """In place of `AsyncHandling`: holds the loop up until it is told, inside a function with a time limit."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.settled: list[int] = []

    async def work(self, record: Record) -> Ending:
        if record.failed is not None:
            self.settled.append(record.offset)
            return Ending.DONE
        at_work = AT_WORK.get()
        assert at_work is not None
        at_work.enter(None)
        try:
            self.entered.set()
            self.go_on.wait(10)
        finally:
            at_work.leave()
        return Ending.DONE

    def tell(self) -> None:
        pass


async def nothing(*_: Any) -> None:
    pass


@contextmanager
def working(dispatcher: Dispatcher, handling: Any) -> Iterator[LoopWorkers]:
    crashed: list[BaseException] = []
    workers = LoopWorkers(
        dispatcher, handling, 1, ThreadPoolExecutor(1), nothing, nothing, crashed.append, SYSTEM, spawn, nothing
    )
    dispatcher.on_runnable(workers.wake)
    workers.start()
    try:
        yield workers
    finally:
        dispatcher.close()
        workers.join()
    assert crashed == []


def test_the_place_of_a_handler_that_was_given_up_and_ends_by_itself_is_taken() -> None:
    dispatcher, handling = Dispatcher(SYSTEM), Blocking()
    stay = OwnedPartition("documents", "id", 0)
    with working(dispatcher, handling) as workers:
        dispatcher.add([Record(stay, 7, b"k", b"v", [], 0)])
        assert handling.entered.wait(5)
        ((run, _),) = dispatcher.held_up(0.0)
        assert dispatcher.abandon(run, 0.0, Transient("handler-timeout", "late"))
        workers.replace(run)
        handling.go_on.set()
        wait_until(lambda: handling.settled == [7], 5, what="the settling of the record that was given up")


def test_a_handler_that_is_cancelled_because_the_member_ends_is_not_settled() -> None:
    """A cancelled function of a database group looked like one that had failed: its attempt was counted."""
    dispatcher, parts = Dispatcher(SYSTEM), Waiting()
    given: Any = parts
    every = Parts(given, given, given, given, lambda call: given, SYSTEM, Tally("audit"))
    handling = AsyncHandling(every, Threads(ThreadPoolExecutor(1)), begins_in_loop=True)
    record = Record(OwnedPartition("documents", "id", 0), 7, b"k", b"v", [], 0)
    with working(dispatcher, handling):
        dispatcher.add([record])
        assert parts.entered.wait(5)
    assert parts.settled == []
    assert not record.done
    assert record.failed is None
