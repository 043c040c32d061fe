"""Processes of steps die or stand still: every run ends, with one effect, and who comes late changes nothing."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka.conftest import effects, uploaded
from kafka.stepping import DIES_AT, GROUP, LONG_SECONDS

from broker_config import BROKER
from offsetzero.consumers.sweeping.sweeper import Sweeper
from offsetzero.producers import outbox
from offsetzero.settings import Settings
from offsetzero.store import runs
from offsetzero.store.script import run
from offsetzero.topics import lag
from support import AT_NIGHT, at_work, wait_until

SESSION_SECONDS = int(BROKER["group.consumer.session.timeout.ms"]) / 1000
HEARTBEAT_SECONDS = int(BROKER["group.consumer.heartbeat.interval.ms"]) / 1000
LATEST_SECONDS = SESSION_SECONDS + 30.0  # by which a run has ended whose process was killed


class Process:
    """A member of the group, or a relay, as `stepping` has it; its log goes to a file."""

    def __init__(self, settings: Settings, folder: Path, kind: str) -> None:
        self.kind = kind
        self.log = folder / f"{kind}-{uuid4()}.log"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "stepping.py", str(folder), kind],
                cwd=Path(__file__).parent,
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("OFFSETZERO_")},
                    "OFFSETZERO_HOME": str(settings.home),
                    "OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
                    "OFFSETZERO_KAFKA__NAMESPACE": settings.kafka.namespace,
                    "OFFSETZERO_KAFKA__OPTIONS": json.dumps(settings.kafka.options),
                    "OFFSETZERO_KAFKA__GROUP_PROTOCOL": settings.kafka.group_protocol,
                    "OFFSETZERO_DATABASE_URL": settings.database_url.get_secret_value(),
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def said(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in self.log.read_text(errors="replace").splitlines())

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Stage:
    """The processes of a test, and its runs.

    Args:
        settings: of all of them.
        folder: where they say what has happened once.
        database: where the runs are.
    """

    def __init__(self, settings: Settings, folder: Path, database: psycopg.Connection) -> None:
        self.settings, self.folder, self.database = settings, folder, database
        self.runs: dict[str, UUID] = {}
        self.processes: list[Process] = []

    def start(self, kind: str) -> Process:
        self.processes.append(Process(self.settings, self.folder, kind))
        return self.processes[-1]

    def restart(self) -> None:
        """Start anew what has died, as a supervisor does."""
        for process in [one for one in self.processes if one.is_dead]:
            self.processes.remove(process)
            self.start(process.kind)

    def take_in(self, *names: str) -> None:
        """What the API commits, before it dies: runs, and their events in the outbox."""
        with self.database.transaction():
            for name in names:
                event = uploaded(run_id=uuid4(), name=name)
                self.runs[name] = event.run_id
                run(self.database, runs.create(event.run_id, "acme", event.document_id, [GROUP]))
                run(self.database, outbox.record(event, run_id=str(event.run_id)))

    def has_happened(self, name: str) -> bool:
        return (self.folder / name).exists()

    def go_on(self) -> None:
        (self.folder / "go on").touch()

    def ended(self) -> dict[str, tuple[str, float]]:
        """How runs have ended, and when (seconds since 1970)."""
        found = self.database.execute(
            "SELECT id, status, extract(epoch FROM finished_at) FROM runs WHERE finished_at IS NOT NULL"
        )
        by_id = {run_id: (status, float(at)) for run_id, status, at in found}
        return {name: by_id[run_id] for name, run_id in self.runs.items() if run_id in by_id}

    def rows(self) -> list[tuple[Any, ...]]:
        """All that the database knows of runs, steps and effects, with the transactions that have written it."""
        tables = "runs", "run_steps", "effects", "processed_events", "outbox", "run_events"
        return [
            row
            for table in tables
            for row in self.database.execute(f"SELECT xmin::text, t.* FROM {table} t ORDER BY 3, 1").fetchall()
        ]


@pytest.fixture
def stage(settings: Settings, topics: None, database: psycopg.Connection, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(settings, tmp_path, database)
    try:
        with sweeping(settings):
            yield made
    finally:
        for process in made.processes:
            process.kill()
            print(process.log.read_text(errors="replace")[-4000:])  # shown when the test fails


def sweeping(settings: Settings) -> AbstractContextManager[None]:
    """A sweeper works, in a thread of this process."""
    quick = settings.model_copy(update={"steps": settings.steps.model_copy(update={"sweep_seconds": 0.5})})
    return at_work(Sweeper(quick).run, "sweeper")


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("late", marks=AT_NIGHT),
        pytest.param("late and fails", marks=AT_NIGHT),
        "late in its transaction",
    ],
)
def test_a_process_that_was_frozen_changes_nothing_when_it_goes_on(stage: Stage, how: str) -> None:
    """term-llm#790: a late success overwrote what had happened meanwhile."""
    old = stage.start("member")
    stage.start("relay")
    stage.take_in(how)
    wait_until(lambda: stage.has_happened(how), 60, what="the work to begin")
    old.send(signal.SIGSTOP)
    new = stage.start("member")
    wait_until(lambda: how in stage.ended(), 60, what="the end of the run")
    wait_until(lambda: _is_committed(stage), 60, what="the commit of its offset")
    before = stage.rows()
    stage.go_on()
    old.send(signal.SIGCONT)
    wait_until(lambda: old.said('"lost"') or old.said('"revoked"'), 60, what="the old member to notice")
    wait_until(lambda: _is_committed(stage) and len(_members(stage)) == 2, 60, what="the old member to be back")
    assert stage.rows() == before
    assert stage.ended()[how][0] == "succeeded"
    assert [row[1:] for row in effects(stage.database)] == [(how, 1)]
    stage.take_in("afterwards")
    wait_until(lambda: "afterwards" in stage.ended(), 60, what="the next run")
    assert not new.is_dead
    assert not old.is_dead


