"""What many requests want at once is asked at once, and each has its own answer."""

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from offsetzero.api.together import AT_ONCE, Together
from offsetzero.clock import SYSTEM, Clock
from support import ManualClock


class Database:
    """Doubles numbers; each statement goes on when it is told to."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = ManualClock()
        self.asked: list[list[int]] = []
        self.go: list[asyncio.Event] = []
        self.double = Together(self._ask, clock or self.clock)

    async def _ask(self, wanted: Sequence[int]) -> list[int]:
        self.asked.append(list(wanted))
        self.go.append(asyncio.Event())
        await self.go[-1].wait()
        if -13 in wanted:
            raise ValueError("-13 cannot be stored")
        if 0 in wanted:
            raise psycopg.OperationalError("the connection is lost")
        return [2 * one for one in wanted]

    async def begin(self, *wanted: int) -> "list[asyncio.Future[int]]":
        tasks = [asyncio.ensure_future(self.double(one)) for one in wanted]
        await _settle()
        return tasks

    async def end(self, statement: int) -> None:
        assert statement < len(self.go), f"asked was only {self.asked}"
        self.go[statement].set()
        await _settle()


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_who_comes_while_others_are_asked_for_is_asked_for_next_with_all_others() -> None:
    async def run() -> None:
        database = Database()
        first = await database.begin(1)
        later = await database.begin(*range(2, AT_ONCE + 3))
        assert database.asked == [[1]], "alone, and at once"
        await database.end(0)
        assert first[0].result() == 2
        assert database.asked[1:] == [list(range(2, AT_ONCE + 2))], "so many at once, and none that has not asked"
        await database.end(1)
        await database.end(2)
        assert [one.result() for one in later] == [2 * one for one in range(2, AT_ONCE + 3)]
        again = await database.begin(5)
        await database.end(3)
        assert again[0].result() == 10

    asyncio.run(run())


def test_who_comes_in_the_moment_in_which_a_statement_ends_is_asked_for() -> None:
    async def run() -> None:
        database = Database()

        async def twice() -> int:
            return await database.double(await database.double(1))

        asking = asyncio.ensure_future(twice())
        await _settle()
        await database.end(0)
        await database.end(1)
        assert asking.result() == 4

    asyncio.run(run())


def test_an_error_is_that_of_the_one_that_it_is_about() -> None:
    async def run() -> None:
        database = Database()
        first, *rest = await database.begin(1), *await database.begin(2, -13, 3)
        await database.end(0)
        for statement in range(1, 5):  # all of them, then one by one
            await database.end(statement)
        assert database.asked == [[1], [2, -13, 3], [2], [-13], [3]]
        assert (first[0].result(), rest[0].result(), rest[2].result()) == (2, 4, 6)
        with pytest.raises(ValueError, match="-13 cannot be stored"):
            rest[1].result()

    asyncio.run(run())


def test_what_may_have_taken_place_is_not_asked_again() -> None:
    async def run() -> None:
        database = Database()
        await database.begin(1)
        waiting = await database.begin(2, 0)
        await database.end(0)
        await database.end(1)
        assert database.asked == [[1], [2, 0]]
        for one in waiting:
            with pytest.raises(psycopg.OperationalError):
                one.result()

    asyncio.run(run())


def test_a_request_that_is_given_up_takes_no_answer_from_others() -> None:
    async def run() -> None:
        database = Database()
        given_up, stays = await database.begin(1, 2)
        given_up.cancel()
        await database.end(0)
        assert stays.result() == 4

    asyncio.run(run())


def test_a_statement_that_waits_for_long_is_not_waited_for() -> None:
    async def run() -> None:
        database = Database()
        stuck = await database.begin(1)
        patient = await database.begin(2)
        database.clock.advance(1.0)
        later = await database.begin(3)
        assert database.asked == [[1], [2, 3]]
        await database.end(1)
        assert (patient[0].result(), later[0].result()) == (4, 6)
        assert not stuck[0].done()
        await database.end(0)
        assert stuck[0].result() == 2

    asyncio.run(run())


def test_who_waits_behind_such_a_statement_needs_nobody_else_to_come() -> None:
    """The one before waits for a lock of another tenant's document, and it is a quiet night."""

    async def run() -> None:
        database = Database(SYSTEM)
        await database.begin(1)
        await database.begin(2)
        async with asyncio.timeout(30):
            while len(database.asked) < 2:
                await asyncio.sleep(0.01)
        assert database.asked == [[1], [2]]
        await database.end(1)
        await database.end(0)

    asyncio.run(run())
