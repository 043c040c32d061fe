"""Projections: tables of a generation of their own, positions in the database, and which generation has effects."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from commands import Commands
from kafka import letters
from kafka.conftest import RunningGroup, uploaded
from prometheus_client import REGISTRY

from offsetzero import ConsumerGroup, Context, DocumentUploaded, Projection, Publisher, RunSucceeded, metrics
from offsetzero.clock import SYSTEM
from offsetzero.consumers.following import FollowingMember
from offsetzero.consumers.groups.ledger import LedgerMember
from offsetzero.consumers.projection import make_tables
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.errors import ConfigurationError, GroupStopped
from offsetzero.generation import Generation
from offsetzero.retry.failures import Poison
from offsetzero.settings import Settings
from offsetzero.store import generations, positions, processed, run_steps, runs
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import run
from offsetzero.topics import offsets
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed
from support import wait_until

Running = Callable[[ConsumerGroup], "contextmanager[RunningGroup]"]
NAMES = Projection(
    "CREATE TABLE names (document_id uuid PRIMARY KEY, name text NOT NULL); CREATE INDEX ON names (name)"
)


def names_group(concurrency: int = 4) -> ConsumerGroup:
    """Notes names; publishes an event of each; one that is called poison is dead-lettered."""
    group = ConsumerGroup("names", concurrency=concurrency, projection=NAMES)

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        if event.name == "poison":
            raise Poison("corrupt", "as it is called")
        ctx.connection.execute("INSERT INTO names VALUES (%s, %s)", (event.document_id, event.name))
        ctx.publish(
            RunSucceeded(run_id=event.run_id, tenant_id="acme", document_id=event.document_id, finished_at=SYSTEM.now())
        )

    return group


def publish(settings: Settings, *names: str) -> None:
    with Publisher(settings) as publisher:
        for name in names:
            publisher.publish(uploaded(name=name))


def one(database: psycopg.Connection, query: str) -> Any:
    row = database.execute(query.encode()).fetchone()
    return None if row is None else row[0]


def named(database: psycopg.Connection, generation: int = 1) -> int:
    return int(one(database, f"SELECT count(*) FROM names_g{generation}.names"))


def read(database: psycopg.Connection, generation: int = 1) -> int:
    """How many records the database says are behind the group's positions."""
    where = f"group_name = 'names' AND generation = {generation} AND topic = 'documents'"
    return int(one(database, f"SELECT coalesce(sum(position), 0) FROM group_positions WHERE {where}"))


@contextmanager
def member(settings: Settings, generation: int) -> Iterator[RunningGroup]:
    made = RunningGroup(names_group(), settings, generation=generation)
    try:
        yield made
    finally:
        made.runtime.stop()
        made._thread.join(60)


def later(database: psycopg.Connection, number: int = 2) -> None:
    with database.transaction():
        make_tables(database, Generation("names", number), NAMES)


@pytest.mark.usefixtures("topics")
def test_a_projection_is_made_when_its_group_first_runs_and_its_positions_are_in_the_database(
    settings: Settings, database: psycopg.Connection, running: Running
) -> None:
    publish(settings, *"abc")
    with running(names_group()):
        wait_until(lambda: one(database, "SELECT to_regclass('names_g1.names')") and named(database) == 3, what="rows")
    assert run(database, generations.active("names")) == 1
    assert read(database) == 3, "the end of a member leaves the database where it was"
    assert one(database, "SELECT to_regclass('public.names')") is None
    assert one(database, "SELECT count(*) FROM outbox WHERE type = 'run.succeeded'") == 3
    publish(settings, *"de")
    with running(names_group()):
        wait_until(lambda: named(database) == 5, what="rows")


@pytest.mark.usefixtures("topics")
def test_the_positions_of_the_database_win_over_those_of_kafka(
    settings: Settings, database: psycopg.Connection, running: Running
) -> None:
    """apache/kafka's tools, or a commit that was lost: what Kafka holds is neither skipped to nor read again from."""
    publish(settings, *"abcdef")
    with running(names_group()):
        wait_until(lambda: one(database, "SELECT to_regclass('names_g1.names')") and named(database) == 6, what="rows")
    before = run(database, positions.of_generation(Generation("names")))
    publish(settings, *"ghij")
    topic_id = next(at.topic_id for (topic, _), at in before.items() if topic == "documents")
    places = [place for place in before if place[0] == "documents"]
    admin, names = client(settings), Names(settings.kafka.namespace)
    ends = offsets.ends(admin, names, places, offsets.OffsetSpec.latest())
    offsets.alter(admin, names, "names", {place: Committed(end, topic_id) for place, end in ends.items()})
    with running(names_group()):
        wait_until(lambda: named(database) == 10, what="what Kafka was told to skip")
    database.execute("DELETE FROM processed_events")  # whatever is read again fails from here on
    offsets.alter(admin, names, "names", {place: Committed(0, topic_id) for place in places})
    with running(names_group()):
        publish(settings, "k")
        wait_until(lambda: named(database) == 11, what="what is new")
    assert one(database, "SELECT count(*) FROM processed_events") == 1, "nothing was read again"
    committed = offsets.committed(settings, "names", places)
    kept = run(database, positions.of_generation(Generation("names")))
    assert {place: at.offset for place, at in committed.items()} == {place: kept[place].offset for place in places}


