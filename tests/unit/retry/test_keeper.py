"""One process's part: who asks gets an answer, who tells does not wait, a database that is away hurts nobody."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest

from offsetzero.clock import SYSTEM
from offsetzero.consumers.resources import spawn
from offsetzero.errors import ProviderWaits
from offsetzero.retry import desk, keeper
from offsetzero.retry.breaker import Answer, Caller
from offsetzero.retry.failures import Permanent, Poison, ProviderDown, Retry, Throttled, Transient
from offsetzero.retry.keeper import Decide, Keeper
from offsetzero.retry.protection import Limits, Protection, Wait, Why
from offsetzero.retry.provider_calls import ProviderCall, judge
from offsetzero.retry.provider_stores import OwnStore
from offsetzero.retry.turn import Permit
from support import wait_until

LIMITS = Limits(calls=2, rate=1000.0, interval=0.2)


class Store(OwnStore):
    """In memory, and away when it is told so."""

    def __init__(self) -> None:
        super().__init__(SYSTEM)
        self.away = threading.Event()
        self.frozen = threading.Event()  # is not, where it is set
        self.frozen.set()
        self.asked = 0

    def change(self, name: str, decide: Decide) -> None:
        self.asked += 1
        self.frozen.wait()
        if self.away.is_set():
            raise psycopg.OperationalError("away")
        super().change(name, decide)

    @property
    def known(self) -> Protection:
        return self._known["llm"]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(desk, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(keeper, "PATIENCE_SECONDS", 3.0)
    for module in ("breaker", "turn"):
        monkeypatch.setattr(f"offsetzero.retry.{module}.DOUBT_SECONDS", 0.2)


@pytest.fixture
def store() -> Store:
    return Store()


@contextmanager
def running(store: Store) -> Iterator[Keeper]:
    crashed: list[BaseException] = []
    made = Keeper(store, lambda _name: LIMITS, SYSTEM, spawn, crashed.append)
    try:
        yield made
    finally:
        made.close()
    assert crashed == []


@pytest.fixture
def llm(store: Store) -> Iterator[Keeper]:
    with running(store) as made:
        yield made


def permit(llm: Keeper, record: str = "r") -> Permit:
    answer = llm.begin("llm", Caller(record)).result(5)
    assert isinstance(answer, Permit)
    return answer


def test_a_call_that_waits_begins_when_another_has_ended(llm: Keeper) -> None:
    first, _second = permit(llm, "1"), permit(llm, "2")
    waits = [llm.begin("llm", Caller(f"{n}")) for n in range(2)]
    assert llm.end(first, Answer.SERVED).result(0) is None, "who tells is not kept waiting"
    third = waits[0].result(5)
    assert isinstance(third, Permit)
    assert not waits[1].done(), "in the order in which they came"
    llm.end(third, Answer.SERVED)
    assert isinstance(waits[1].result(5), Permit)


def test_patience_ends(monkeypatch: pytest.MonkeyPatch, llm: Keeper) -> None:
    monkeypatch.setattr(keeper, "PATIENCE_SECONDS", 1.1)
    permit(llm, "1"), permit(llm, "2")
    assert llm.begin("llm", Caller("3")).result(5) == Wait(Why.BUSY, 1.0)


def test_who_has_gone_keeps_no_permit(llm: Keeper, store: Store) -> None:
    first, _second = permit(llm, "1"), permit(llm, "2")
    gone = llm.begin("llm", Caller("3"))
    assert gone.cancel()
    llm.end(first, Answer.SERVED)
    assert isinstance(llm.begin("llm", Caller("4")).result(5), Permit)


def test_while_the_database_is_away_nobody_begins_and_what_has_ended_is_told_later(llm: Keeper, store: Store) -> None:
    running_call = permit(llm)
    store.away.set()
    assert isinstance(llm.begin("llm", Caller("2")).result(5), Wait)
    asked = store.asked
    assert llm.end(running_call, Answer.SERVED).result(0) is None
    wait_until(lambda: store.asked > asked, what="a try to tell it")
    assert set(store.known.permits) == {running_call.call.permit}
    store.away.clear()
    wait_until(lambda: not store.known.permits, what="the end of the call in the store")
    assert store.known.breaker.answered_at > 0


def test_a_failure_while_the_database_is_away_costs_no_attempt(llm: Keeper, store: Store) -> None:
    running_call = permit(llm)
    store.away.set()
    assert isinstance(llm.end(running_call, Answer.FAILED).result(5), Wait)


def test_leases_are_renewed_while_calls_run(monkeypatch: pytest.MonkeyPatch, llm: Keeper, store: Store) -> None:
    monkeypatch.setattr("offsetzero.retry.protection.LEASE_SECONDS", 1.0)
    monkeypatch.setattr("offsetzero.retry.desk.LEASE_SECONDS", 1.0)
    mine = permit(llm)
    begun = SYSTEM.monotonic()
    wait_until(lambda: store.known.permits[mine.call.permit] > begun + 1.0, what="a lease that was renewed")
    llm.end(mine, Answer.SERVED)
    wait_until(lambda: not store.known.permits)


def test_closing_answers_everybody_and_frees_what_has_ended(store: Store) -> None:
    with running(store) as llm:
        first, second = permit(llm, "1"), permit(llm, "2")
        waits = llm.begin("llm", Caller("3"))
        llm.end(first, Answer.SERVED)
        llm.end(second, Answer.SERVED)
        llm.close()
        assert waits.result(0)
        assert isinstance(llm.begin("llm", Caller("4")).result(0), Wait)
        assert isinstance(llm.end(second, Answer.FAILED).result(0), Wait)
    assert not [one for one in store.known.permits if one in (first.call.permit, second.call.permit)]


def test_records_that_wait_ask_nobody_and_come_back_one_after_the_other(llm: Keeper, store: Store) -> None:
    llm.end(permit(llm), Answer.DOWN).result(5)
    asked = store.asked
    waits = [llm.hold_back("llm") for _ in range(1000)]
    assert all(wait is not None and wait.why is Why.DOWN for wait in waits)
    times = [llm.slot("llm", wait) for wait in waits if wait is not None]
    assert times == sorted(set(times))
    assert store.asked <= asked + 1
    wait_until(lambda: llm.hold_back("llm") is None, what="the time of a probe")
    assert llm.hold_back("llm") is not None, "one tries, not all"


def test_an_error_of_ours_ends_the_process_rather_than_leave_anybody_waiting(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    crashed: list[BaseException] = []
    llm = Keeper(store, lambda _name: LIMITS, SYSTEM, spawn, crashed.append)
    monkeypatch.setattr("offsetzero.retry.keeper.tell", lambda *_given: 1 / 0)
    asked = [llm.begin("llm", Caller(f"{n}")) for n in range(5)]
    assert all(one.result(5) for one in asked)
    wait_until(lambda: crashed, what="the end of the process")
    assert isinstance(crashed[0], ZeroDivisionError)


def test_a_record_that_waits_for_an_hour_keeps_no_other(llm: Keeper) -> None:
    now = SYSTEM.monotonic()
    assert llm.slot("llm", Wait(Why.THROTTLED, 3600.0)) >= now + 3600
    assert llm.slot("llm", Wait(Why.DOWN, 0.2)) < now + 5


# --- the block around a call


def status(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://provider")
    return httpx.HTTPStatusError("", request=request, response=httpx.Response(code, request=request))


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (None, Answer.SERVED),
        (status(503), Answer.FAILED),
        (httpx.ReadTimeout(""), Answer.FAILED),
        (TimeoutError(), Answer.FAILED),
        (Transient("model-loading"), Answer.FAILED),
        (status(429), Answer.THROTTLED),
        (Throttled("slow"), Answer.THROTTLED),
        (status(401), Answer.DOWN),
        (ProviderDown("no-credit"), Answer.DOWN),
        (status(403), Answer.FORBIDDEN),
        (status(400), Answer.ANSWERED),
        (Permanent("too-long"), Answer.ANSWERED),
        (Retry(after=5), Answer.UNKNOWN),
        (Poison("corrupt"), Answer.UNKNOWN),
        (KeyError("text"), Answer.UNKNOWN),
        (psycopg.OperationalError("away"), Answer.UNKNOWN),
        (ProviderWaits("other", "down", 1.0), Answer.UNKNOWN),
        (asyncio.CancelledError(), Answer.UNKNOWN),
    ],
    ids=repr,
)
def test_what_is_raised_inside_says_something_of_the_provider_or_not(
    error: BaseException | None, answer: Answer
) -> None:
    assert judge(error).answer is answer


def test_rules_of_the_group_count() -> None:
    class Busy(Exception):
        pass

    assert judge(Busy()).answer is Answer.UNKNOWN
    assert judge(Busy(), {Busy: Transient}).answer is Answer.FAILED


def block(llm: Keeper, record: str = "r") -> tuple[ProviderCall, list[tuple[str, Wait]]]:
    noted: list[tuple[str, Wait]] = []
    return ProviderCall(llm, "llm", Caller(record), lambda name, wait: noted.append((name, wait))), noted


def test_a_401_becomes_a_wait_that_is_noted_before_it_is_raised(llm: Keeper) -> None:
    call, noted = block(llm)
    with pytest.raises(ProviderWaits) as caught, call:
        raise status(401)
    assert isinstance(caught.value.__cause__, httpx.HTTPStatusError)
    assert [(name, wait.why) for name, wait in noted] == [("llm", Why.DOWN)]
    again, noted = block(llm)
    with pytest.raises(ProviderWaits), again:
        pytest.fail("it must not be called")
    assert noted[0][1].seconds <= LIMITS.interval


def test_a_403_of_one_record_is_permanent(llm: Keeper) -> None:
    with pytest.raises(ProviderWaits), block(llm, "mine")[0]:
        raise status(403)
    with block(llm, "other")[0]:
        pass
    with pytest.raises(Permanent, match="provider-403"), block(llm, "mine")[0]:
        raise status(403)


def test_what_is_raised_passes_when_it_is_the_records_own(llm: Keeper) -> None:
    with pytest.raises(KeyError), block(llm)[0]:
        raise KeyError
    with pytest.raises(httpx.HTTPStatusError), block(llm)[0]:
        raise status(400)
    with pytest.raises(httpx.HTTPStatusError), block(llm)[0]:
        raise status(503)  # after a moment in which nothing is known of others


def test_an_async_block_that_is_cancelled_while_it_waits_or_calls_keeps_no_permit(llm: Keeper, store: Store) -> None:
    async def many() -> None:
        begun = asyncio.Event()

        async def one(number: int) -> None:
            async with block(llm, f"{number}")[0]:
                begun.set()
                await asyncio.get_running_loop().create_future()

        tasks = [asyncio.create_task(one(number)) for number in range(20)]
        await begun.wait()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)

    asyncio.run(many())
    wait_until(lambda: not store.known.permits, what="that all permits are free")
    assert not store.known.breaker.cause


class Others(Store):
    """As another process sees it."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._known = store._known


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_process_that_was_frozen_gives_up_the_calls_whose_places_others_have(
    monkeypatch: pytest.MonkeyPatch, llm: Keeper, store: Store, taken: int
) -> None:
    for module in ("protection", "desk"):
        monkeypatch.setattr(f"offsetzero.retry.{module}.LEASE_SECONDS", 1.0)
    shared = block(llm, "mine")[0]

    async def calls() -> list[object]:
        begun, answer = asyncio.Barrier(3), asyncio.Event()

        async def one() -> None:
            async with shared:
                await begun.wait()
                await answer.wait()

        tasks = [asyncio.create_task(one()) for _ in range(2)]
        await begun.wait()
        store.frozen.clear()
        end = max(store.known.permits.values())
        await asyncio.to_thread(wait_until, lambda: SYSTEM.monotonic() > end, what="the end of the leases")
        with running(Others(store)) as other:
            for number in range(taken):
                permit(other, f"{number}")
            asked = store.asked
            store.frozen.set()
            await asyncio.to_thread(wait_until, lambda: sum(task.done() for task in tasks) >= taken, what="losses")
            if taken < 2:  # else there is nothing left to ask about
                await asyncio.to_thread(wait_until, lambda: store.asked > asked + 1, what="another turn")
            await asyncio.to_thread(wait_until, lambda: len(store.known.permits) == 2, what="places for two, no more")
            answer.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    ended = asyncio.run(calls())
    assert sum(isinstance(one, ProviderWaits) for one in ended) == taken, "their records wait"
    assert ended.count(None) == 2 - taken


def test_a_call_that_ends_as_it_loses_its_place_leaves_no_cancellation_behind(llm: Keeper) -> None:
    async def call() -> int:
        protected = block(llm)[0]
        async with protected:
            (_, inside), *_ = protected._permits
            assert inside is not None
            await asyncio.to_thread(inside.lose)
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    with pytest.raises(ProviderWaits):
        asyncio.run(call())
    assert asyncio.run(_left_before(llm)) == 0


async def _left_before(llm: Keeper) -> int:
    """The news comes when the block has been left."""
    protected = block(llm)[0]
    async with protected:
        ((_, inside),) = protected._permits
    assert inside is not None
    inside.lose()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


def test_who_is_cancelled_by_others_too_stays_cancelled(llm: Keeper) -> None:
    async def call() -> None:
        protected = block(llm)[0]
        async with protected:
            ((_, inside),) = protected._permits
            task = asyncio.current_task()
            assert inside is not None
            assert task is not None
            inside._cancel()
            task.cancel()
            await asyncio.get_running_loop().create_future()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call())
