"""What a seed stands for: which events there are, and what is killed when. Pure; the machine does the rest."""

import os
import random
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it: `outage` in seconds."""

    events: int
    keys: int
    kills: int
    outage: float


AHEAD = 3  # shares of the events that are published by then, of which one has had its effects, or part of it
SESSION_SECONDS = 4.0  # after which the broker of the tests gives a member up
SMALL = Size(3_000, 100, 6, 5.0)
FULL = Size(50_000, 1_000, 50, 60.0)
SIZE = FULL if os.environ.get("OZ_TEST_PROFILE") == "nightly" else SMALL


class What(StrEnum):
    """What is killed with SIGKILL and started again; a frozen member goes on when its session has long expired."""

    MEMBER = "member"
    FROZEN = "frozen"
    BROKER = "broker"
    DATABASE = "database"


@dataclass(frozen=True, slots=True)
class Step:
    """Done when `handled` events of the `published` ones have their effect; `seconds` until it is undone."""

    what: What
    published: int
    handled: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """`events` are the key and the sequence of each, in the order of the log."""

    seed: int
    events: list[tuple[UUID, int]]
    steps: list[Step]

    @property
    def expected(self) -> dict[UUID, list[int]]:
        """Of each key, the sequences in their order."""
        found: dict[UUID, list[int]] = {}
        for key, sequence in self.events:
            found.setdefault(key, []).append(sequence)
        return found


def make(seed: int, size: Size, kills: dict[What, int]) -> Plan:
    """A plan of so many steps of each kind, spread over all of the events."""
    dice = random.Random(seed)
    keys = [UUID(int=dice.getrandbits(128)) for _ in range(size.keys)]
    sequences = dict.fromkeys(keys, 0)
    events = []
    for _ in range(size.events):
        key = keys[int(len(keys) * dice.random() ** 2)]  # some have many events
        events.append((key, sequences[key]))
        sequences[key] += 1
    order = [what for what, count in kills.items() for _ in range(count)]
    dice.shuffle(order)
    share = size.events // (len(order) + 1)
    steps = [
        Step(
            what,
            min(size.events, (number + AHEAD) * share),
            int((number + dice.uniform(0.05, 0.95)) * share),
            _seconds(what, dice),
        )
        for number, what in enumerate(order)
    ]
    return Plan(seed, events, steps)


def _seconds(what: What, dice: random.Random) -> float:
    return SESSION_SECONDS + dice.uniform(1.0, 3.0) if what is What.FROZEN else dice.uniform(0.0, 3.0)