KILLED = """
import os, signal
from pathlib import Path
from offsetzero import ConsumerGroup, DocumentUploaded, Projection
names = ConsumerGroup("names", concurrency=1, projection=Projection("CREATE TABLE names (document_id uuid, name text)"))

@names.handler(DocumentUploaded)
def handle(event, ctx):
    if event.name == "29" and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    ctx.connection.execute("INSERT INTO names VALUES (%s, %s)", (event.document_id, event.name))
"""


@pytest.mark.usefixtures("topics")
def test_a_member_that_is_killed_after_an_effect_and_before_any_commit_of_offsets_reads_nothing_again(
    settings: Settings, tmp_path: Path, database: psycopg.Connection
) -> None:
    """Effect, outcome and position are one transaction: a kill -9 finds no time between them."""
    document = uploaded().document_id
    with Publisher(settings) as publisher:
        for number in range(40):
            publisher.publish(uploaded(document_id=document, name=str(number)))  # one partition, one key
    (tmp_path / "mine.py").write_text(KILLED)
    commands = Commands(settings, tmp_path)
    process = commands.start("groups", "run", "mine:names")
    try:
        assert process.wait(60) == -signal.SIGKILL
        assert (named(database), read(database)) == (29, 29)
        # Without outcomes what is read again would have its effect again.
        database.execute("DELETE FROM processed_events")
        process = commands.start("groups", "run", "mine:names")
        wait_until(lambda: named(database) >= 40, 60, what="the rest")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    notes = database.execute("SELECT name::int FROM names_g1.names").fetchall()
    assert [number for (number,) in notes] == list(range(40))
    assert read(database) == 40


@pytest.mark.usefixtures("topics")
def test_a_later_generation_reads_all_again_in_silence_until_the_pointer_is_at_it(
    settings: Settings, database: psycopg.Connection, running: Running
) -> None:
    publish(settings, "a", "b", "poison")
    dead = "SELECT count(*) FROM processed_events WHERE outcome = 'dead-lettered' AND generation = {}"
    with running(names_group()):
        wait_until(lambda: one(database, dead.format(1)) == 1 and named(database) == 2, what="the first generation")
    emitted = "SELECT count(*) FROM outbox WHERE type = 'run.succeeded'"
    assert one(database, emitted) == 2
    later(database)
    with member(settings, 2):
        wait_until(lambda: one(database, dead.format(2)) == 1 and named(database, 2) == 2, what="the second generation")
        assert one(database, emitted) == 2, "it has no effects besides its tables"
        database.execute("UPDATE group_pointers SET generation = 2, fence = fence + 1 WHERE group_name = 'names'")
        publish(settings, "c")
        wait_until(lambda: named(database, 2) == 3, what="the third name")
        assert one(database, emitted) == 3
    with running(names_group()):  # the one that is read
        publish(settings, "d")
        wait_until(lambda: named(database, 2) == 4, what="the fourth name")
    assert named(database) == 2
    ledger = LedgerMember(settings)
    with _in_thread(ledger.run, ledger.stop):
        both = "SELECT array_agg(group_name ORDER BY 1) FROM dead_letters"
        wait_until(lambda: one(database, both) == ["names", "names.g2"], what="both in the ledger")


@pytest.mark.usefixtures("topics")
def test_what_operators_decide_holds_at_once_for_what_a_member_reads_later(
    settings: Settings, database: psycopg.Connection
) -> None:
    """Else a rebuild that runs for an hour brings back what was discarded while it ran."""
    later(database, 1)
    later(database)
    discarded = uuid4()
    with member(settings, 2) as second:
        letters.discard(database, "names", settings.source, discarded)
        wait_until(lambda: second.runtime._amended.events, what="the look at it")
        with Publisher(settings) as publisher:
            publisher.publish(uploaded(name="a"), event_id=discarded)
        outcome = "SELECT outcome FROM processed_events WHERE generation = 2"
        wait_until(lambda: one(database, outcome) == "discarded", what="its end")


