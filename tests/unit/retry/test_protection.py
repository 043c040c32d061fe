"""What processes that come and die do to a provider together: a bound on its calls, and one probe at a time."""

import json

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from offsetzero.retry.breaker import Answer, Call, Caller, Fault
from offsetzero.retry.protection import LEASE_SECONDS, Limits, Protection, Why
from support import machine

LIMITS = Limits(calls=3, rate=50.0, interval=10.0)


class ProtectionMachine(RuleBasedStateMachine):
    """Calls begin, are renewed, end, or die with their process; the provider answers as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.known = Protection.new(self.now, LIMITS)
        self.calls: dict[str, tuple[Call, float]] = {}  # that live, with the end of their leases
        self.probes: list[float] = []
        self.number = 0

    def keep(self, known: Protection) -> None:
        """As the database does: what comes back is what was written."""
        self.known = Protection.from_json(json.loads(json.dumps(known.to_json())))
        assert self.known == known

    @rule(seconds=st.floats(0, LEASE_SECONDS))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.calls = {permit: (call, ends) for permit, (call, ends) in self.calls.items() if ends > self.now}

    @rule(record=st.integers(0, 5), tenant=st.sampled_from(["", "a", "b"]))
    def begin(self, record: int, tenant: str) -> None:
        self.number += 1
        permit, is_open = f"p{self.number}", bool(self.known.breaker.cause)
        caller = Caller(f"r{record}", tenant)
        known, wait = self.known.begin(self.now, permit, caller, LIMITS)
        if wait is not None:
            assert known is self.known
            assert wait.seconds > 0
            assert wait.why is not Why.BUSY or len(self.calls) == LIMITS.calls
            return
        self.keep(known)
        self.calls[permit] = Call(permit, caller, self.now), self.now + LEASE_SECONDS
        if is_open:
            assert known.breaker.probe == permit
            self.probes.append(self.now)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), answer=st.sampled_from(Answer))
    def end(self, data: st.DataObject, answer: Answer) -> None:
        permit = data.draw(st.sampled_from(sorted(self.calls)))
        call, _ = self.calls.pop(permit)
        was_open, was_probe = bool(self.known.breaker.cause), self.known.breaker.probe == permit
        self.keep(self.known.end(self.now, call, answer, LIMITS))
        is_open = bool(self.known.breaker.cause)
        if was_open and not is_open:
            assert was_probe
        if is_open and not was_open:
            assert answer in (Answer.DOWN, Answer.FAILED, Answer.FORBIDDEN)
        if is_open and answer is not Answer.THROTTLED:
            assert self.known.fault(self.now, call, answer, self.now, LIMITS) is Fault.PROVIDERS

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        permits = data.draw(st.sets(st.sampled_from(sorted(self.calls))))
        self.keep(self.known.renew(self.now, permits))
        self.calls |= {permit: (self.calls[permit][0], self.now + LEASE_SECONDS) for permit in permits}

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A process is killed: nobody renews or ends its call, and its permit is free when the lease ends."""
        permit = data.draw(st.sampled_from(sorted(self.calls)))
        self.now = max(self.now, self.calls[permit][1])
        self.pass_time(0.0)
        assert permit not in self.calls

    @invariant()
    def the_bound_holds(self) -> None:
        assert len(self.calls) <= LIMITS.calls
        assert set(self.calls) == {one for one, ends in self.known.permits.items() if ends > self.now}

    @invariant()
    def no_probe_stands_in_anothers_way(self) -> None:
        breaker = self.known.breaker
        if breaker.cause:
            wait = self.known.wait(self.now, LIMITS)
            longest = max(LIMITS.interval, 1.0)
            assert wait is None or wait.seconds <= longest + 1e-6

    def teardown(self) -> None:
        """From wherever it came to, a provider that is well again is used again within some intervals."""
        self.now += LEASE_SECONDS  # all others are dead
        end = self.now + 100
        while self.now < end:
            self.number += 1
            known, wait = self.known.begin(self.now, f"p{self.number}", Caller("new", "new"), LIMITS)
            if wait is None:
                call = Call(f"p{self.number}", Caller("new", "new"), self.now)
                known = known.end(self.now, call, Answer.SERVED, LIMITS)
                assert not known.breaker.cause
                return
            self.known = known
            self.now += wait.seconds + 1e-6
        pytest.fail("it was never called again")


TestProtection = ProtectionMachine.TestCase
TestProtection.settings = machine(25)


def test_a_clock_that_was_set_back_makes_no_lease_longer() -> None:
    known, _ = Protection.new(5000.0, LIMITS).begin(5000.0, "dead", Caller("r"), LIMITS)
    back = known.not_ahead_of(1000.0, LIMITS)
    assert back.permits == {"dead": 1000.0 + LEASE_SECONDS}


def test_the_first_429_is_its_records_and_the_next_are_nobodys() -> None:
    known = Protection.new(0.0, LIMITS)
    calls = []
    for number in range(3):
        known, _ = known.begin(1.0, f"p{number}", Caller(f"r{number}"), LIMITS)
        calls.append(Call(f"p{number}", Caller(f"r{number}"), 1.0))
    faults = []
    for call in calls:
        faults.append(known.fault(2.0, call, Answer.THROTTLED, 2.0, LIMITS))
        known = known.end(2.0, call, Answer.THROTTLED, LIMITS, retry_after=3.0)
    assert faults == [Fault.OWN, Fault.PROVIDERS, Fault.PROVIDERS]
    _, wait = known.begin(2.5, "p9", Caller("r9"), LIMITS)
    assert wait is not None
    assert (wait.why, wait.seconds) == (Why.THROTTLED, 2.5)
