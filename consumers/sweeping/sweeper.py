"""`offsetzero sweeper`: looks at the leases of steps, asks who lives, and takes away what nobody works on any more.

It is no job of the log, which would stall with it (procrastinate#1408), and publishes nothing: the record of a step
that is running is undone in the log, because a step ends, or waits, in the transaction that says so of its event. The
member that is given the partition begins it, by a lease of its own.
"""

import math
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import psycopg
from confluent_kafka.admin import AdminClient

from offsetzero import logs, metrics
from offsetzero.clock import SYSTEM, Clock
from offsetzero.consumers.sweeping.judging import Judge, Members, Reason
from offsetzero.errors import ConfigurationError, TopicError
from offsetzero.settings import Settings
from offsetzero.store import database, leases, runs, transactions
from offsetzero.store.availability import is_away
from offsetzero.store.database import Connection
from offsetzero.store.leases import Held, Rescue
from offsetzero.store.script import Script, run
from offsetzero.topics import admin, lag
from offsetzero.turns import Turns

LOCK = 0x6F7A_7377
""""ozsw": held by the transaction in which leases are taken away."""
GRACE_SECONDS = 10.0
"""Past its deadline in which a member may end a step itself, as it does unless it is frozen."""
STILL_SECONDS = 5.0  # for which a session of a member that is gone has been silent in a transaction, before it is ended
WAIT_SECONDS = 5.0  # for the rows of steps
SILENT_SECONDS = 90.0  # without a look: longer than Kafka and the database may take
_PAUSE_SECONDS = 5.0

log = logs.get(__name__)


class Sweeper:
    """Sweeps until it is told to stop. Any number may run: one acts at a time, and only on what is as it saw it.

    Without its database, or Kafka, it goes on by itself when they are back.

    Args:
        settings: the database and the cluster.
        members: asks for the ids of a group's members; by default its coordinator.
        clock: for pauses.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        members: Callable[[Settings, str], Collection[str]] | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._settings = settings
        self._members = members or _Coordinators().members
        self._clock = clock
        self._judge = Judge()
        self._turns = Turns("sweeper", clock, SILENT_SECONDS)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether it goes on, and what to show; any thread may ask."""
        return self._turns.health()

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set.

        Raises:
            ConfigurationError: the database has no leases.
        """
        while not stop.is_set():
            try:
                with database.session(self._settings, "offsetzero-sweeper") as connection:
                    run(connection, _limits())
                    while not stop.is_set():
                        try:
                            self.look(connection)
                        except psycopg.errors.LockNotAvailable as error:
                            log.info("sweeper: something is locked; it looks again", error=str(error))
                        stop.wait(self._settings.steps.sweep_seconds)
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
                raise ConfigurationError("the database has no leases; run `offsetzero migrate`") from error
            except psycopg.Error as error:
                if not is_away(error) and not isinstance(error, psycopg.OperationalError):
                    raise
                log.warning("sweeper: the database is away; trying again", error=str(error))
                metrics.OLDEST_TRANSACTION.set(math.nan)  # nobody knows
                self._turns.turn()
                stop.wait(_PAUSE_SECONDS)

    def look(self, connection: Connection) -> list[Rescue]:
        """Look once at all leases, and take away those that are to be.

        Args:
            connection: in autocommit.

        Returns:
            What was taken away.

        Raises:
            psycopg.Error: the database refuses, or does not answer.
        """
        self._turns.turn()
        held = run(connection, leases.held(GRACE_SECONDS))
        metrics.STEPS_RUNNING.set(len(held))
        metrics.OLDEST_TRANSACTION.set(run(connection, transactions.oldest()))
        rescues = self._judge.judge(held, self._ask(held))
        gone = {one.lease.owner.sessions for one in rescues if one.lease.owner and one.reason == Reason.GONE}
        self._end_sessions(connection, sorted(gone))
        return self._take_away(connection, rescues) if rescues else []

    def _ask(self, held: Sequence[Held]) -> Members:
        members: dict[str, Collection[str] | None] = {}
        for group in sorted(self._judge.groups(held)):
            self._turns.turn()  # of many groups without a coordinator each takes its time
            try:
                members[group] = self._members(self._settings, group)
            except TopicError as error:  # nobody says who lives, so all do
                members[group] = None
                log.warning("sweeper: the coordinator does not answer", group=group, error=str(error))
        return members

    def _take_away(self, connection: Connection, rescues: Sequence[Rescue]) -> list[Rescue]:
        with connection.transaction():
            taken = run(connection, _take_away(rescues))
        done = [one for one in rescues if (one.lease.run_id, one.lease.step) in taken]
        for one in done:
            lease = one.lease
            metrics.STEPS_RESCUED.labels(lease.step, one.reason).inc()
            log.warning(
                "step rescued", run_id=str(lease.run_id), step=lease.step, reason=one.reason, owner=str(lease.owner)
            )
        return done

    def _end_sessions(self, connection: Connection, names: Sequence[str]) -> None:
        try:
            if ended := run(connection, leases.end_sessions(names, STILL_SECONDS)):
                log.warning("sweeper: sessions that stood still in a transaction were ended", sessions=ended)
        except psycopg.errors.InsufficientPrivilege as error:
            log.warning("sweeper: sessions that stand still in a transaction cannot be ended", error=str(error))


class _Coordinators:
    """Asks them with one client for its life: to connect anew each two seconds costs brokers more than the question."""

    def __init__(self) -> None:
        self._admin: AdminClient | None = None

    def members(self, settings: Settings, group: str) -> Collection[str]:
        """The ids of a group's members.

        Raises:
            TopicError: there is no answer.
        """
        self._admin = self._admin or admin.client(settings)
        return {member.id for member in lag.group_state(settings, group, self._admin).members}


def _limits() -> Script[None]:
    """Of its session: a sweeper that stands still in its transaction must not keep the others from theirs."""
    yield (
        "SELECT set_config('idle_in_transaction_session_timeout', '10s', false), set_config('lock_timeout', %s, false)",
        (f"{WAIT_SECONDS}s",),
    )


def _take_away(rescues: Sequence[Rescue]) -> Script[set[tuple[Any, str]]]:
    """Nothing when another sweeper is at it, and no step of a run that somebody holds: that may be for long, and all
    others would wait. What is left is found at the next look."""
    rows = yield "SELECT pg_try_advisory_xact_lock(%s)", (LOCK,)
    if not rows[0][0]:
        return set()
    free = yield from runs.lock_free(sorted({one.lease.run_id for one in rescues}))
    return (yield from leases.take_away([one for one in rescues if one.lease.run_id in free]))
