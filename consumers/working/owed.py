"""Effects of a generation that is not read: withheld, and done once it is read, unless another has done them."""

from collections.abc import Callable, Sequence
from uuid import UUID

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.working import steps
from offsetzero.generation import Generation
from offsetzero.store import generations, outbox, runs, withheld
from offsetzero.store.generations import Standing
from offsetzero.store.outbox import OutboxRow
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import Script
from offsetzero.store.withheld import StepEnd

AT_ONCE = 500
"""Effects that are done in one transaction, and the other ones of the same events."""


def withhold(
    identity: EventIdentity,
    step: StepEnd | None,
    standing: Standing,
    rows: Callable[[], Sequence[OutboxRow]] | None = None,
) -> Script[None]:
    """Keep what an event would do besides the tables, in its transaction; nothing when another has done it.

    A generation with a name, which is never read, keeps nothing. Almost always another has done it: so what would be
    published is encoded only when it is kept.

    Args:
        identity: of the event, in a generation that is not read.
        step: how the group's step of a run would end.
        standing: of the generation.
        rows: makes what would be published; None for nothing.

    Raises:
        InvalidEvent, TopicError: as `rows` does.
    """
    if standing.is_named or (step is None and rows is None):
        return
    if not (yield from withheld.is_done(identity, standing.others)):
        yield from withheld.put(identity, step, rows() if rows is not None else ())


def settle(group: ConsumerGroup, generation: Generation, source: str) -> Script[bool]:
    """Do the first of what a generation that is read has withheld, in one transaction.

    In the order in which it was withheld, before anything that it handles now has an effect: the events that it
    publishes of a key keep their order. A member that comes while another is at it waits for it, by the lock.

    Args:
        group: the declaration.
        generation: of the group.
        source: `ce_source` of the run's events.

    Returns:
        Whether there may be more.
    """
    standing = yield from generations.enter(generation)
    if standing is None or not standing.owes:
        return False
    yield "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (withheld.LOCK, generation.group)
    found = yield from withheld.take(generation, AT_ONCE)
    if run_ids := sorted({one.step.run_id for one in found if one.step is not None}):
        yield from runs.lock_all(run_ids)  # in the order in which others take them
    of = [EventIdentity(generation.group, one.source, one.event_id, generation=generation.number) for one in found]
    done: dict[EventIdentity, bool] = {}
    for identity in of:
        if identity not in done:
            done[identity] = yield from withheld.is_done(identity, standing.others)
            if not done[identity]:
                yield from withheld.has_spoken(identity)
    applied = [
        (identity, one.step.run_id)
        for one, identity in zip(found, of, strict=True)
        if one.step is not None and one.step.outcome is Outcome.APPLIED and not done[identity]
    ]
    yield from reopen(group, applied, standing)
    for one, identity in zip(found, of, strict=True):
        if one.row is not None and not done[identity]:
            yield from outbox.insert(one.row)
        yield from steps.end(one.step, group.name, source)  # one that has ended stays as it is
    return bool(found)


def reopen(group: ConsumerGroup, applied: Sequence[tuple[EventIdentity, UUID]], standing: Standing) -> Script[None]:
    """Have steps of runs wait again that another generation has failed, so that they can end well.

    As an operator's redrive does: somebody had this generation read, and the audit says who and why.

    Args:
        group: the declaration.
        applied: events that this generation, which is read, has applied; with their runs.
        standing: of the generation.
    """
    if not applied or not standing.others:
        return
    events = [(identity.source, identity.event_id) for identity, _ in applied]
    failed = yield from withheld.failed(group.name, events, standing.others)
    again = sorted({run_id for identity, run_id in applied if (identity.source, identity.event_id) in failed})
    if again:
        yield from runs.lock_all(again)
        yield from runs.requeue_steps([(run_id, group.name) for run_id in again])
