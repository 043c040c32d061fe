"""What a feed says of a run is without a hole, whatever is read of the database in which order."""

import asyncio
from contextlib import suppress
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from offsetzero.api import run_feeds, run_stream
from offsetzero.api.run_feeds import Feed, RunFeeds
from offsetzero.api.run_stream import last_event
from offsetzero.store.run_events import KEPT, RunEvent, Since

reads = st.lists(st.tuples(st.integers(1, 200), st.integers(1, 80)), max_size=8)


def _events(first: int, count: int) -> list[RunEvent]:
    return [RunEvent(number, "step", {"status": "running"}) for number in range(first, first + count)]


@given(start=st.integers(0, 40), reads=reads, known=st.integers(0, 300))
def test_what_comes_after_an_event_has_no_hole_and_no_double(
    start: int, reads: list[tuple[int, int]], known: int
) -> None:
    feed = Feed(start)
    newest = start
    for skipped, count in reads:  # the database gives the newest ones, in order, and may have left some out before
        first = newest + (1 if skipped % 3 else skipped)
        feed.add(_events(first, count))
        newest = first + count - 1
        assert feed.newest == newest
    after = feed.after(known)
    if after is None:
        assert known < newest, "there is something that is not known here"
    elif known >= newest:
        assert after == []
    else:
        assert [event.number for event in after] == list(range(known + 1, newest + 1))
        assert len(after) <= KEPT


def test_who_waits_is_woken_by_news_and_no_later() -> None:
    async def play() -> tuple[bool, bool]:
        feed = Feed(0)
        waiting = asyncio.ensure_future(feed.wait(10))
        await asyncio.sleep(0)
        feed.add(_events(1, 1))
        return await waiting, await feed.wait(0.01)

    assert asyncio.run(play()) == (True, False)


@pytest.mark.parametrize(
    ("header", "number"),
    [(None, None), ("", None), ("0", 0), ("17", 17), ("-1", -1), ("x", -1), ("²", -1), ("9" * 4000, -1), ("1e3", -1)],
)
def test_an_odd_last_event_is_one_that_no_run_has(header: str | None, number: int | None) -> None:
    assert last_event(header) == number


def test_a_run_is_looked_at_now_and_then_however_much_news_there_is_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that begin are news all the time, and the others had none of theirs."""
    monkeypatch.setattr(run_feeds, "LOOK_SECONDS", 0.05)
    quiet, busy = uuid4(), uuid4()

    class Read(RunFeeds):
        looks = 0
        again = asyncio.Event()

        async def _publish(self, names: list[str]) -> None:
            self.looks += str(quiet) in names
            if self.looks >= 3:  # the first is because it is new
                self.again.set()

    async def news(feeds: RunFeeds, run_id: UUID) -> None:
        while True:
            with feeds.watch("demo", run_id, 0):
                await asyncio.sleep(0.01)

    async def play() -> None:
        feeds = Read(None, 60, 10)  # type: ignore[arg-type]
        with feeds.watch("demo", quiet, 0):
            tasks = [asyncio.create_task(feeds._read()), asyncio.create_task(news(feeds, busy))]
            async with asyncio.timeout(5):
                await feeds.again.wait()
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    asyncio.run(play())


@pytest.mark.parametrize(("well_seconds", "said"), [(60.0, 1), (0.0, 3)])
def test_the_same_trouble_is_said_once_and_once_more_when_it_comes_again(
    monkeypatch: pytest.MonkeyPatch, well_seconds: float, said: int
) -> None:
    monkeypatch.setattr(run_feeds, "_WELL_SECONDS", well_seconds)
    monkeypatch.setattr(run_feeds, "_AGAIN_SECONDS", 0.0)
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        await asyncio.sleep(0.01)
        if times > 3:
            raise asyncio.CancelledError
        raise OSError("away")

    feeds = RunFeeds(None, 60, 10)  # type: ignore[arg-type]
    with capture_logs() as lines, suppress(asyncio.CancelledError):
        asyncio.run(feeds._forever(work))
    assert [line["error"] for line in lines] == ["OSError('away')"] * said


def test_a_stream_ends_when_its_run_is_gone() -> None:
    """Nothing would be told of it any more, and its client would not come again before an hour is over."""
    run_id = uuid4()
    unused = ("reason", "detail", "warning", "due", "started_at", "finished_at", "input_tokens", "output_tokens")
    state = {"step": "indexer", "required": True, "status": "running", "attempts": 1, **dict.fromkeys(unused)}

    async def gone(_after: int) -> None:
        return None

    async def follow() -> int:
        feeds = RunFeeds(None, 60, 10)  # type: ignore[arg-type]
        known = Since(2, over=False, events=[RunEvent(1, "step", state), RunEvent(2, "step", state)])
        stream = run_stream.stream("demo", run_id, feeds, known, gone)
        told = [await anext(stream), await anext(stream)]
        feeds._feeds[str(run_id)].add(_events(90, 1))  # those between are for the database to tell
        async with asyncio.timeout(20):
            return len(told + [chunk async for chunk in stream])

    assert asyncio.run(follow()) == 2
