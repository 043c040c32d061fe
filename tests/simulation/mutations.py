"""Rules of the runtime, switched off one by one: what the simulation must find, or it would prove nothing."""

import contextlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from offsetzero.consumers.order import Copy, Meeting, Order
from offsetzero.consumers.reading import membership
from offsetzero.consumers.reading.commits import Commits
from offsetzero.consumers.reading.facts import ClusterFacts
from offsetzero.consumers.reading.membership import Membership
from offsetzero.consumers.reading.pressure import Pressure
from offsetzero.consumers.record import OwnedPartition, PauseReason, Record
from offsetzero.consumers.working import batches, database, settle, transaction
from offsetzero.consumers.working.blame import Aborted
from offsetzero.consumers.working.database import DatabaseEffects
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.kafka_transaction import KafkaTransaction
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.limits import Limits
from offsetzero.consumers.working.run import Ending
from offsetzero.consumers.working.settle import Settler
from offsetzero.consumers.working.turns import Turns
from offsetzero.store import processed
from simulation.producer import SimDelivery


@dataclass(frozen=True)
class Mutation:
    """A rule that is switched off.

    Attributes:
        rule: what the runtime does otherwise.
        apply: switches it off.
        found: what the law that breaks says; one of these.
        seed: the first to be tried, one that was seen to need the rule; any other is as good.
    """

    rule: str
    apply: Callable[[pytest.MonkeyPatch], None]
    found: tuple[str, ...]
    seed: int = 0


def _highest_done(patch: pytest.MonkeyPatch) -> None:
    """confluentinc/parallel-consumer#826: the highest offset seen was committed."""

    def committable(self: OwnedPartition) -> int | None:
        done = [record.offset + 1 for record in self._undone if record.done]
        return max(done, default=self._undone[0].offset if self._undone else self.position)

    patch.setattr(OwnedPartition, "committable", committable)


def _no_ownership(patch: pytest.MonkeyPatch) -> None:
    """karafka#3220: a revoked owner still dead-lettered."""
    patch.setattr(OwnedPartition, "active", property(lambda _: True, lambda _, value: None))


def _no_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    """arroyo: committed past a dead letter that was never delivered."""
    patch.setattr(SimDelivery, "result", lambda _, timeout=None: None)


def _no_dedupe(patch: pytest.MonkeyPatch) -> None:
    def claim(identity: Any, outcome: Any, silent: bool = False) -> Generator[Any, Any, bool]:
        yield processed._INSERT, (*identity.key(), outcome.value, silent)
        return True

    def claim_all(identities: Any, outcome: Any, silent: bool = False) -> Generator[Any, Any, list[bool]]:
        for identity in identities:
            yield from claim(identity, outcome)
        return [True] * len(identities)

    patch.setattr(processed, "claim", claim)
    patch.setattr(processed, "claim_all", claim_all)


def _commit_what_is_lost(patch: pytest.MonkeyPatch) -> None:
    """librdkafka#5604: offsets of partitions that are no longer owned."""
    original = Membership.on_lost

    def on_lost(self: Membership, consumer: Any, partitions: Any) -> None:
        self._commits.commit_now(consumer, self._assignment.stays())
        original(self, consumer, partitions)

    patch.setattr(Membership, "on_lost", on_lost)


def _no_lanes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyLanes, "add", lambda self, record: self._ready.append(record))
    patch.setattr(KeyLanes, "_free", lambda self, key: None)


def _no_wake_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_call_workers", lambda self: None)


def _no_bound(patch: pytest.MonkeyPatch) -> None:
    """confluent-kafka-python#759: prefetch fills memory."""
    patch.setattr(Pressure, "room", lambda self, partitions: 500)


def _payloads_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Record, "free", lambda self: None)


def _failed_commit_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Commits, "_failed", lambda self, partitions, error: None)


def _outages_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DatabaseEffects, "is_away", lambda self, error, record: False)
    patch.setattr(transaction, "is_away", lambda error: False)  # a statement of ours
    patch.setattr(settle, "is_away", lambda error: False)  # before a retry it is asked once more


def _markers_not_counted(patch: pytest.MonkeyPatch) -> None:
    """parallel-consumer#329: transaction markers, and lag never 0."""
    patch.setattr(OwnedPartition, "reach", lambda self, position: None)


def _stays_paused(patch: pytest.MonkeyPatch) -> None:
    """quix-streams#1124: a partition stays paused, and the application looks healthy."""
    patch.setattr(Pressure, "resume", lambda self, partitions, reason: None)


