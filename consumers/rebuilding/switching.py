"""Have another generation read: the protocol of design section 9, steps 3 to 5.

Nothing of it outlives a process that dies in it: the pointer moves in one transaction, and what keeps the generation
that is read from changing anything meanwhile ends by itself.

1. The other generation follows the log closely.
2. The one that is read is frozen: its transactions are told to come again a little later. The other one goes on, until
   it is behind everything that was in the log by then: behind all that the frozen one can have done.
3. What would be lost is looked at once more; whatever it is, the frozen one does not add to it.
4. One transaction, which all others of both wait for, moves the pointer. From then on the other one has effects. What
   it has withheld so far, and the one before it has not done, is owed: its members do that first.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import psycopg

from offsetzero.clock import SYSTEM
from offsetzero.consumers.rebuilding import comparing
from offsetzero.consumers.rebuilding.comparing import Comparison, TooSlow
from offsetzero.consumers.rebuilding.reach import look
from offsetzero.errors import RebuildRefused
from offsetzero.generation import Generation
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import generations, positions, switches
from offsetzero.store.losses import Losses, Lost
from offsetzero.store.script import run
from offsetzero.store.switches import Switch

FREEZE_SECONDS = 30.0
"""How long the generation that is read changes nothing, at most; unless somebody says otherwise."""
HOLD_SECONDS = 30.0
"""How long the group's transactions are waited for, at most: those of both generations wait behind that."""
_RETRIES_SHARE = 2 / 3
"""Of that time, for what waits in retry topics: the rest is for getting behind the log, and for comparing."""
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Wanted:
    """A switch that somebody wants.

    Attributes:
        old: the generation that is read.
        new: the one that is to be.
        topics: the sources of the group.
        tiers: the names of its retry tiers.
        who: for the audit.
        why: for the audit.
        accept: go on although events would be lost.
    """

    old: Generation
    new: Generation
    topics: Sequence[str]
    tiers: Sequence[str]
    who: str
    why: str
    accept: bool = False


class WouldLose(RebuildRefused):
    """Readers would go backwards.

    Attributes:
        count: events that are in the generation that is read, and not in the other one.
        events: the first of them.
        due_ms: when the last of them is to be tried again, since 1970; None when time alone does not bring them all.
        stood_still: whether the one that is read stood still until this was found.
    """

    def __init__(self, wanted: Wanted, found: Losses, *, stood_still: bool) -> None:
        count = "1 event is" if found.count == 1 else f"{found.count:,} events are"
        super().__init__(
            f"group {wanted.old.group}: {count} in generation {wanted.old.number} and not in generation"
            f" {wanted.new.number}; nothing was switched"
        )
        self.count = found.count
        self.events: Sequence[Lost] = found.events
        self.due_ms = found.due_ms
        self.stood_still = stood_still


class TooFarBehind(RebuildRefused):
    """The other generation did not get behind the end of the log in time, or transactions of either last too long; it
    may be tried again."""


def switch(
    settings: Settings,
    connection: psycopg.Connection,
    wanted: Wanted,
    seconds: float = FREEZE_SECONDS,
    *,
    retries: bool = False,
) -> Switch:
    """Move the pointer.

    Args:
        settings: name the cluster.
        connection: to the database; in autocommit.
        wanted: which switch.
        seconds: how long the generation that is read may be frozen.
        retries: whether it may be so while events wait in retry topics that are due within two thirds of that time.

    Returns:
        What was written into the audit.

    Raises:
        WouldLose: see there; with `accept` it is only counted.
        TooFarBehind: see there.
        RebuildRefused: the generation that was to be replaced is not read (any more).
        TopicError: the cluster refuses, or does not answer.
        psycopg.Error: the database does.
    """
    try:
        return _switch(settings, connection, wanted, seconds, seconds * _RETRIES_SHARE if retries else 0.0)
    except WouldLose as error:
        error.events = comparing.with_keys(settings, wanted.new, error.events)  # nothing stands still any more
        raise


