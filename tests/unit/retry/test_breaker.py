"""When a provider is down, and whose fault a failure is."""

import pytest

from offsetzero.retry.breaker import (
    ALONE_SECONDS,
    DOUBT_SECONDS,
    FAILING,
    FORBIDDEN,
    HALF,
    KEPT,
    KEPT_SECONDS,
    UNAUTHORISED,
    Answer,
    Breaker,
    Call,
    Caller,
    Fault,
)

INTERVAL = 10.0


class Provider:
    """A breaker, and the time; each call has a record of its own unless it is named."""

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.now = 1000.0
        self.number = 0

    def begin(self, record: str = "", tenant: str = "") -> Call | float:
        """A call that begins now, or the seconds to wait."""
        self.number += 1
        self.now += 0.001
        caller = Caller(record or f"record-{self.number}", tenant)
        permit = f"permit-{self.number}"
        self.breaker, wait = self.breaker.begin(self.now, permit, caller, INTERVAL, probing=bool(self.breaker.probe))
        return wait or Call(permit, caller, self.now)

    def called(self, record: str = "", tenant: str = "") -> Call:
        call = self.begin(record, tenant)
        assert isinstance(call, Call)
        return call

    def end(self, call: Call, answer: Answer) -> Fault:
        """It ends a moment later."""
        self.now += 0.001
        self.breaker = self.breaker.end(self.now, call, answer, INTERVAL)
        return self.fault(call, answer, self.now)

    def fault(self, call: Call, answer: Answer, ended: float) -> Fault:
        return self.breaker.fault(self.now, call, answer, ended)

    def do(self, answer: Answer, record: str = "", tenant: str = "") -> Fault:
        return self.end(self.called(record, tenant), answer)


@pytest.fixture
def provider() -> Provider:
    return Provider()


def test_half_of_the_last_20_calls_opens_it(provider: Provider) -> None:
    for _ in range(30):
        provider.do(Answer.SERVED)
    for _ in range(9):
        provider.do(Answer.FAILED)
        provider.do(Answer.ANSWERED)
    assert not provider.breaker.cause
    provider.do(Answer.FAILED)
    assert provider.breaker.cause == FAILING


def test_a_401_opens_it_at_once(provider: Provider) -> None:
    for _ in range(30):
        provider.do(Answer.SERVED)
    assert provider.do(Answer.DOWN) is Fault.PROVIDERS
    assert provider.breaker.cause == UNAUTHORISED
    assert provider.begin() == pytest.approx(INTERVAL, abs=0.01)


def test_one_probes_at_an_interval_and_the_first_that_is_answered_closes_it(provider: Provider) -> None:
    provider.do(Answer.DOWN)
    for _ in range(3):
        provider.now += INTERVAL - 0.01
        assert isinstance(provider.begin(), float)
        provider.now += 0.011
        probe = provider.called()
        assert provider.begin() == 1.0, "one at a time"
        assert provider.end(probe, Answer.FAILED) is Fault.PROVIDERS
        assert provider.begin() == pytest.approx(INTERVAL, abs=0.01)
    provider.now += INTERVAL
    provider.do(Answer.SERVED)
    assert not provider.breaker.cause
    assert [provider.do(Answer.SERVED) for _ in range(3)]


def test_calls_that_had_begun_before_say_nothing_new(provider: Provider) -> None:
    early = [provider.called() for _ in range(20)]
    provider.do(Answer.DOWN)
    provider.end(early[0], Answer.SERVED)
    assert provider.breaker.cause, "only the probe closes it"
    assert provider.end(early[1], Answer.FAILED) is Fault.PROVIDERS
    provider.now += INTERVAL
    provider.do(Answer.SERVED)
    for call in early[2:]:  # time-outs of the outage, told after its end
        assert provider.end(call, Answer.FAILED) is Fault.PROVIDERS
    assert not provider.breaker.cause


def test_a_failure_is_its_records_own_when_another_call_is_answered_after_it(provider: Provider) -> None:
    failed, other = provider.called(), provider.called()
    assert provider.end(failed, Answer.FAILED) is Fault.UNDECIDED
    ended = provider.now
    assert provider.fault(failed, Answer.FAILED, ended) is Fault.UNDECIDED
    provider.end(other, Answer.SERVED)
    assert provider.fault(failed, Answer.FAILED, ended) is Fault.OWN


def test_a_failure_that_nothing_is_known_of_is_its_records_own_after_a_moment(provider: Provider) -> None:
    failed = provider.called()
    provider.end(failed, Answer.FAILED)
    ended = provider.now
    provider.now += DOUBT_SECONDS
    assert provider.fault(failed, Answer.FAILED, ended) is Fault.OWN


