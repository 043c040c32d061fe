"""What a seed stands for: the events with what their handling does, and what goes wrong when. Pure."""

import functools
import random
import zlib
from dataclasses import dataclass, field, replace
from enum import StrEnum

from simulation.group import SESSION_SECONDS
from simulation.world import SOURCES

CHAOS_SECONDS = 9.0
LARGE_RATE = 2_000  # events a second
LARGE_STEP_SECONDS = 3.0
LARGE_STEPS = ("kill", "stop", "start", "cut", "append", "commit", "transaction", "clock")


class Kind(StrEnum):
    """What handling an event does."""

    FINE = "fine"
    FAILS = "fails"  # the first `times` attempts, worth another try
    BUG = "bug"  # the first `times` attempts, with an exception that nobody expected
    PERMANENT = "permanent"
    POISON = "poison"  # cannot be read
    TOMBSTONE = "tombstone"
    HANGS = "hangs"  # takes longer than the time limit
    KILLS = "kills"  # its process


class Effects(StrEnum):
    """Where the group has its effects."""

    DATABASE = "in the database"
    LOG = "in the log, at least once"
    TRANSACTION = "in the log, in one transaction with the offsets"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`seconds` is how long the handler takes."""

    kind: Kind = Kind.FINE
    seconds: float = 0.0
    times: int = 0

    @property
    def expected(self) -> str:
        """The outcome that the event must have in the end."""
        match self.kind:
            case Kind.PERMANENT:
                return "failed"
            case Kind.POISON | Kind.HANGS | Kind.KILLS:
                return "dead-lettered"
            case Kind.BUG:
                return "dead-lettered" if self.times > 1 else "applied"
            case Kind.FAILS:
                return "dead-lettered" if self.times > 2 else "applied"
            case _:
                return "applied"

    def __str__(self) -> str:
        times = f" {self.times} times" if self.times else ""
        return f"{self.kind}{times}, {self.seconds * 1000:.1f} ms"


@dataclass(frozen=True, slots=True)
class Published:
    """An event at its time in the log; `gap` offsets before it are taken by what no reader is given."""

    at: float
    event_id: str
    topic: str
    partition: int
    key: bytes | None
    behaviour: Behaviour
    gap: int

    @property
    def tenant(self) -> bytes:
        """Whose it is: that of its key."""
        return b"tenant-%d" % (zlib.crc32(self.key or b"") % 3)


@dataclass(frozen=True, slots=True)
class Step:
    """Something done to the world: `what`, to which member, for how many seconds."""

    at: float
    what: str
    member: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.at:10.4f}  {self.what} member={self.member} seconds={self.seconds:.2f}"


@dataclass
class Plan:
    """All of a seed, but the order in which threads run."""

    seed: int
    pace: float
    partitions: int
    classic: bool
    concurrency: int
    max_in_flight: int
    members: int
    effects: Effects
    batch: int
    """Events in one call at most; 0 for a handler of single events."""
    timeout: float | None
    """Seconds that a handler may take."""
    preempt: bool
    """Whether threads are held up at any line, not only where they wait."""
    hold: bool = False
    """Whether a dead letter holds up its key."""
    per_tenant: int | None = None
    """Records of one tenant that a member handles at once."""
    in_bulk: int | None = None
    """Records of the bulk topic, likewise; as many as it has handlers when None."""
    seconds: float = CHAOS_SECONDS
    """In which things go wrong; then a quiet phase in which everything must get done."""
    stalls: bool = True
    """Whether threads are held up for long now and then."""
    max_bytes: int = 40_000
    """In flight, as the members are configured."""
    events: list[Published] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @functools.cached_property
    def by_id(self) -> dict[str, Published]:
        """The events by their ids."""
        return {one.event_id: one for one in self.events}

    def __str__(self) -> str:
        protocol = "classic (eager)" if self.classic else "consumer (incremental)"
        head = (
            f"seed {self.seed}: {len(self.events)} events in {len(SOURCES)} topics of {self.partitions} partitions; "
            f"{self.members} members, each with {self.concurrency} handlers of {self.batch or 'single'} events and "
            f"{self.max_in_flight} records in flight; effects {self.effects}; protocol {protocol}; "
            f"a step takes {self.pace * 1e6:.0f} us"
            + (f"; a handler may take {self.timeout} s" if self.timeout else "")
            + ("; threads are held up at any line" if self.preempt else "")
            + ("; dead letters hold up their keys" if self.hold else "")
            + (f"; {self.per_tenant} of a tenant at once" if self.per_tenant else "")
            + (f"; {self.in_bulk} of the bulk topic at once" if self.in_bulk else "")
        )
        return "\n".join([head, *map(str, self.steps)])


STEPS = {
    "kill": 5,
    "stop": 2,
    "start": 2,
    "cut": 6,
    "database": 2,
    "admin": 1,
    "commit": 2,
    "append": 3,
    "transaction": 1,
    "clock": 2,
    "empty": 1,
    "error": 1,
    "markers": 1,
    "redrive": 2,
    "discard": 1,
    "replay": 4,
}


FORCE = "force"
"""A replay that has done again what is done."""


def make(seed: int) -> Plan:
    """The plan of a seed: always the same."""
    dice = random.Random(f"{seed} plan")
    plan = Plan(
        seed=seed,
        pace=dice.choice([0.0001, 0.001, 0.004]),
        partitions=dice.choice([1, 2, 4]),
        classic=dice.random() < 0.3,
        concurrency=dice.choice([1, 2, 4]),
        max_in_flight=dice.choice([8, 20, 100]),
        members=dice.choice([1, 2, 2, 3]),
        effects=(effects := dice.choice([*[Effects.DATABASE] * 3, Effects.LOG, Effects.TRANSACTION])),
        batch=dice.choice([0, 0, 3, 50]) if effects is not Effects.TRANSACTION else 0,
        timeout=dice.choice([None, None, 8.0]) if effects is Effects.DATABASE else None,
        preempt=dice.random() < 0.25,
        hold=effects is Effects.DATABASE and dice.random() < 0.4,
    )
    kinds = dice.sample(list(STEPS), k=dice.randint(2, 6))  # few kinds a seed: their effects do not drown each other
    for _ in range(dice.randint(2, 10)):
        what = dice.choices(kinds, [STEPS[kind] for kind in kinds])[0]
        plan.steps.append(Step(dice.uniform(0.1, CHAOS_SECONDS), what, dice.randrange(3), dice.uniform(0.2, 5.0)))
    plan.steps.sort(key=lambda step: step.at)
    _publish(plan, dice)
    _let_kill(plan, random.Random(f"{seed} killers"))
    _force(plan, random.Random(f"{seed} forced"))
    _limit(plan, random.Random(f"{seed} limits"))
    return plan


def large(count: int, keys: int = 1_000) -> Plan:
    """Many events, one in five of a tenth of the keys failing once, twice or always; always the same.

    Args:
        count: events.
        keys: of them.
    """
    dice = random.Random(f"{count} {keys}")
    plan = Plan(
        seed=count,
        pace=0.001,
        partitions=4,
        classic=False,
        concurrency=4,
        max_in_flight=1_000,
        members=2,
        effects=Effects.DATABASE,
        batch=0,
        timeout=None,
        preempt=False,
        seconds=count / LARGE_RATE,
        stalls=False,
        max_bytes=4_000_000,
    )
    names = [f"key-{number}".encode() for number in range(keys)]
    homes = [(dice.choice(SOURCES), dice.randrange(plan.partitions)) for _ in names]
    fine, fail = Behaviour(), [Behaviour(Kind.FAILS, times=times) for times in (1, 2, 3)]
    for number in range(count):
        key = dice.randrange(keys)
        behaviour = dice.choice(fail) if key < keys // 10 and dice.random() < 0.2 else fine
        at = number // 100 * 100 / LARGE_RATE
        plan.events.append(Published(at, f"e{number}", *homes[key], names[key], behaviour, 0))
    for number in range(1, int(plan.seconds / LARGE_STEP_SECONDS)):
        at, what = number * LARGE_STEP_SECONDS, LARGE_STEPS[number % len(LARGE_STEPS)]
        plan.steps.append(Step(at, what, dice.randrange(3), dice.uniform(0.2, 5.0)))
    return plan


def _publish(plan: Plan, dice: random.Random) -> None:
    keys = [f"key-{number}".encode() for number in range(dice.choice([3, 10, 100]))]
    homes = {key: (dice.choice(SOURCES), dice.randrange(plan.partitions)) for key in keys}
    troubled = set(dice.sample(keys, k=len(keys) // dice.choice([2, 5, 100])))  # keys with events that fail
    slow = dice.choice([0.0, 0.002, 0.02])
    count = dice.randint(150, 350) if slow < 0.02 else dice.randint(80, 160)
    # Many come when something happens, or when the session of a member that was lost then has run out.
    moments = [0.0, *(step.at + late for step in plan.steps for late in (0.0, SESSION_SECONDS))]
    busy = [dice.choice(moments) for _ in range(3)]
    spread = dice.choice([0.01, 0.2, 1.0])
    times = sorted(
        max(0.0, dice.choice([dice.choice(busy) + dice.uniform(-0.5, 1) * spread, dice.uniform(0, CHAOS_SECONDS)]))
        for _ in range(count)
    )
    gappy = dice.random() < 0.3
    for number, at in enumerate(times):
        key = dice.choice(keys)
        topic, partition = homes[key]
        behaviour = _behaviour(dice, slow, troubled=key in troubled, plan=plan)
        anonymous = dice.random() < 0.02
        gap = dice.randrange(4) if gappy else 0
        plan.events.append(Published(at, f"e{number}", topic, partition, None if anonymous else key, behaviour, gap))


def _let_kill(plan: Plan, dice: random.Random) -> None:
    """Have an event or two kill whoever works on it, where that can be found out: with the help of a database."""
    if plan.effects is not Effects.DATABASE or dice.random() > 0.2:
        return
    for at in dice.sample(range(len(plan.events)), k=dice.choice([1, 1, 2])):
        behaviour = Behaviour(Kind.KILLS, dice.choice([0.0, plan.events[at].behaviour.seconds]))
        plan.events[at] = replace(plan.events[at], behaviour=behaviour)


def _force(plan: Plan, dice: random.Random) -> None:
    """Have half of the replays be forced ones, where the database tells what is done."""
    if plan.effects is Effects.DATABASE:
        for at, step in enumerate(plan.steps):
            if step.what == "replay" and dice.random() < 0.5:
                plan.steps[at] = replace(step, what=FORCE)


def _limit(plan: Plan, dice: random.Random) -> None:
    """Have members handle few of a tenant, or of the bulk topic, at once, where they can: not in calls of many."""
    if not plan.batch and plan.effects is not Effects.TRANSACTION:
        plan.per_tenant, plan.in_bulk = dice.choice([None, 1, 2]), dice.choice([None, 1, 2])


def _behaviour(dice: random.Random, slow: float, *, troubled: bool, plan: Plan) -> Behaviour:
    seconds = slow * dice.expovariate(1)
    if dice.random() < 0.01:
        if dice.random() < 0.3 and (plan.timeout or not plan.batch):
            return Behaviour(Kind.HANGS if plan.timeout else Kind.FINE, 15.0)
        seconds = dice.uniform(0.5, 2.0)
    if not troubled or dice.random() < 0.6:
        return Behaviour(Kind.TOMBSTONE if not plan.batch and dice.random() < 0.03 else Kind.FINE, seconds)
    kind = dice.choice([Kind.FAILS, Kind.FAILS, Kind.FAILS, Kind.BUG, Kind.PERMANENT, Kind.POISON])
    return Behaviour(kind, seconds, dice.randint(1, 3) if kind in (Kind.FAILS, Kind.BUG) else 0)