def _switch(
    settings: Settings, connection: psycopg.Connection, wanted: Wanted, seconds: float, retries: float
) -> Switch:
    comparison = Comparison(settings, connection, wanted.old, wanted.new, wanted.tiers)
    lost = comparison.look()  # before anything stands still: it may take long
    if _due_within(lost, retries) is None:
        _refuse(wanted, lost, stood_still=False)
    _freeze(connection, wanted, seconds)
    deadline = SYSTEM.monotonic() + seconds
    retried_by = SYSTEM.monotonic() + retries
    try:
        _await_end(settings, connection, wanted, deadline)
        try:
            lost = comparison.look(deadline - SYSTEM.monotonic())
            while not wanted.accept and (due := _due_within(lost, retried_by - SYSTEM.monotonic())) is not None:
                time.sleep(max(_LOOK_SECONDS, due))  # all of it is not there before the last is due
                lost = comparison.look(deadline - SYSTEM.monotonic())
        except TooSlow as error:
            raise TooFarBehind(str(error)) from error
        _refuse(wanted, lost, stood_still=True)
        return _move(connection, wanted, lost.count, deadline)
    finally:
        # By then the pointer may have moved, which has done it; or the connection is gone, and it ends by itself.
        if not connection.closed:
            run(connection, generations.thaw(wanted.old.group))


def due_in(found: Losses | WouldLose) -> float | None:
    """In how many seconds all that would be lost has been tried again; None when time alone does not bring it."""
    return None if found.due_ms is None else max(0.0, (found.due_ms - SYSTEM.now_ms()) / 1000)


def _due_within(lost: Losses, seconds: float) -> float | None:
    """As `due_in`; None, too, when it is not within so many."""
    due = due_in(lost)
    return due if due is not None and due < seconds else None


def _refuse(wanted: Wanted, lost: Losses, *, stood_still: bool) -> None:
    if lost.count and not wanted.accept:
        raise WouldLose(wanted, lost, stood_still=stood_still)


@contextmanager
def _holding(connection: psycopg.Connection, group: str, seconds: float) -> Iterator[None]:
    """A transaction that holds the pointer. A handler that never ends must not have all others wait for it."""
    seconds = min(seconds, HOLD_SECONDS)
    try:
        with connection.transaction():
            run(connection, generations.hold_pointer(group, seconds))
            yield
    except psycopg.errors.LockNotAvailable as error:
        raise TooFarBehind(
            f"group {group}: its transactions did not end within {seconds:.0f} s; nothing was switched"
        ) from error


def _freeze(connection: psycopg.Connection, wanted: Wanted, seconds: float) -> None:
    group, number = wanted.old.group, wanted.old.number
    with _holding(connection, group, seconds):
        if run(connection, generations.active(group)) != number:  # and what is read instead must not stand still
            raise RebuildRefused(f"group {group}: generation {number} is not read any more; nothing was switched")
        run(connection, generations.freeze(group, seconds))


def _await_end(settings: Settings, connection: psycopg.Connection, wanted: Wanted, deadline: float) -> None:
    """Wait until the other generation is behind all that is in the log now."""
    ends = look(settings, connection, wanted.new, wanted.topics).end
    while (lacks := look(settings, connection, wanted.new, wanted.topics).lacks(ends)) > 0:
        if SYSTEM.monotonic() >= deadline:
            raise TooFarBehind(
                f"group {wanted.new.group}: generation {wanted.new.number} was {lacks:,} records behind when its time"
                " was over; nothing was switched"
            )
        time.sleep(_LOOK_SECONDS)


def _move(connection: psycopg.Connection, wanted: Wanted, accepted: int, deadline: float) -> Switch:
    old, new = wanted.old, wanted.new
    made = Switch(UUID(str(uuid7())), old.group, old.number, new.number, wanted.who, wanted.why, accepted)
    with _holding(connection, old.group, max(0.001, deadline - SYSTEM.monotonic())):
        if not run(connection, generations.move(old.group, old.number, new.number)):
            raise TooFarBehind(
                f"group {old.group}: generation {old.number} is not read any more, or did not stand still long enough;"
                " nothing was switched"
            )
        run(connection, switches.add(made, run(connection, positions.of_generation(old))))
    return made
