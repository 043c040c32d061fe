"""All that one run consists of: the servers, the laws, the members; it is there so that each finds the others."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from simulation.baton import Baton, Process
from simulation.faults import Faults
from simulation.group import Coordinator
from simulation.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.consumer import SimConsumer
    from simulation.plan import Plan

GROUP = "audit"
SOURCES = ["documents", "documents.bulk"]
TIERS = {"retry-1m": 0.4, "retry-10m": 1.1}
REDRIVE = f"{GROUP}.redrive"
RETRIES = [*(f"{GROUP}.{tier}" for tier in TIERS), REDRIVE]
DEAD = f"{GROUP}.dlq"
OUTPUT = "runs"


class World:
    """One run.

    Args:
        plan: what happens in it.
        lines: of the schedule that are kept; None for all.
    """

    def __init__(self, plan: Plan, lines: int | None = None) -> None:
        from simulation.control import Control
        from simulation.database import SimDatabase
        from simulation.laws import Laws
        from simulation.memory import Memory
        from simulation.transactions import Transactions

        self.plan = plan
        self.baton = Baton(random.Random(f"{plan.seed} schedule"), plan.pace, stalls=plan.stalls, lines=lines)
        self.faults = Faults(self.baton.dice)
        self.log = Log([*SOURCES, *RETRIES, DEAD, OUTPUT], plan.partitions)
        self.laws = Laws(self)
        self.memory = Memory(plan)
        self.database = SimDatabase(self)
        self.coordinator = Coordinator(self.baton, self.log, classic=plan.classic, on_commit=self.laws.commits)
        self.transactions = Transactions(self)
        self.control = Control(self)
        self.consumers: list[SimConsumer] = []
        self.on_killing: Callable[[Process], None] = lambda _process: None
        """Called by a handler that ends its process."""

    def consumer_of(self, process: Process) -> SimConsumer | None:
        """The Kafka client of a process."""
        return next((one for one in self.consumers if one.name == process.name), None)
