"""Runs a plan: plays its plan, then waits in quiet until everything is done, and looks whether all laws held.

What has no part in it, steps of runs with their leases above all, is listed in docs/testing.md.
"""

import functools
import itertools
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import KafkaError

from simulation import plan as plans
from simulation import preempt
from simulation.baton import Process
from simulation.clock import START_MS
from simulation.log import Stored
from simulation.member import SimMember, record_of
from simulation.operator import Operator
from simulation.plan import Plan, Published, Step
from simulation.world import SOURCES, World

QUIET_SECONDS = 400.0  # for everything that is left to do; much less is needed
STOP_SECONDS = 120.0


@dataclass
class Result:
    """What became of a plan; `failure` is the law that was broken, or None."""

    seed: int
    failure: str | None
    plan: str
    schedule: list[str]
    seconds: float  # virtual


class Simulation:
    """One run of a plan."""

    def __init__(self, plan: Plan, lines: int | None) -> None:
        self._plan = plan
        self._world = World(plan, lines)
        self._baton = self._world.baton
        self._members: list[SimMember] = []
        self._operator = Operator(self._world)
        self._world.on_killing = self._kill

    def run(self) -> Result:
        """Play it."""
        baton = self._baton
        for at, events in itertools.groupby(self._plan.events, key=lambda event: event.at):
            baton.after(at, functools.partial(self._publish, list(events)))
        for number in range(self._plan.members):
            baton.after(0.1 * number, self._start)
        for step in self._plan.steps:
            baton.after(step.at, lambda step=step: self._do(step))  # type: ignore[misc]
        baton.after(self._plan.seconds + 5.1, self._calm)
        baton.run()
        return Result(self._plan.seed, baton.failure, str(self._plan), list(baton.trace), baton.now)

    def _publish(self, events: list[Published]) -> None:
        now_ms = START_MS + round(self._baton.now * 1000)
        for event in events:
            place = event.topic, event.partition
            self._world.log.skip(place, event.gap)
            self._world.log.append(Stored.of(place, event.key, *record_of(event), now_ms))

    def _start(self) -> None:
        name = f"m{len(self._members)}"
        self._baton.say(f"{name} starts")
        self._members.append(SimMember(self._world, name))

    def _kill(self, process: Process) -> None:
        """An event has killed a process; another one is started in its place, at any time."""
        member = next(one for one in self._members if one.process is process)
        was_stopping = member.stopping
        member.kill()
        if not was_stopping:
            self._baton.after(self._baton.dice.uniform(0.2, 2.0), self._start)

    def _do(self, step: Step) -> None:
        baton, world = self._baton, self._world
        baton.say(f"--- {step.what} {step.member} {step.seconds:.2f}")
        alive = [one for one in self._members if not one.stopping]
        member = alive[step.member % len(alive)] if alive else None
        consumer = world.consumer_of(member.process) if member else None
        match step.what:
            case "kill" | "stop" if member is not None:
                (member.kill if step.what == "kill" else member.stop)()
                baton.after(step.seconds, self._start)
            case "start" if len(alive) < 4:
                self._start()
            case "cut" if consumer is not None and not consumer.is_cut:
                consumer.cut(step.seconds)
            case "database" if not world.database.away:
                world.database.go_away()
                baton.after(step.seconds, world.database.come_back)
            case "commit" | "append" | "transaction" | "admin":
                world.faults.start(step.what)
                baton.after(step.seconds, lambda: world.faults.stop(step.what))
            case "clock" if member is not None:
                member.process.skew += (step.seconds - 2.6) * 1500
            case "empty" if consumer is not None and not self._plan.classic:  # there a list is all that is owned
                consumer.tell(("assign" if step.seconds > 2.5 else "revoke", []))
            case "error" if consumer is not None:
                consumer.tell_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
            case "redrive" | "discard":
                self._operator.work(discard=step.what == "discard")
            case "replay" | plans.FORCE:
                self._replay(step)
            case "markers":
                for place in world.log.places(SOURCES):
                    world.log.skip(place, 1)

    def _replay(self, step: Step) -> None:
        """Of a partition that was read: from somewhere before, sometimes from a place that its log does not have."""
        world, dice = self._world, self._baton.dice
        read = {place: at for place in world.log.places(SOURCES) if (at := world.coordinator.committed.get(place))}
        if read:
            place = dice.choice(sorted(read))
            offset = dice.randint(0, read[place][0])
            forced = step.what == plans.FORCE and not world.database.away
            generation = world.database.force(place, offset, read[place][0]) if forced else None
            world.control.replay(place, offset, step.seconds, generation)

    def _calm(self) -> None:
        self._baton.say("--- quiet: nothing goes wrong from here on")
        self._world.faults.calm = True
        self._baton.stalls = False
        if all(member.stopping for member in self._members):
            self._start()
        self._await_done(self._baton.now + QUIET_SECONDS)

    def _await_done(self, deadline: float) -> None:
        missing = self._world.laws.undone()
        if self._plan.hold and missing:
            self._operator.work()
        if not missing:
            for member in self._members:
                if not member.stopping:
                    member.stop()
            self._await_stopped(self._baton.now + STOP_SECONDS)
        elif self._baton.now > deadline:
            self._baton.fail("not done after the quiet phase: " + "; ".join(missing[:8]))
        else:
            self._baton.after(0.25, lambda: self._await_done(deadline))

    def _await_stopped(self, deadline: float) -> None:
        running = [member.process.name for member in self._members if member.running]
        if not running:
            self._world.laws.look_at_outcomes()
            self._baton.end()
        elif self._baton.now > deadline:
            self._baton.fail(f"threads of {running} are left:\n{self._baton.stacks()}")
        else:
            self._baton.after(0.1, lambda: self._await_stopped(deadline))


def run(seed: int) -> Result:
    """Run one seed."""
    return play(plans.make(seed))


def play(plan: Plan, lines: int | None = None) -> Result:
    """Run a plan; of its schedule the last `lines` are kept, all by default."""
    simulation = Simulation(plan, lines)
    baton = simulation._baton
    with _logged(simulation), preempt.preempting(baton) if simulation._plan.preempt else nullcontext():
        return simulation.run()


@contextmanager
def _logged(simulation: Simulation) -> Generator[None]:
    """What the runtime logs becomes part of the schedule."""
    say = simulation._baton.say

    def into_the_schedule(_logger: Any, level: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if level != "debug":
            line.pop("exc_info", None)
            values = " ".join(f"{name}={value}" for name, value in line.items() if name not in ("event", "group"))
            say(f"logs {level}: {line['event']} {values}".rstrip())
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[into_the_schedule], wrapper_class=structlog.stdlib.BoundLogger)
    try:
        yield
    finally:
        structlog.configure(**before)