@AT_NIGHT
def test_a_step_of_a_process_that_is_frozen_alone_is_shown_as_queued(stage: Stage) -> None:
    """Nobody else is there to take it: it must not be shown as running all the same."""
    old = stage.start("member")
    stage.start("relay")
    stage.take_in("late")
    wait_until(lambda: stage.has_happened("late"), 60, what="the work to begin")
    old.send(signal.SIGSTOP)
    wait_until(lambda: _step(stage)[:2] == ("queued", "owner-gone"), 60, what="the rescue")
    stage.go_on()
    old.send(signal.SIGCONT)
    wait_until(lambda: "late" in stage.ended(), 60, what="the end of the run")
    assert [row[1:] for row in effects(stage.database)] == [("late", 1)]
    assert _step(stage)[2] >= 3, "it was leased, taken away, and leased again"


@AT_NIGHT
def test_whatever_is_killed_every_run_ends_in_time_with_one_effect(stage: Stage) -> None:
    stage.take_in("intake", "publish", *DIES_AT)  # whoever took them in is dead by now
    stage.start("dying relay")
    stage.start("member")
    wait_until(lambda: stage.restart() or len(stage.ended()) == len(stage.runs), 180, what="the end of all runs")
    ended = stage.ended()
    assert {status for status, _ in ended.values()} == {"succeeded"}
    assert sorted(row[1:] for row in effects(stage.database)) == sorted((name, 1) for name in stage.runs)
    killed = {name: (stage.folder / name).stat().st_mtime for name in ("publish", *DIES_AT)}
    took = {name: round(ended[name][1] - at, 1) for name, at in killed.items()}
    print(f"from the kill to the end of the run, seconds: {took}")
    assert max(took.values()) < LATEST_SECONDS


@AT_NIGHT
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_work_that_takes_long_is_never_rescued(stage: Stage, settings: Settings, protocol: str) -> None:
    """orbit#864: 32 of 60 rescues were wrong. Here not even with the interpreter's lock kept, and a slow database."""
    assert LONG_SECONDS >= 100 * HEARTBEAT_SECONDS
    options = {"session.timeout.ms": "4000", "heartbeat.interval.ms": "300"} if protocol == "classic" else {}
    kafka = settings.kafka.model_copy(update={"group_protocol": protocol, "options": options})
    stage.settings = settings.model_copy(update={"kafka": kafka})
    for _ in range(2):
        stage.start("member")
    stage.start("relay")
    stage.take_in("long", "keeps the lock")
    wait_until(
        lambda: stage.has_happened("long") and stage.has_happened("keeps the lock"), 60, what="the work to begin"
    )
    with psycopg.connect(settings.database_url.get_secret_value()) as slow, slow.transaction():
        slow.execute("LOCK TABLE run_steps IN ACCESS EXCLUSIVE MODE")
        threading.Event().wait(2 * SESSION_SECONDS)
    wait_until(lambda: len(stage.ended()) == 2, 90, what="the end of the runs")
    told = stage.database.execute("SELECT count(*) FROM run_events WHERE state ->> 'reason' IS NOT NULL").fetchone()
    assert told == (0,)
    assert sorted(row[1:] for row in effects(stage.database)) == [("keeps the lock", 1), ("long", 1)]
    fences = stage.database.execute("SELECT fence FROM run_steps").fetchall()
    assert fences == [(1,), (1,)], "each was leased once"


def _is_committed(stage: Stage) -> bool:
    return all(one.lag == 0 for one in lag.group_offsets(stage.settings, GROUP))


def _members(stage: Stage) -> list[str]:
    """The members that have partitions."""
    return [one.id for one in lag.group_state(stage.settings, GROUP).members if one.assignment]


def _step(stage: Stage) -> tuple[Any, ...]:
    found = stage.database.execute("SELECT status, reason, fence FROM run_steps").fetchone()
    assert found is not None
    return found