@pytest.mark.usefixtures("topics")
def test_a_run_whose_event_still_waited_at_the_switch_succeeds_when_it_is_applied(
    settings: Settings, database: psycopg.Connection
) -> None:
    """It had failed in the generation before; a copy waits in a retry topic of the one that is read now."""
    group = ConsumerGroup("names", step=True, projection=NAMES)
    group.handler(DocumentUploaded)(lambda event, ctx: None)
    later(database, 1)
    later(database)
    run_id = uuid4()
    waits = letters.Letter(0, run_id=run_id)
    run(database, runs.create(run_id, "acme", waits.document_id, ["names"]))
    run(database, run_steps.fail_step(run_id, "names", reason="corrupt", detail=""))
    assert run(database, processed.claim(EventIdentity("names", "/test", str(waits.event_id)), Outcome.FAILED))
    letters.write(settings, "names.g2", [waits], partitions=6, to="redrive")
    database.execute("UPDATE group_pointers SET generation = 2, fence = fence + 1 WHERE group_name = 'names'")
    made = RunningGroup(group, settings)
    try:
        wait_until(lambda: one(database, "SELECT status FROM runs") == "succeeded", what="the end of its run")
    finally:
        made.stop()


@pytest.mark.usefixtures("topics")
def test_the_wait_for_a_switch_is_no_part_of_a_handlers_time(
    settings: Settings, database: psycopg.Connection, running: Running
) -> None:
    """A handler may take half a second; that its transaction is held up by the pointer is not its doing."""
    group = ConsumerGroup("names", timeout=0.5, projection=NAMES)
    attempts: list[int] = []

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        ctx.connection.execute("INSERT INTO names VALUES (%s, %s)", (event.document_id, event.name))

    with running(group), psycopg.connect(settings.database_url.get_secret_value()) as switch:
        run(switch, generations.hold_pointer("names"))
        publish(settings, "a")
        waits = "SELECT bool_or(clock_timestamp() - waitstart > '1.5 s') FROM pg_locks WHERE NOT granted"
        wait_until(lambda: one(database, f"{waits} AND locktype = 'advisory' AND classid = {generations.LOCK}"))
        switch.commit()
        wait_until(lambda: named(database) == 1, what="the name")
    assert attempts == [1]


@pytest.mark.usefixtures("topics")
def test_members_of_a_generation_that_is_dropped_end_with_an_error(
    settings: Settings, database: psycopg.Connection, running: Running
) -> None:
    with running(names_group()):
        publish(settings, "a")
        wait_until(lambda: one(database, "SELECT to_regclass('names_g1.names')") and named(database) == 1, what="rows")
    later(database)
    with member(settings, 2) as second:
        wait_until(lambda: named(database, 2) == 1, what="the second generation")
        with database.transaction():
            database.execute("DELETE FROM group_generations WHERE generation = 2")
            database.execute("DROP SCHEMA names_g2 CASCADE")
        publish(settings, "b")
        wait_until(lambda: second.error, what="its end")
        assert isinstance(second.error, GroupStopped)
        assert "generation 2 was dropped" in str(second.error)
    assert one(database, "SELECT count(*) FROM processed_events WHERE generation = 2 AND outcome <> 'applied'") == 0


@pytest.mark.usefixtures("topics")
def test_a_generation_that_is_not_there_is_one_error(settings: Settings, database: psycopg.Connection) -> None:
    later(database, 1)
    made = RunningGroup(names_group(), settings, generation=7)
    with pytest.raises(ConfigurationError, match="no generation 7; there is generation 1"):
        made.stop()
    plain = ConsumerGroup("plain")
    plain.handler(DocumentUploaded)(lambda event, ctx: None)
    with pytest.raises(ConfigurationError, match="it is no projection"):
        RunningGroup(plain, settings, generation=2)


@contextmanager
def _in_thread(work: Callable[[], object], stop: Callable[[], None]) -> Iterator[None]:
    import threading

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(60)


@pytest.mark.usefixtures("topics")
def test_a_member_that_moves_to_another_generation_leaves_no_metrics_under_the_old_name(
    settings: Settings, database: psycopg.Connection
) -> None:
    for left in ("names", "names.g2"):  # by other tests, in this process
        metrics.forget(left)
    publish(settings, "a")
    following = FollowingMember(lambda: GroupRuntime(names_group(), settings))
    thread = threading.Thread(target=following.run)
    thread.start()
    try:
        wait_until(lambda: "names" in measured(), 60, what="metrics")
        later(database)
        database.execute("UPDATE group_pointers SET generation = 2 WHERE group_name = 'names'")
        wait_until(lambda: "names.g2" in measured(), 60, what="metrics of the second generation")
        assert "names" not in measured()
    finally:
        following.stop()
        thread.join(60)


def measured() -> set[str]:
    """The groups that metrics are shown of."""
    return {
        sample.labels["group"]
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.labels.get("group") and not sample.name.endswith("_created")
    }
