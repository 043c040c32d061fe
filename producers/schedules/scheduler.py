"""The scheduler: acts upon schedules that are due, and goes on with re-indexes, until it is told to stop.

Any number of schedulers may run: each schedule is held while one of them acts upon it, and a fire time is claimed once
(`firing`). The time is the database's, so that all of them have the same.
"""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from offsetzero import logs, metrics
from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import ConfigurationError
from offsetzero.producers import runs
from offsetzero.producers.schedules import firing, reindexing, timetable
from offsetzero.settings import Settings
from offsetzero.store import fires, reports, schedules
from offsetzero.store.availability import is_away
from offsetzero.store.database import Connection, session
from offsetzero.store.schedules import Kind
from offsetzero.store.script import Script, run
from offsetzero.turns import Turns

T = TypeVar("T")
_log = logs.get(__name__)

POLL_SECONDS = 1.0
"""How often one looks for what is due: nothing fires later than that, unless there is too much to do."""
AT_ONCE = 100
_AGAIN = timedelta(seconds=60)  # after a failure that the schedule itself is to blame for
_REST_SECONDS = 60.0  # of a re-index that has failed
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 5.0
_MEASURE_SECONDS, _PRUNE_SECONDS, _SELDOM_SECONDS = 5.0, 60.0, 3600.0
_SILENT_SECONDS = 90.0  # without a turn; longer than a statement may take
_SESSION = """
SET statement_timeout = '60s'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s';
SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3
"""
# A scheduler that stands still in a transaction must not keep its schedule from the others.


