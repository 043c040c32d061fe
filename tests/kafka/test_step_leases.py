"""Steps of runs, on the real broker and database: what takes too long, and whose lease was taken away meanwhile."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from kafka.conftest import RunningGroup, effects, uploaded

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.reading import opening
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.policy import Tier
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store import leases, runs, starts
from offsetzero.store.leases import OVERDUE, Rescue
from offsetzero.store.script import run
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[RunningGroup]]
TIERS = [Tier("retry-1m", 0.2)]


def publish(settings: Settings, database: psycopg.Connection, name: str = "a.pdf") -> UUID:
    """The event of a run whose only step is the group `audit`."""
    event = uploaded(run_id=uuid4(), name=name)
    run(database, runs.create(event.run_id, "acme", event.document_id, ["audit"]))
    with Publisher(settings) as publisher:
        publisher.publish(event, run_id=str(event.run_id))
    return event.run_id


def step(database: psycopg.Connection, run_id: UUID) -> tuple[Any, ...]:
    """Its status, reason, attempts and fence."""
    found = database.execute("SELECT status, reason, attempts, fence FROM run_steps WHERE run_id = %s", (run_id,))
    row = found.fetchone()
    assert row is not None
    return row


def ended(database: psycopg.Connection, run_id: UUID) -> str:
    """How the run ended."""

    def status() -> str:
        found = database.execute("SELECT status FROM runs WHERE id = %s AND finished_at IS NOT NULL", (run_id,))
        row = found.fetchone()
        return row[0] if row is not None else ""

    return wait_until(status, what="the end of the run")


def note(event: DocumentUploaded, ctx: Context) -> None:
    ctx.connection.execute(
        "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
        (event.document_id, event.name, ctx.attempt),
    )


class Gate:
    """Where a function waits until the test lets it go on."""

    def __init__(self) -> None:
        self.calls = 0
        self._reached, self._open = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.calls += 1
        self._reached.set()
        assert self._open.wait(60)

    def take_away(self, database: psycopg.Connection, reason: str) -> None:
        """Do as the sweeper does, once a function waits; then let it go on."""
        assert self._reached.wait(60)
        found = run(database, leases.held(0.0))
        assert run(database, leases.take_away([Rescue(one, reason, "said") for one in found]))
        self._open.set()


@pytest.mark.parametrize("where", ["prepare", "prepare and handler", "async"])
def test_a_step_past_its_time_is_aborted_and_retried(
    settings: Settings, running: Running, database: psycopg.Connection, where: str
) -> None:
    """Its member lives, and beats, all the time: that must not keep it at work for ever (procrastinate#1408)."""
    audit = ConsumerGroup("audit", step=True, max_duration=1.0, tiers=TIERS)
    share = 0.7 if where == "prepare and handler" else 60.0

    def wait(ctx: Context) -> None:
        if ctx.attempt == 1:
            threading.Event().wait(share)

    if where == "async":

        @audit.prepare(DocumentUploaded)
        async def slow(event: DocumentUploaded, ctx: Context) -> None:
            if ctx.attempt == 1:
                await asyncio.sleep(share)

    else:

        @audit.prepare(DocumentUploaded)
        def slow_too(event: DocumentUploaded, ctx: Context) -> None:
            wait(ctx)

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        note(event, ctx)
        if where == "prepare and handler":
            wait(ctx)

    with running(audit):
        run_id = publish(settings, database)
        assert ended(database, run_id) == "succeeded"
    assert [row[2] for row in effects(database)] == [2], "what the first attempt wrote is rolled back"
    said = database.execute("SELECT state ->> 'reason' FROM run_events WHERE state ->> 'status' = 'waiting'").fetchall()
    assert said == [(OVERDUE,)]


def test_a_step_that_always_takes_too_long_fails(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    audit = ConsumerGroup("audit", step=True, max_duration=0.3, tiers=TIERS)

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        note(event, ctx)
        time.sleep(2)

    with running(audit):
        run_id = publish(settings, database)
        assert ended(database, run_id) == "failed"
        assert step(database, run_id)[:3] == ("failed", OVERDUE, 2)
    assert effects(database) == []


@pytest.mark.parametrize("how", ["succeeds", "fails"])
def test_what_comes_after_the_lease_was_taken_away_has_no_effect(
    settings: Settings, running: Running, database: psycopg.Connection, how: str
) -> None:
    """Neither its rows nor its retry record: the event is begun again, by a lease of its own."""
    audit, gate = ConsumerGroup("audit", step=True, tiers=TIERS), Gate()

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        note(event, ctx)
        gate.wait()
        if how == "fails" and gate.calls == 1:
            raise TimeoutError

    with running(audit):
        run_id = publish(settings, database)
        gate.take_away(database, "owner-gone")
        assert ended(database, run_id) == "succeeded"
    assert len(effects(database)) == 1
    attempt = 1 if how == "succeeds" else 2  # a failure that was seen is counted, by the new lease
    assert effects(database)[0][2] == attempt
    assert step(database, run_id)[3] == 2 + attempt


def test_who_is_late_because_it_took_too_long_has_had_an_attempt(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """A function that holds the interpreter cannot be given up: were it begun again as if nothing had been, it would be
    at work for ever."""
    audit, gate = ConsumerGroup("audit", step=True, tiers=TIERS), Gate()

    @audit.handler(DocumentUploaded)
    def act(event: DocumentUploaded, ctx: Context) -> None:
        gate.wait()
        note(event, ctx)

    with running(audit):
        run_id = publish(settings, database)
        gate.take_away(database, OVERDUE)
        assert ended(database, run_id) == "succeeded"
    assert [row[2] for row in effects(database)] == [2]
    assert step(database, run_id)[2] == 2


def test_a_former_owner_that_enters_late_keeps_nobody_from_the_partition(
    settings: Settings, running: Running, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was frozen, or waited for the database, after it was given the partition, and had lost it by then.

    The owner is the only one that would ever lease its records, and was refused for good: they waited for ever.
    """
    monkeypatch.setattr(opening, "CONTESTED_SECONDS", 0.1)
    audit = ConsumerGroup("audit", step=True, tiers=TIERS)
    audit.handler(DocumentUploaded)(note)
    with running(audit):
        assert ended(database, publish(settings, database)) == "succeeded"
        places = database.execute("SELECT topic, partition FROM group_starts WHERE group_name = 'audit'").fetchall()
        run(database, starts.enter("audit", places, "of the former owner"))
        assert ended(database, publish(settings, database)) == "succeeded"
    assert len(effects(database)) == 2


def test_events_wait_for_the_tables_of_their_version(
    settings: Settings, running: Running, database: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that is started before `offsetzero migrate`: no attempt is counted, and it goes on by itself."""
    audit = ConsumerGroup("audit", step=True, tiers=TIERS)
    audit.handler(DocumentUploaded)(note)
    database.execute("ALTER TABLE run_steps RENAME fence TO later")
    with running(audit):
        run_id = publish(settings, database)
        wait_until(lambda: "offsetzero migrate" in caplog.text, what="what to do in the log")
        database.execute("ALTER TABLE run_steps RENAME later TO fence")
        assert ended(database, run_id) == "succeeded"
    assert [row[2] for row in effects(database)] == [1]
