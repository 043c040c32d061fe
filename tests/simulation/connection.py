"""Stands for psycopg's connections and pool, on the simulated database."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from offsetzero.store import amendments, crash_marks, forced, generations, holds, processed, starts
from simulation.baton import Process
from simulation.database import Transaction
from simulation.faults import Answer
from simulation.world import World

EFFECT = "INSERT INTO effects (event_id) VALUES (%s)"
POOL_SECONDS = 5.0


class SimConnection(psycopg.Connection[Any]):
    """As its base, for the statements that the runtime and the handlers send; nothing of the base is used."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._baton = world.baton
        self._database = world.database
        self._process = process
        self._transaction: Transaction | None = None
        self._failed = False
        self._commits_each = False

    @property
    def autocommit(self) -> bool:
        return self._commits_each

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        assert self._transaction is None
        self._commits_each = value

    @property
    def closed(self) -> bool:
        return False

    @property
    def info(self) -> Any:
        if self._transaction is None:
            return SimpleNamespace(transaction_status=TransactionStatus.IDLE)
        status = TransactionStatus.INERROR if self._failed else TransactionStatus.INTRANS
        return SimpleNamespace(transaction_status=status)

    def execute(self, query: bytes | str, parameters: Sequence[Any] = ()) -> Any:
        self._baton.step()
        text = query.decode() if isinstance(query, bytes) else query
        if self._commits_each:
            rows = self._commit_alone(text, tuple(parameters))
            return SimpleNamespace(description=True, fetchall=lambda: rows, rowcount=len(rows))
        transaction = self._alive()
        rows = []
        if text == processed._INSERT:
            *key, outcome, _silent = parameters
            got = self._database.claim(transaction, tuple(key), outcome)
            rows = [(1,)] if got else []
            self._baton.say(f"claims {key[3]} as {outcome}" + ("" if got else ": it has an outcome"))
        elif text == processed._SELECT:
            found = self._database.has_outcome(tuple(parameters))
            rows = [(found,)] if found else []
        elif text == processed._INSERT_ALL:
            *arrays, group, generation, outcome, _silent = parameters
            columns = [json.loads(f"[{array[1:-1]}]") for array in arrays]  # what they are in PostgreSQL, too
            rows = list(zip(*columns, strict=True))
            new = [
                claimed
                for claimed in sorted(set(rows))
                if self._database.claim(transaction, (group, generation, *claimed), outcome)
            ]
            for claimed in new:
                rows.remove(claimed)
            self._baton.say(f"claims {' '.join(one[1] for one in new) or 'nothing'} as {outcome}")
        elif text == processed._INSERT_ALIKE:
            ids, group, generation, source, redrive_no, outcome, _silent = parameters
            given = json.loads(f"[{ids[1:-1]}]")
            first = [
                one
                for one in sorted(set(given))
                if self._database.claim(transaction, (group, generation, source, one, redrive_no), outcome)
            ]
            for one in first:
                given.remove(one)
            rows = [(one,) for one in given]
            self._baton.say(f"claims {' '.join(first) or 'nothing'} as {outcome}")
        elif text == forced._SELECT:
            rows = [astuple(span) for span in self._database.forced]
        elif text in (generations.EVER, amendments._EDITED, amendments._DISCARDED):
            pass  # what operators decide is in what they send
        elif text in (starts._SELECT, starts._INSERT + starts._KEEP, starts._CONFIRM, starts._ENTER):
            rows = self._database.starts.answer(text, parameters)
        elif text == crash_marks._CLOSE:
            transaction.closed.append(tuple(parameters))
        elif text == holds._INSERT:
            self._database.place(transaction, parameters)
            self._baton.say(f"holds {parameters[5]!r} at {parameters[4]} of {parameters[2]}")
        elif text == holds._DELETE:
            self._database.lift(transaction, parameters)
            self._baton.say(f"lifts the hold at {parameters[4]} of {parameters[2]}")
        elif text == holds._SELECT:
            wanted = parameters[2]
            rows = [
                (*place, key, *number)
                for place, (*number, key) in sorted(self._database.holds.items())
                if place[1] in wanted
            ]
        elif text == holds._FIND:
            rows = [(1,)] if tuple(parameters[2:]) in self._database.holds else []
        elif text == EFFECT:
            transaction.effects.append(parameters[0])
        elif text != "SELECT 1":
            raise AssertionError(f"the simulated database does not know: {text}")
        return SimpleNamespace(description=True, fetchall=lambda: rows, rowcount=len(rows))

    def _commit_alone(self, text: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """A mark, opened or closed by a statement that is a transaction of its own."""
        answer = Answer.LOST if self._database.away else self._world.faults.answer("transaction")
        if answer is Answer.LOST:
            raise psycopg.OperationalError("the connection is lost")
        rows: list[tuple[Any, ...]] = []
        if text in (crash_marks._OPEN, crash_marks._TAKE):
            member, *key = parameters
            if self._database.has_outcome(tuple(key)) is None:
                rows = [self._database.marks.open(member, tuple(key), take=text == crash_marks._TAKE)]
        elif text == crash_marks._CLOSE:
            self._database.marks.close(tuple(parameters))
        elif text in (crash_marks._DROP, crash_marks._GIVE_BACK):
            *key, member = parameters
            self._database.marks.give_back(member, tuple(key), stays=text == crash_marks._GIVE_BACK)
        else:
            raise AssertionError(f"the simulated database does not commit this alone: {text}")
        if answer is not Answer.OK:
            raise psycopg.OperationalError("the connection is lost")
        return rows

    @contextmanager
    def transaction(self) -> Generator[None]:
        if self._transaction is not None:  # a savepoint of a handler
            yield
            return
        self._baton.step()
        self._alive()
        with self._ending():
            yield

    @contextmanager
    def _ending(self) -> Generator[None]:
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        self._baton.step()
        lost = transaction.over
        answer = Answer.LOST if lost else self._world.faults.answer("transaction")
        ids = " ".join([*(key[3] for key in transaction.outcomes)]) or "nothing"
        self._baton.say(f"commits {ids}" + ("" if answer is Answer.OK else f": {answer.name.lower()}"))
        self._database.end(transaction, commit=answer is not Answer.LOST)
        self._baton.step()
        if answer is not Answer.OK or self._database.away:
            raise psycopg.OperationalError("the connection is lost")

    def rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None and not self._process.dead:  # else the server notices by itself
            self._database.end(transaction, commit=False)

    def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Called by another thread, which ends the connection next: the server rolls back."""
        if self._transaction is not None:
            self._database.end(self._transaction, commit=False)

    def fileno(self) -> int:
        raise OSError("it has no socket")

    def __del__(self) -> None:
        pass

    def _alive(self) -> Transaction:
        if self._database.away or (self._transaction is not None and self._transaction.over):
            raise psycopg.OperationalError("the connection is lost")
        if self._transaction is None:
            self._transaction = self._database.begin(self._process)
        return self._transaction


class SimPool:
    """As `psycopg_pool.ConnectionPool`, for one process; it has always one connection more."""

    min_size = max_size = 1

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    @contextmanager
    def connection(self, timeout: float | None = None) -> Generator[SimConnection]:
        baton, database = self._world.baton, self._world.database
        self._world.laws.begins(self._process)
        baton.step()
        deadline = baton.now + (POOL_SECONDS if timeout is None else timeout)
        while database.away and baton.dice.random() < 0.8:  # else a connection that is dead, and not found out yet
            if baton.now > deadline:
                raise PoolTimeout("no connection in time")
            baton.pause(0.5)
        connection = SimConnection(self._world, self._process)
        with connection._ending():
            yield connection

    def ask(self, seconds: float) -> None:
        with self.connection(seconds) as connection:
            connection.execute("SELECT 1")

    def resize(self, min_size: int, max_size: int) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> "SimPool":
        return self

    def __exit__(self, *_: object) -> None:
        pass