class Scheduler:
    """Fires schedules until it is told to stop; without its database it goes on by itself when that is back.

    A schedule that cannot be done says why (`schedules list`) and is tried again each minute; the others go on.

    Args:
        settings: the database, the required steps of runs, and the source of events.
        clock: for pauses.
    """

    def __init__(self, settings: Settings, *, clock: Clock = SYSTEM) -> None:
        self._settings = settings
        self._clock = clock
        self._pause = _FIRST_PAUSE
        self._after = ""
        self._rests: dict[UUID, float] = {}
        self._at: dict[Callable[..., Any], float] = {}
        self._turns = Turns("scheduler", clock, _SILENT_SECONDS)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether it goes on, and what to show; any thread may ask."""
        return self._turns.health()

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set. A transaction in hand is finished first.

        Raises:
            ConfigurationError: the database has no schedules, or those of another version.
        """
        while not stop.is_set():
            self._turns.turn()
            try:
                with session(self._settings, "offsetzero-scheduler") as connection:
                    connection.execute(_SESSION)
                    self._serve(connection, stop)
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
                raise ConfigurationError("the database has not these schedules; run `offsetzero migrate`") from error
            except psycopg.OperationalError as error:
                _log.warning("scheduler: the database is away; trying again", error=str(error), pause=self._pause)
            else:
                continue
            stop.wait(self._pause)
            self._pause = min(self._pause * 2, _LAST_PAUSE)

    def _serve(self, connection: Connection, stop: threading.Event) -> None:
        while not stop.is_set():
            self._turns.turn()
            self._now_and_then(_SELDOM_SECONDS, self._read_rules, connection)
            worked = self._fire(connection)
            worked = self._reindex(connection) or worked
            self._now_and_then(_MEASURE_SECONDS, self._measure, connection)
            self._now_and_then(_PRUNE_SECONDS, self._prune, connection)
            self._now_and_then(_SELDOM_SECONDS, self._forget, connection)
            self._pause = _FIRST_PAUSE  # it serves again
            if not worked:
                stop.wait(POLL_SECONDS)

    def _fire(self, connection: Connection) -> bool:
        """Act upon what is due; returns whether there was something."""
        at = run(connection, schedules.now())
        found = run(connection, schedules.due(at, AT_ONCE))
        acted = False
        for schedule_id, kind in found:
            self._turns.turn()
            try:
                done = _in_transaction(connection, firing.act(schedule_id, self._settings))
            except Exception as error:
                _raise_if_away(connection, error)
                self._failed(connection, schedule_id, error)
                continue
            if done is not None:
                acted = acted or bool(done.fires)
                self._tell(done)
                if kind is Kind.REPORT and done.fires:
                    break  # it may have taken long: what has come due meanwhile and is quick comes before the next one
        return acted

    def _reindex(self, connection: Connection) -> bool:
        """Begin the runs of one page; returns whether there was one.

        Tenants have their turns one after the other, and one that cannot go on rests: none waits for all of another's.
        """
        now, page = self._clock.monotonic(), None
        self._rests = {fire_id: until for fire_id, until in self._rests.items() if now < until}
        try:
            with connection.transaction():
                page = run(connection, fires.take_page(self._after, self._rests))
                if page is None:
                    return False
                self._after = page.tenant_id or ""
                turned = run(connection, reindexing.turn(page, self._settings))
        except Exception as error:
            _raise_if_away(connection, error)
            metrics.SCHEDULE_FAILURES.labels(Kind.REINDEX).inc()
            about = {"fire": str(page.fire_id), "tenant": page.tenant_id} if page is not None else {}
            _log.exception("re-index: a page failed; trying again", pause_seconds=_REST_SECONDS, **about)
            if page is None:
                return False
            self._rests[page.fire_id] = now + _REST_SECONDS
            return True
        metrics.SCHEDULE_DOCUMENTS.inc(turned.documents)
        for one in turned.begun:
            runs.count(one)
        if turned.over:
            _log.info("re-index is over", fire_at=turned.fire_at.isoformat())
        elif not turned.documents:  # somebody holds the next one
            self._rests[page.fire_id] = now + POLL_SECONDS
        return True

    def _failed(self, connection: Connection, schedule_id: UUID, error: Exception) -> None:
        """Say why a schedule could not be done, where people look for it, and let it be tried again."""
        schedule = run(connection, schedules.hold(schedule_id))
        if schedule is None:
            return
        metrics.SCHEDULE_FAILURES.labels(schedule.kind).inc()
        _log.error("schedule failed; trying again", schedule=schedule.name, tenant=schedule.tenant_id, error=str(error))
        at = run(connection, schedules.now())
        run(connection, schedules.failed(schedule_id, f"{type(error).__name__}: {error}", at + _AGAIN))

    def _tell(self, done: firing.Acted) -> None:
        named = {"schedule": done.schedule.name, "tenant": done.schedule.tenant_id, "kind": done.schedule.kind.value}
        for fire_at in done.fires:
            metrics.SCHEDULE_FIRES.labels(done.schedule.kind).inc()
            _log.info("schedule fired", fire_at=fire_at.isoformat(), **named)
        if done.missed_since is not None:
            said = {"since": done.missed_since.isoformat(), "catch_up": done.schedule.catch_up}
            _log.warning("schedule missed fire times", **said, **named)

    def _read_rules(self, connection: Connection) -> None:
        """Correct when schedules fire next: the rules of a zone may have changed since that was computed."""
        timetable.forget()
        for one in run(connection, schedules.every()):
            self._turns.turn()
            if one.paused_at is not None:
                continue  # `resume` does it
            try:
                next_at = timetable.timetable(one.cron, one.zone).after(one.done_until)
            except ConfigurationError as error:
                self._failed(connection, one.id, error)
            else:
                if next_at != one.next_at:
                    run(connection, schedules.look_again(one.id, one.done_until, next_at))

    def _measure(self, connection: Connection) -> None:
        metrics.SCHEDULE_LATE.set(run(connection, schedules.lateness(run(connection, schedules.now()))))

    def _prune(self, connection: Connection) -> None:
        run(connection, fires.prune())

    def _forget(self, connection: Connection) -> None:
        run(connection, reports.prune())
        run(connection, schedules.prune())

    def _now_and_then(self, seconds: float, work: Callable[[Connection], None], connection: Connection) -> None:
        now = self._clock.monotonic()
        if now - self._at.get(work, float("-inf")) >= seconds:
            self._at[work] = now
            work(connection)


def _in_transaction(connection: Connection, script: Script[T]) -> T:
    with connection.transaction():
        return run(connection, script)


def _raise_if_away(connection: Connection, error: Exception) -> None:
    """Raise what no schedule is to blame for."""
    wrong = isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn)
    if wrong or connection.closed or is_away(error):
        raise error
