"""How `offsetzero rebuild` has a generation read: tried until it succeeds, or waiting does not help."""

import time
from dataclasses import dataclass

import psycopg

from offsetzero.cli.rebuild_members import Members
from offsetzero.cli.rebuild_run import LOOK_SECONDS, Plan, Rebuild
from offsetzero.clock import SYSTEM
from offsetzero.consumers.rebuilding import switching
from offsetzero.consumers.rebuilding.switching import FREEZE_SECONDS, TooFarBehind, Wanted, WouldLose
from offsetzero.errors import TopicError
from offsetzero.generation import Generation
from offsetzero.store import generations
from offsetzero.store.availability import is_away
from offsetzero.store.script import run
from offsetzero.topics import lag

MOVE_SECONDS = 30.0  # for the group's own members to move over
MAX_PAUSE_SECONDS = 60.0  # between tries to switch
WAIT_SECONDS = 900.0  # for events that wait in retry topics: longer than the tiers that a group has by default take
WAIT_LOOK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants a switch, and how.

    Attributes:
        who: for the audit.
        why: for the audit.
        accept: go on although events would be lost.
        freeze: seconds that the generation that is read may stand still.
    """

    who: str
    why: str
    accept: bool = False
    freeze: float = FREEZE_SECONDS


class Retries:
    """How long events that wait for a retry are waited for. Pure, but for the clock.

    At first while both generations go on, which costs nobody anything. Where that does not help, because others wait
    when those are done, the one that is read stands still for what is left: then there are no others.
    """

    def __init__(self) -> None:
        self._until = SYSTEM.monotonic() + WAIT_SECONDS
        self._pause = 1.0
        self.frozen = False
        """Whether the next try is to wait for them while the one that is read stands still."""

    def again_in(self, found: WouldLose) -> float | None:
        """Seconds until the next try; None when to wait does not help, or has not helped."""
        due = switching.due_in(found)
        if due is None or SYSTEM.monotonic() + due > self._until:
            return None
        if found.stood_still:  # they have failed again, or come late: what is read is not to stand still all the time
            self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
        self.frozen = True
        return max(self._pause, min(due, WAIT_LOOK_SECONDS))

    def told(self, found: WouldLose) -> str:
        """What is waited for, for people."""
        count = "1 event waits" if found.count == 1 else f"{found.count:,} events wait"
        due, left = switching.due_in(found) or 0.0, self._until - SYSTEM.monotonic()
        then = f"due in {due:,.0f} s" if due > 0 else "due now, or behind others of their keys"
        still = ", while the other one stood still" if found.stood_still else ""
        return f"{count} in retry topics{still}, {then}; the new generation goes on, for {left:,.0f} s at most"


def switch(one: Rebuild, plan: Plan, generation: Generation, members: Members, wish: Wish) -> None:
    """Have a generation read; tried until it succeeds.

    Raises:
        WouldLose: readers would go backwards, and to wait does not help, or has not helped.
        ServerError, TopicError, psycopg.Error: as `Rebuild.fill`.
    """
    group, old = one.group.name, Generation(one.group.name, plan.read.number)
    wanted = Wanted(old, generation, one.topics, one.tiers, wish.who, wish.why, wish.accept)
    pause, is_unclear, retries = 1.0, False, Retries()
    while True:
        members.check()
        begun = SYSTEM.monotonic()
        try:
            if is_unclear and run(one.connection, generations.active(group)) == generation.number:
                one.say(f"Generation {generation.number} of {group} is read now.")
                return
            made = switching.switch(one.settings, one.connection, wanted, wish.freeze, retries=retries.frozen)
        except WouldLose as error:
            if (seconds := retries.again_in(error)) is None:
                raise
            one.say(retries.told(error))
            _go_on(members, seconds)
            continue
        except TooFarBehind as error:
            one.say(f"{error}; tried again in {pause:.0f} s")
        except (psycopg.Error, TopicError) as error:
            if isinstance(error, psycopg.Error) and not is_away(error):
                raise
            one.say(f"{str(error).strip()}; tried again in {pause:.0f} s")
            is_unclear = True  # the pointer may have moved, and the answer be lost
            one.alone.mend()
        else:
            accepted = f", {made.accepted:,} events are missing in it" if made.accepted else ""
            one.say(
                f"Generation {generation.number} of {group} is read now{accepted}; generation"
                f" {old.number} stood still for {SYSTEM.monotonic() - begun:.1f} s at most."
            )
            return
        _go_on(members, pause)
        pause = min(pause * 2, MAX_PAUSE_SECONDS)


def hand_over(one: Rebuild, old: Generation, members: Members) -> None:
    """Wait until the group's own members work for the generation that is read, when it has any."""
    deadline = SYSTEM.monotonic() + MOVE_SECONDS
    if not lag.group_state(one.settings, old.name).members:
        one.say(f"The group has no members of its own: start them with `offsetzero groups run {one.name}`.")
        return
    while lag.group_state(one.settings, old.name).members:
        members.check()
        if SYSTEM.monotonic() > deadline:
            one.say(
                f"Members still work for generation {old.number} after {MOVE_SECONDS:.0f} s: start them anew,"
                f" without --generation; nobody else writes what is read now."
            )
            return
        time.sleep(LOOK_SECONDS)
    one.say("The group's members have moved over.")


def _go_on(members: Members, seconds: float) -> None:
    """Let the members work for so long."""
    end = SYSTEM.monotonic() + seconds
    while (left := end - SYSTEM.monotonic()) > 0:
        members.check()
        time.sleep(min(left, LOOK_SECONDS))
