"""Stands for PostgreSQL: transactions on `processed_events` and on the handlers' effects, nothing else.

A claim of a row that another transaction has inserted waits for that one's end, as a unique index makes it. A commit
may be answered, lost, or carried out without an answer; while the database is away every statement fails.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import psycopg

from offsetzero.store import forced, starts
from offsetzero.store.forced import ForcedSpan
from simulation.baton import Process, Task
from simulation.log import Place
from simulation.world import World

Key: TypeAlias = tuple[Any, ...]  # group, generation, source, event id, redrive number
Holds: TypeAlias = dict[tuple[str, int, int], tuple[int, int, bytes]]  # redrive number, hop and key by origin


@dataclass(slots=True, eq=False)
class Transaction:
    """What a transaction has written and will show when it commits."""

    process: Process
    outcomes: dict[Key, str] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)
    holds: list[Callable[[Holds], None]] = field(default_factory=list)
    closed: list[Key] = field(default_factory=list)
    waits_for: "Transaction | None" = None
    over: bool = False
    waiting: list[Task] = field(default_factory=list)


class Starts:
    """The table `group_starts`, of one group; its short transactions are taken for statements."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], tuple[str, int, bool]] = {}
        self._stays: dict[tuple[str, int], str] = {}

    def answer(self, text: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        if text == starts._SELECT:
            return [
                (*place, topic_id, at, True if done else None, self._stays.get(place))
                for place, (topic_id, at, done) in self._rows.items()
            ]
        if text == starts._CONFIRM:
            for place in zip(*parameters[:2], strict=True):
                topic_id, at, _ = self._rows[place]
                self._rows[place] = topic_id, at, True
        elif text == starts._ENTER:
            stay, *columns, _ = parameters
            self._stays |= dict.fromkeys(zip(*columns, strict=True), stay)
        else:
            for topic, number, *row in zip(*parameters[1:], strict=True):
                self._rows.setdefault((topic, number), tuple(row))
        return []


class Marks:
    """The table `crash_marks`."""

    def __init__(self) -> None:
        self._rows: dict[Key, tuple[str, int]] = {}

    def open(self, member: str, key: Key, *, take: bool) -> tuple[int, str]:
        before, crashes = self._rows.get(key, (member, 0))
        if take:
            before, crashes = member, crashes + (before not in ("", member))
        self._rows[key] = before, crashes
        return crashes, before

    def close(self, key: Key) -> None:
        self._rows.pop(key, None)

    def give_back(self, member: str, key: Key, *, stays: bool) -> None:
        before, crashes = self._rows.get(key, ("", 0))
        if before == member and stays:
            self._rows[key] = "", crashes
        elif before == member:
            self.close(key)


class SimDatabase:
    """The server."""

    def __init__(self, world: World) -> None:
        self.outcomes: dict[Key, str] = {}
        self._redrives = 0  # the highest redrive number
        self.starts = Starts()
        self.marks = Marks()
        self.holds: Holds = {}
        self.forced: list[ForcedSpan] = []
        self.away = False
        self._world = world
        self._baton = world.baton
        self._open: list[Transaction] = []
        self._claims: dict[Key, Transaction] = {}

    def begin(self, process: Process) -> Transaction:
        transaction = Transaction(process)
        self._open.append(transaction)
        return transaction

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commit or roll back; who waited for it goes on."""
        if transaction.over:
            return
        transaction.over = True
        self._open.remove(transaction)
        for key in transaction.outcomes:
            self._claims.pop(key, None)
        if commit:
            self.outcomes.update(transaction.outcomes)
            for key, outcome in transaction.outcomes.items():
                self._redrives = max(self._redrives, key[4])
                self._world.laws.ends(key[3], outcome, key[4])
            for change in transaction.holds:
                change(self.holds)
            for key in transaction.closed:
                self.marks.close(key)
            for event_id in transaction.effects:
                self._world.laws.effect(event_id)
        for task in transaction.waiting:
            self._baton.wake(task)

    def claim(self, transaction: Transaction, key: Key, outcome: str) -> bool:
        """Insert a row unless it is there; waits for a transaction that has inserted it."""
        while (other := self._claims.get(key)) not in (None, transaction):
            assert other is not None
            seen: Transaction | None = other
            while seen is not None:
                if seen is transaction:
                    raise psycopg.errors.DeadlockDetected("deadlock detected")
                seen = seen.waits_for
            transaction.waits_for = other
            other.waiting.append(self._baton.current)
            self._baton.block()
            transaction.waits_for = None
            if transaction.over:
                raise psycopg.OperationalError("the connection is lost")
        if key in self.outcomes or key in transaction.outcomes:
            return False
        self._claims[key] = transaction
        transaction.outcomes[key] = outcome
        return True

    def has_outcome(self, key: Key) -> str | None:
        """The last of an event, for this redrive number or a higher one."""
        *event, redrive_no = key
        found = (self.outcomes.get((*event, no)) for no in range(self._redrives, redrive_no - 1, -1))
        return next((one for one in found if one is not None), None)

    def force(self, place: Place, first: int, end: int) -> int | None:
        """An operator opens a generation for part of a partition, unless that is empty; returns its number."""
        if first >= end:
            return None
        number = len(self.forced) + forced.FIRST
        self.forced.append(ForcedSpan(number, f"id-of-{place[0]}", place[1], first, end))
        self._world.laws.forces(place, first, end, number)
        return number

    def place(self, transaction: Transaction, parameters: Sequence[Any]) -> None:
        """Insert or update a hold."""
        _, _, topic_id, partition, origin, key, redrive_no, hop = parameters
        row, new = (topic_id, partition, origin), (redrive_no, hop, key)
        transaction.holds.append(lambda rows: rows.update({row: max(new, rows.get(row, new))}))

    def lift(self, transaction: Transaction, parameters: Sequence[Any]) -> None:
        """Delete a hold that is no later than a redrive number."""
        _, _, *row, redrive_no = parameters

        def delete(rows: Holds) -> None:
            if rows.get((place := tuple(row)), (redrive_no + 1,))[0] <= redrive_no:  # type: ignore[arg-type]
                del rows[place]  # type: ignore[arg-type]

        transaction.holds.append(delete)

    def go_away(self) -> None:
        """Stop serving; open transactions are rolled back."""
        self.away = True
        for transaction in list(self._open):
            self.end(transaction, commit=False)

    def come_back(self) -> None:
        self.away = False

    def forget(self, process: Process) -> None:
        """Notice that a process is dead: its transactions are rolled back."""
        for transaction in [one for one in self._open if one.process is process]:
            self.end(transaction, commit=False)
