"""A handler and its time limit: exactly one of them ends the handling, and what is executed can be said."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from offsetzero.clock import SYSTEM
from offsetzero.consumers.working.atwork import AT_WORK, Abandoned, AtWork, limited, raise_if_abandoned
from offsetzero.consumers.working.transaction import HandlerRaised
from support import ManualClock, wait_until


def test_it_is_given_up_only_while_it_is_at_work_and_for_long_enough() -> None:
    clock = ManualClock()
    at_work = AtWork(clock)
    assert not at_work.take(1.0), "nothing runs"
    at_work.enter(None)
    clock.advance(0.9)
    assert not at_work.take(1.0)
    at_work.leave()
    clock.advance(5)
    assert not at_work.take(1.0), "it has ended"
    at_work.enter(None)
    clock.advance(1.0)
    assert at_work.take(1.0)
    assert not at_work.take(1.0), "once"
    assert at_work.is_entered
    with pytest.raises(Abandoned):
        at_work.leave()
    assert not at_work.is_entered
    with pytest.raises(Abandoned):
        at_work.enter(None)


def test_all_the_work_on_a_record_may_have_a_limit_of_its_own() -> None:
    clock = ManualClock()
    at_work = AtWork(clock)
    at_work.begin(clock.monotonic())
    clock.advance(0.6)
    assert not at_work.take(0.5, whole=True), "it is between two functions: the next look has it, if there is another"
    at_work.enter(None)
    clock.advance(0.3)
    assert not at_work.take(1.0, whole=True)
    assert not at_work.take(0.5), "the function itself has just begun"
    at_work.leave()
    at_work.begin(clock.monotonic())
    at_work.enter(None)
    assert not at_work.take(0.5, whole=True), "this is the next record"
    clock.advance(0.4)
    at_work.leave()
    at_work.enter(None)
    clock.advance(0.2)
    assert not at_work.take(0.5)
    assert at_work.take(0.5, whole=True)


def test_one_of_the_two_wins_whatever_the_moment() -> None:
    won: Counter[str] = Counter()
    for _ in range(3000):
        at_work = AtWork(SYSTEM)
        at_work.enter(None)
        start = threading.Barrier(2)
        taken: list[bool] = []

        def limit(at_work: AtWork = at_work, start: threading.Barrier = start, taken: list[bool] = taken) -> None:
            start.wait()
            taken.append(at_work.take(0.0))

        thread = threading.Thread(target=limit)
        thread.start()
        start.wait()
        try:
            at_work.leave()
            won["handler"] += 1
            ended = True
        except Abandoned:
            won["limit"] += 1
            ended = False
        thread.join()
        assert taken == [not ended]
    assert set(won) <= {"handler", "limit"}


def test_a_limited_function_behaves_as_it_did_unless_it_was_given_up() -> None:
    clock = ManualClock()
    at_work = AtWork(clock)

    @limited
    def function(seconds: float, _ctx: Any) -> str:
        clock.advance(seconds)
        at_work.take(1.0)
        if seconds > 5:
            raise ValueError("late, and wrong")
        return "done"

    assert function(2.0, None) == "done", "called by somebody else than a worker: a test"
    token = AT_WORK.set(at_work)
    try:
        assert function(0.5, None) == "done"
        with pytest.raises(Abandoned):
            function(9.0, None)
    finally:
        AT_WORK.reset(token)


def test_an_abandoned_handling_is_known_in_whatever_it_is_wrapped() -> None:
    wrapped = HandlerRaised()
    wrapped.__cause__ = Abandoned()
    for error in (Abandoned(), wrapped):
        with pytest.raises(Abandoned):
            raise_if_abandoned(error)
    raise_if_abandoned(ValueError())
    raise_if_abandoned(asyncio.CancelledError())


def test_the_line_that_a_thread_executes_is_named() -> None:
    made: list[AtWork] = []
    go = threading.Event()

    def handler() -> None:
        made.append(AtWork(SYSTEM))
        go.wait()

    thread = threading.Thread(target=handler)
    thread.start()
    wait_until(lambda: made and "in handler" in (made[0].where() or ""), what="the line of the handler")
    assert (made[0].where() or "").startswith("test_atwork.py:")
    go.set()
    thread.join()


def test_the_line_where_a_task_waits_is_named() -> None:
    async def inner() -> None:
        await asyncio.sleep(60)

    async def handler() -> None:
        await inner()

    async def main() -> str | None:
        task = asyncio.create_task(handler())
        at_work = AtWork(SYSTEM, task)
        await asyncio.sleep(0)
        where = await asyncio.to_thread(at_work.where)
        task.cancel()
        return where

    assert (asyncio.run(main()) or "").endswith("in inner")