def test_when_all_fail_at_once_it_is_nobodys_own_fault(provider: Provider) -> None:
    calls = [provider.called() for _ in range(20)]
    faults = [provider.end(call, Answer.FAILED) for call in calls]
    assert Fault.OWN not in faults
    assert provider.breaker.cause == FAILING
    assert all(provider.fault(call, Answer.FAILED, provider.now) is Fault.PROVIDERS for call in calls)


def test_a_403_that_another_record_does_not_get_is_the_records_own(provider: Provider) -> None:
    other = provider.called()
    assert provider.do(Answer.FORBIDDEN, "mine") is Fault.UNDECIDED
    provider.end(other, Answer.SERVED)  # begun before: the key may have been withdrawn since
    assert provider.do(Answer.FORBIDDEN, "mine") is Fault.UNDECIDED
    provider.do(Answer.SERVED)
    assert provider.do(Answer.FORBIDDEN, "mine") is Fault.OWN
    assert not provider.breaker.cause


def test_a_403_that_a_probe_with_another_record_gets_too_opens_it(provider: Provider) -> None:
    in_flight = provider.called("second")
    provider.do(Answer.FORBIDDEN, "first")
    provider.do(Answer.FORBIDDEN, "first")
    provider.end(in_flight, Answer.FORBIDDEN)
    assert not provider.breaker.cause, "one record twice, and a call that had begun before"
    assert provider.do(Answer.FORBIDDEN, "third") is Fault.PROVIDERS
    assert provider.breaker.cause == FORBIDDEN
    provider.now += INTERVAL
    assert provider.begin("first") == pytest.approx(INTERVAL / 2, abs=0.01), "others go first"
    provider.do(Answer.SERVED, "fourth")
    assert not provider.breaker.cause
    assert provider.do(Answer.FORBIDDEN, "first") is Fault.OWN


def test_a_tenant_that_gets_403_for_all_its_records_stops_no_others(provider: Provider) -> None:
    for number in range(200):
        calls = [(provider.called(f"{number}-{n}", "bad" if n % 4 == 0 else "good"), n) for n in range(16)]
        for call, n in calls:
            provider.end(call, Answer.FORBIDDEN if n % 4 == 0 else Answer.SERVED)
        assert not provider.breaker.cause


def test_a_single_tenant_opens_it_with_its_second_record(provider: Provider) -> None:
    provider.do(Answer.SERVED, "one", "only")
    provider.do(Answer.FORBIDDEN, "two", "only")
    assert provider.do(Answer.FORBIDDEN, "three", "only") is Fault.PROVIDERS


def test_a_record_alone_is_not_asked_about_for_ever(provider: Provider) -> None:
    assert provider.do(Answer.FORBIDDEN, "lonely") is Fault.UNDECIDED
    provider.now += ALONE_SECONDS
    assert provider.do(Answer.FORBIDDEN, "lonely") is Fault.OWN
    assert not provider.breaker.cause


def test_who_got_403_probes_when_nobody_else_does(provider: Provider) -> None:
    provider.do(Answer.FORBIDDEN, "one")
    provider.do(Answer.FORBIDDEN, "two")
    assert provider.breaker.cause
    provider.now += INTERVAL * 1.5
    provider.do(Answer.SERVED, "one")
    assert not provider.breaker.cause


def test_a_429_to_the_probe_says_that_it_is_up_and_nothing_of_the_key(provider: Provider) -> None:
    provider.do(Answer.DOWN)
    provider.now += INTERVAL
    provider.do(Answer.THROTTLED)
    assert provider.breaker.cause == UNAUTHORISED
    provider.breaker = Breaker(cause=FAILING)
    provider.do(Answer.THROTTLED)
    assert not provider.breaker.cause


def test_what_failed_before_it_closed_does_not_count_again(provider: Provider) -> None:
    for _ in range(HALF):
        provider.do(Answer.FAILED)
    provider.now += INTERVAL
    provider.do(Answer.SERVED)
    provider.do(Answer.FAILED)
    assert not provider.breaker.cause


def test_a_403_of_long_ago_confirms_none_of_today(provider: Provider) -> None:
    provider.do(Answer.FORBIDDEN, "a", "acme")
    provider.now += KEPT_SECONDS + 1
    provider.do(Answer.FORBIDDEN, "b", "globex")
    assert not provider.breaker.cause


def test_a_tenant_that_gets_nothing_but_403_fills_no_memory(provider: Provider) -> None:
    for number in range(3 * KEPT):
        provider.do(Answer.SERVED, tenant="globex")
        provider.do(Answer.FORBIDDEN, f"r{number}", "acme")
    assert len(provider.breaker.refusals) <= KEPT
    assert not provider.breaker.cause
