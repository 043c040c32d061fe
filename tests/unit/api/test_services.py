"""What some requests wait for holds up no others."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from offsetzero.api import services
from offsetzero.api.problems import Problem
from offsetzero.api.services import Firsts, Services
from offsetzero.settings import Settings


@pytest.mark.parametrize(("name", "code"), [("storing", "object-store-unavailable"), ("scheduling", "overloaded")])
def test_only_some_requests_wait_for_their_turn_and_leave_places_to_all_others(name: str, code: str) -> None:
    """Each of those that wait is worked on, and of these the API has so many at once: all of it deletions, and no run
    could be read while an object store stands still."""

    async def run() -> None:
        settings = Settings.model_validate({"api": {"pool_size": 2, "requests_at_once": 8}})
        nothing: Any = None
        turn = getattr(Services(settings, *[nothing] * 6), name)
        done: list[int] = []

        async def one(number: int) -> None:
            async with turn():
                done.append(number)

        async with AsyncExitStack() as first:
            await first.enter_async_context(turn())
            waiting = [asyncio.ensure_future(one(number)) for number in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Problem) as refused:
                await asyncio.wait_for(one(2), 10)
            assert (refused.value.status, refused.value.code) == (503, code)
            assert done == []
        await asyncio.gather(*waiting)
        await one(3)
        assert done == [0, 1, 3]

    asyncio.run(run())


def test_nobody_waits_for_ever_for_the_first_of_many_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the object store stands still those who wait would take the places of all other uploads."""
    monkeypatch.setattr(services, "_TURN_SECONDS", 0.01)

    async def run() -> None:
        firsts = Firsts()
        with firsts.doing("content"):
            with pytest.raises(Problem) as refused:
                await asyncio.wait_for(firsts.ended("content"), 10)
            assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "5"})
        assert not await firsts.ended("content")

    asyncio.run(run())