def _no_bound_on_revoke(patch: pytest.MonkeyPatch) -> None:
    """spring-kafka#2542: polling stops for as long as a handler likes."""
    patch.setattr(membership, "REVOKE_SECONDS", 1000.0)


def _undone_counts_as_done(patch: pytest.MonkeyPatch) -> None:
    """ag2ai/faststream#1980: "no ack" is lost when a later success commits past it."""
    original = Turns.finish
    patch.setattr(Turns, "finish", lambda self, record, done: original(self, record, done=True))


def _failed_settling_is_done(patch: pytest.MonkeyPatch) -> None:
    """spring-kafka#1494: the dead letter could not be published, and was committed anyway."""
    original = Settler.end

    def end(self: Settler, call: Any, failure: Any) -> Ending:
        ending = original(self, call, failure)
        return Ending.DONE if ending is Ending.AGAIN else ending

    patch.setattr(Settler, "end", end)


def _halves_begun_anyway(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches._Work, "is_over", lambda self, call: False)


def _aborted_counts_as_done(patch: pytest.MonkeyPatch) -> None:
    original = KafkaTransaction.run

    def run(self: KafkaTransaction, *arguments: Any) -> None:
        with contextlib.suppress(Aborted):
            original(self, *arguments)

    patch.setattr(KafkaTransaction, "run", run)


def _nothing_parked(patch: pytest.MonkeyPatch) -> None:
    """mopl#266: A's backoff let B pass."""
    original = Order.meets

    def meets(self: Order, lane: Any, offset: int) -> Meeting:
        found = original(self, lane, offset)
        return Meeting.RUN if found is Meeting.PARK else found

    patch.setattr(Order, "meets", meets)


def _nothing_sent_back(patch: pytest.MonkeyPatch) -> None:
    """wolverine#3476: later messages of the key overtook."""
    patch.setattr(KeyLanes, "part", lambda self, key, unwanted: [])


def _batches_go_on(patch: pytest.MonkeyPatch) -> None:
    original = batches._Work.__init__
    patch.setattr(batches._Work, "__init__", lambda self, *, ordered: original(self, ordered=False))


def _superseded_runs(patch: pytest.MonkeyPatch) -> None:
    original = Order.meets

    def meets(self: Order, lane: Any, offset: int) -> Meeting:
        found = original(self, lane, offset)
        return Meeting.RUN if found is Meeting.UNREAD else found

    patch.setattr(Order, "meets", meets)


def _last_copy_read_is_live(patch: pytest.MonkeyPatch) -> None:
    original = Order.take_in

    def take_in(self: Order, copy: Copy) -> Copy | None:
        known = self.live.get(copy.origin)
        if known is not None and known.stay is not None and copy.stay is not None:
            copy.version = known.version[0], known.version[1] + 1, 0
        return original(self, copy)

    patch.setattr(Order, "take_in", take_in)


def _highest_origin_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copy, "__lt__", lambda self, other: self.origin > other.origin)


def _copies_run_at_once(patch: pytest.MonkeyPatch) -> None:
    original = Order.__init__

    def init(self: Order, home: OwnedPartition, **given: Any) -> None:
        original(self, home, **given | {"is_complete": True})

    patch.setattr(Order, "__init__", init)


def _sources_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    original = Membership.__init__

    def init(self: Membership, *given: Any, ahead: bool) -> None:
        original(self, *given, ahead=False)

    patch.setattr(Membership, "__init__", init)
    _copies_run_at_once(patch)


def _not_held(patch: pytest.MonkeyPatch) -> None:
    """wolverine#3476."""
    patch.setattr(Settler, "_hold", lambda self, call: None)


def _holds_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "hold", lambda self, order, hold: None)


def _holds_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(database, "claim", lambda group, call, outcome, silent: processed.claim(call.identity, outcome))


def _nothing_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DatabaseEffects, "_mark", lambda self, call: True)


def _marked_beside_others(patch: pytest.MonkeyPatch) -> None:
    original = database.open_mark
    patch.setattr(database, "open_mark", lambda identity, member, *, alone: original(identity, member, alone=True))


def _replay_not_acknowledged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OwnedPartition, "acknowledged", property(lambda self: self.position, lambda _self, _value: None))


def _forced_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterFacts, "_forced", lambda self: None)


def _limits_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "_full", lambda self, kind: None)


def _limit_not_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "_place_one", lambda self, limit, name: None)


def _bulk_stays_paused(patch: pytest.MonkeyPatch) -> None:
    original = Pressure.resume

    def resume(self: Pressure, stays: Iterable[OwnedPartition], reason: PauseReason) -> None:
        if reason is not PauseReason.LANE:
            original(self, stays, reason)

    patch.setattr(Pressure, "resume", resume)


