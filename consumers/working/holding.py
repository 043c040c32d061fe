"""Holds: with `on_dead_letter="hold"` a key waits for its dead letter until that is redriven or discarded."""

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.working.calls import Call
from offsetzero.store import holds, processed
from offsetzero.store.holds import Hold
from offsetzero.store.processed import Outcome
from offsetzero.store.script import Script


class HeldUp(Exception):
    """Of records that were to be worked on in one call, one turns out to hold up its key."""


def hold_of(call: Call, key: bytes) -> Hold:
    """The hold that a record becomes when it is dead-lettered."""
    hop = call.hop
    return Hold(hop.origin.topic_id, hop.origin.partition, hop.origin.offset, key, hop.redrive_no, hop.hop)


def claim(group: ConsumerGroup, call: Call, outcome: Outcome, *, silent: bool) -> Script[bool]:
    """As `processed.claim`; the outcome that ends a record lifts its hold, in one transaction with it."""
    new = yield from processed.claim(call.identity, outcome, silent=silent)
    if outcome is not Outcome.DEAD_LETTERED:
        yield from look_at_hold(group, call, new=new)
    return new


def look_at_hold(group: ConsumerGroup, call: Call, *, new: bool) -> Script[None]:
    """Lift the hold of a record that has ended, now or before; find out about one that another member has placed.

    A member that dead-letters a record while another takes over its partition places its hold after that one has read
    them: the other finds the record done, and what comes behind it must wait all the same.

    Args:
        group: whose record it is.
        call: of the record; its hold stays when it has ended as a dead letter.
        new: whether it has ended in this transaction.
    """
    hop, record = call.hop, call.record
    origin = hop.origin
    if not record.held:
        if not new and group.on_dead_letter == "hold" and record.key is not None:
            place = origin.topic_id, origin.partition, origin.offset
            record.held = yield from holds.exists(call.group, *place, call.known_as)
    elif new or (yield from processed.find(call.identity)) is not Outcome.DEAD_LETTERED:
        yield from holds.lift(
            call.group, origin.topic_id, origin.partition, origin.offset, hop.redrive_no, call.known_as
        )
        record.lifted = True
