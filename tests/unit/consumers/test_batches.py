"""Runs of a batch handler: what runs again keeps the order of its key, and waits for nothing that comes behind it."""

from collections.abc import Callable, Sequence
from typing import Any

from offsetzero.clock import SYSTEM
from offsetzero.consumers.group import Batch, Route
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working import handling
from offsetzero.consumers.working.batches import BatchHandling
from offsetzero.consumers.working.calls import Call
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.run import Ending, Run
from offsetzero.consumers.working.tally import Tally
from offsetzero.consumers.working.transaction import HandlerRaised, NotNow
from offsetzero.consumers.working.turns import AGAIN_SECONDS
from offsetzero.errors import SchemasUnavailable
from offsetzero.retry.failures import Poison
from support import ManualClock


class Parts:
    """In place of reader, effects and settler: what becomes of a record follows from its value."""

    def __init__(self) -> None:
        self.did: list[tuple[str, int]] = []
        self.calls: list[list[int]] = []
        self.is_known = False
        self.takes_appends = True
        self.moves = False  # what fails is retried, rather than ended
        self.left: list[Ending] = []
        self.fails: Callable[[Sequence[Call]], BaseException | None] = lambda calls: None

    def read(self, record: Record) -> Call:
        if record.value == b"schema" and not self.is_known:
            raise SchemasUnavailable("not now")
        call = Call(record, "audit", None)
        if record.value == b"poison":
            call.failure = Poison("unreadable", "bytes")
        else:
            call.route = Route.to(lambda event, ctx: None)
        return call

    def must_wait(self, record: Record) -> bool:
        return False

    def begin(self, call: Call) -> str | None:
        assert call.failure is not None
        raise call.failure

    def perform_batch(self, calls: Sequence[Call], handler: Batch, context: Any) -> list[str]:
        self.calls.append([call.record.offset for call in calls])
        if (error := self.fails(calls)) is not None:
            raise error
        self.did += [("applied", call.record.offset) for call in calls]
        return ["applied"] * len(calls)

    def leave(self, call: Call, ending: Ending) -> None:
        self.left.append(ending)

    def is_away(self, error: BaseException, record: Record | None) -> bool:
        return False

    def not_now(self, record: Record, error: BaseException) -> Ending:
        return Ending.AGAIN

    def end(self, call: Call, failure: BaseException) -> Ending:
        if not self.takes_appends:
            return Ending.AGAIN
        self.did.append(("settled", call.record.offset))
        if self.moves:
            call.record.moved = (0, 1, 0)
        return Ending.DONE


def records(*values: bytes, key: bytes = b"k") -> list[Record]:
    stay = OwnedPartition("documents", "id", 0)
    return [Record(stay, number, key, value, [], 0) for number, value in enumerate(values)]


def work(parts: Any, run: Run) -> list[tuple[int, Ending]]:
    every: Any = parts
    given = handling.Parts(every, every, every, every, lambda call: every, SYSTEM, Tally("audit"))
    BatchHandling(given, Batch(lambda events, ctx: None, 10)).work(run)
    return [(record.offset, ending) for record, ending in run.ended]


def test_an_unknown_schema_lets_what_comes_before_it_pass_and_holds_what_follows() -> None:
    parts = Parts()
    ended = work(parts, Run(records(b"1", b"schema", b"2"), 0.0, whole=True))
    assert ended == [(0, Ending.DONE), (1, Ending.AGAIN), (2, Ending.AGAIN)]
    assert parts.did == [("applied", 0)]


def test_what_runs_again_while_database_and_schemas_are_away_keeps_its_order() -> None:
    parts, clock = Parts(), ManualClock()
    dispatcher = Dispatcher(clock, batch=10)
    dispatcher.add(records(b"1", b"schema", b"2"))
    parts.fails = lambda calls: NotNow()
    run = dispatcher.take_nowait(10)
    assert run is not None
    work(parts, run)
    dispatcher.end([run])
    parts.fails, parts.is_known = lambda calls: None, True
    clock.advance(AGAIN_SECONDS)
    dispatcher.tick()
    run = dispatcher.take_nowait(10)
    assert run is not None
    work(parts, run)
    assert parts.did == [("applied", 0), ("applied", 1), ("applied", 2)]


def test_a_poison_record_has_its_outcome_before_the_next_of_its_key_begins() -> None:
    parts = Parts()
    work(parts, Run(records(b"1", b"poison", b"2"), 0.0, whole=True))
    assert parts.did == [("applied", 0), ("settled", 1), ("applied", 2)]


def test_nothing_passes_a_poison_record_of_its_key_that_cannot_be_appended() -> None:
    parts = Parts()
    parts.takes_appends = False
    ended = work(parts, Run(records(b"poison", b"1"), 0.0, whole=True))
    assert ended == [(0, Ending.AGAIN), (1, Ending.AGAIN)]
    assert parts.did == []


def test_what_stands_behind_poison_that_runs_again_keeps_its_order() -> None:
    parts = Parts()
    parts.takes_appends = False
    ended = work(parts, Run(records(b"poison", b"1", b"2", b"3"), 0.0, whole=True))
    assert ended == [(number, Ending.AGAIN) for number in range(4)]


def test_nothing_behind_a_record_that_is_retried_begins() -> None:
    parts = Parts()
    parts.moves = True
    parts.fails = lambda calls: HandlerRaised() if any(call.record.value == b"bad" for call in calls) else None
    mixed = [*records(b"1", b"bad", b"2", b"3"), *records(b"4", key=b"other")]
    ended = work(parts, Run(mixed, 0.0, whole=True))
    assert parts.did == [("applied", 0), ("settled", 1), ("applied", 0)]
    assert [ending for _, ending in ended].count(Ending.BEHIND) == 2


def test_poison_of_other_keys_does_not_cut_a_call() -> None:
    parts = Parts()
    mixed = [*records(b"poison"), *records(b"1", b"2", b"3", key=b"other")]
    work(parts, Run(mixed, 0.0, whole=True))
    assert parts.calls == [[0, 1, 2]]


def test_a_batch_that_fails_is_halved_until_only_the_failing_record_is_settled() -> None:
    parts = Parts()
    parts.fails = lambda calls: HandlerRaised() if any(call.record.value == b"bad" for call in calls) else None
    ended = work(parts, Run(records(b"1", b"2", b"bad", b"3"), 0.0, whole=True))
    assert ended == [(number, Ending.DONE) for number in range(4)]
    assert parts.did == [("applied", 0), ("applied", 1), ("settled", 2), ("applied", 3)]


def test_a_mark_of_a_record_that_is_settled_without_a_call_is_seen_to() -> None:
    parts = Parts()
    (one,) = records(b"poison")
    one.owned.suspects_end = 1
    work(parts, Run([one], 0.0, whole=True))
    assert parts.left == [Ending.DONE]
