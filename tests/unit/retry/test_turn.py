"""What a turn makes of a clock of the database that was set: a failover to a server whose clock is behind, or NTP."""

from collections.abc import Callable

import pytest

from offsetzero.retry.breaker import DOUBT_SECONDS, HALF, Answer, Call, Caller, Fault
from offsetzero.retry.bucket import MAX_PAUSE
from offsetzero.retry.desk import MAX_UNTOLD, Desk
from offsetzero.retry.protection import LEASE_SECONDS, Limits, Protection, Wait, Why
from offsetzero.retry.turn import Asking, Ended, Turn

LIMITS = Limits(calls=3, rate=50.0, interval=10.0)
NOW, HOUR = 10_000.0, 3600.0


class Provider:
    """What is known of it, as one turn after the other leaves it."""

    def __init__(self) -> None:
        self.known: Protection | None = None
        self.now = NOW
        self.number = 0

    def turn(self, asking: list[Asking], ended: list[Ended], doubts: list[Ended]) -> Turn:
        made = Turn(LIMITS, asking, ended, doubts, [])
        self.known = made.decide(self.known, self.now) or self.known
        return made

    def begin(self) -> Call | Wait:
        self.number += 1
        asking = Asking(Caller(f"r{self.number}"), 0.0, None)  # type: ignore[arg-type]
        self.turn([asking], [], [])
        answer = asking.call or asking.wait
        assert answer is not None
        return answer

    def called(self) -> Call:
        call = self.begin()
        assert isinstance(call, Call)
        return call

    def end(self, call: Call, answer: Answer, retry_after: float | None = None) -> Fault:
        ended = Ended(call, answer, retry_after)
        self.turn([], [ended], [])
        return ended.fault


def all_are_dead(provider: Provider) -> None:
    """Nobody renews or ends these."""
    for _ in range(LIMITS.calls):
        provider.called()


def it_is_down(provider: Provider) -> None:
    provider.end(provider.called(), Answer.DOWN)


def no_token_is_left(provider: Provider) -> None:
    while isinstance(call := provider.begin(), Call):
        provider.end(call, Answer.SERVED)


def it_asked_for_a_pause(provider: Provider) -> None:
    provider.end(provider.called(), Answer.THROTTLED, retry_after=MAX_PAUSE)


@pytest.mark.parametrize(
    ("state", "longest"),
    [
        (all_are_dead, LEASE_SECONDS),
        (it_is_down, LIMITS.interval),
        (no_token_is_left, 1.0),
        (it_asked_for_a_pause, MAX_PAUSE),
    ],
)
def test_a_clock_that_was_set_back_keeps_nobody_waiting_for_longer(
    state: Callable[[Provider], None], longest: float
) -> None:
    provider = Provider()
    state(provider)
    provider.now -= HOUR
    begun = provider.now
    while isinstance(answer := provider.begin(), Wait):
        assert provider.now < begun + longest + 1, f"{answer} still"
        provider.now += max(0.01, min(1.0, answer.seconds))


def test_failures_count_when_the_clock_was_set_back() -> None:
    provider = Provider()
    it_is_down(provider)
    provider.now += LIMITS.interval
    provider.end(provider.called(), Answer.SERVED)
    provider.now -= HOUR
    fault = provider.end(provider.called(), Answer.FAILED)
    assert fault is Fault.UNDECIDED, "it is found out"
    for _ in range(HALF - 1):
        fault = provider.end(provider.called(), Answer.FAILED)
        provider.now += DOUBT_SECONDS / 100
    assert fault is Fault.PROVIDERS
    assert isinstance(provider.begin(), Wait)


def test_a_doubt_ends_when_the_clock_was_set_back_meanwhile() -> None:
    provider = Provider()
    failed = Ended(provider.called(), Answer.FAILED)
    assert not provider.turn([], [failed], []).verdict(failed)[0]
    provider.now -= HOUR
    assert not provider.turn([], [], [failed]).verdict(failed)[0]
    provider.now += DOUBT_SECONDS
    assert provider.turn([], [], [failed]).verdict(failed) == (True, None), "it is the record's own"


def test_a_retry_after_of_an_hour_holds_for_its_record_though_not_for_all() -> None:
    provider = Provider()
    calls = [provider.called() for _ in range(2)]
    provider.end(calls[0], Answer.THROTTLED, retry_after=1.0)
    told = Ended(calls[1], Answer.THROTTLED, HOUR)
    turn = provider.turn([], [told], [])
    assert turn.verdict(told) == (True, Wait(Why.THROTTLED, HOUR))
    assert turn.known is not None
    assert turn.known.wait(provider.now, LIMITS) == Wait(Why.THROTTLED, MAX_PAUSE)


def test_a_lease_is_renewed_three_times_before_it_ends_and_no_oftener() -> None:
    desk, now, renewed = Desk("llm", LIMITS), NOW, []
    desk.held["p"] = None
    desk._renew_at = now + LEASE_SECONDS / 3
    for _ in range(200):
        turn = desk.begin_turn(now, asks=True)
        turn.decide(None, now)
        renewed += [now for _ in turn.renewed]
        desk.end_turn(now, turn)
        now += LEASE_SECONDS / 200
    assert len(renewed) in (2, 3)


def test_what_has_ended_while_the_database_is_away_fills_no_memory() -> None:
    desk = Desk("llm", LIMITS)
    for number in range(3):
        desk.ended += [Ended(Call(f"{number}/{n}", Caller("r"), NOW), Answer.SERVED) for n in range(MAX_UNTOLD)]
        desk.forget_turn(NOW, desk.begin_turn(NOW, asks=True))
    assert len(desk.ended) == MAX_UNTOLD
    assert desk.ended[-1].call.permit == f"2/{MAX_UNTOLD - 1}", "the newest"


def test_a_lease_that_has_ended_is_lost_only_where_others_have_its_place() -> None:
    provider = Provider()
    mine = [provider.called() for _ in range(LIMITS.calls)]
    provider.now += LEASE_SECONDS
    theirs = provider.called()
    back = Turn(LIMITS, [], [], [], {one.permit for one in mine})
    provider.known = back.decide(provider.known, provider.now)
    assert back.lost == sorted(one.permit for one in mine)[:1]
    assert provider.known is not None
    assert set(provider.known.permits) == {one.permit for one in (*mine, theirs)}, "counted until it has ended"
    again = Turn(LIMITS, [], [Ended(theirs, Answer.SERVED)], [], {one.permit for one in mine})
    again.decide(provider.known, provider.now)
    assert again.lost == []