MUTATIONS = {
    "highest-done": Mutation("commit the lowest undone offset", _highest_done, ("which is not done",)),
    "no-ownership": Mutation(
        "work only on what is owned", _no_ownership, ("having lost", "that it has lost", "back to")
    ),
    "no-acknowledgement": Mutation("await the broker's answer", _no_acknowledgement, ("which is not done",)),
    "no-dedupe": Mutation("claim each event", _no_dedupe, ("a second effect",)),
    "commit-lost": Mutation("commit nothing in on_lost", _commit_what_is_lost, ("which it has lost",)),
    "no-lanes": Mutation("one record of a key at a time", _no_lanes, ("is in work", "out of order")),
    "no-wake-up": Mutation("wake workers", _no_wake_up, ("not done after",)),
    "no-bound": Mutation("bound what is in flight", _no_bound, ("in memory",)),
    "payloads-kept": Mutation("free done records", _payloads_kept, ("in memory",)),
    "failed-commit": Mutation("repeat a failed commit", _failed_commit_forgotten, ("is committed at",), seed=49),
    "outages-count": Mutation("consume no attempt in an outage", _outages_count, ("though it never fails",)),
    "markers": Mutation("count positions, not records", _markers_not_counted, ("is committed at", "stalled"), seed=11),
    "stays-paused": Mutation("resume what was paused", _stays_paused, ("paused by",)),
    "revoke-unbounded": Mutation(
        "bound the wait in on_revoke", _no_bound_on_revoke, ("did not poll", "ended as applied"), seed=45
    ),
    "undone-is-done": Mutation("leave undone what was not settled", _undone_counts_as_done, ("which is not done",)),
    "aborted-is-done": Mutation(
        "repeat an aborted transaction", _aborted_counts_as_done, ("which is not done",), seed=5
    ),
    "halves-anyway": Mutation(
        "begin no half of a batch that was lost", _halves_begun_anyway, ("that it has lost",), seed=79
    ),
    "nothing-parked": Mutation("park behind what waits", _nothing_parked, ("out of order", "is held for")),
    "nothing-sent-back": Mutation(
        "park what was queued behind it", _nothing_sent_back, ("out of order", "is held for")
    ),
    "batches-go-on": Mutation("begin nothing behind it in a batch", _batches_go_on, ("out of order", "is held for")),
    "superseded-runs": Mutation(
        "finish unread what has a later copy", _superseded_runs, ("out of order", "is held for"), seed=46
    ),
    "last-is-live": Mutation("of copies run the latest version", _last_copy_read_is_live, ("which is not done",)),
    "highest-first": Mutation("run the lowest origin first", _highest_origin_first, ("out of order", "is held for")),
    "copies-at-once": Mutation(
        "run copies when all are known", _copies_run_at_once, ("out of order", "is held for"), seed=107
    ),
    "sources-at-once": Mutation(
        "read sources when all copies are known", _sources_do_not_wait, ("out of order", "is held for"), seed=23
    ),
    "not-held": Mutation("hold the key of a dead letter", _not_held, ("is held for",), seed=27),
    "holds-forgotten": Mutation(
        "read the holds when assigned", _holds_are_forgotten, ("is held for", "out of order"), seed=32
    ),
    "holds-stay": Mutation("lift a hold with the outcome", _holds_stay, ("not done after",), seed=23),
    "nothing-marked": Mutation("mark what may have killed a process", _nothing_marked, ("process that",)),
    "marked-beside": Mutation(
        "work alone on what is found marked", _marked_beside_others, ("though it never fails", "which fine"), seed=26
    ),
    "replay-at-once": Mutation(
        "await the commit of a replay",
        _replay_not_acknowledged,
        ("is said to be applied, and was not committed",),
        seed=8,
    ),
    "forced-forgotten": Mutation(
        "ask what is to be done again when a partition is opened", _forced_forgotten, ("which it was forced to have",)
    ),
    "limits-not-kept": Mutation("handle no more that are alike than may be", _limits_not_kept, ("at once",)),
    "limit-not-left": Mutation(
        "let one run when another of its kind has ended", _limit_not_left, ("not done after", "could run")
    ),
    "lane-stays-paused": Mutation("fetch the bulk topic again", _bulk_stays_paused, ("not done after", "paused by")),
    "settled-anyway": Mutation(
        "stop at a refused append", _failed_settling_is_done, ("which is not done", "is without an outcome")
    ),
}
