"""The switch between two generations of a projection, where something comes between."""

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from uuid import UUID

import psycopg
import pytest
from confluent_kafka import TopicPartition
from kafka import letters
from kafka.conftest import RunningGroup, uploaded
from kafka.letters import Letter

from offsetzero import ConsumerGroup, Context, DocumentUploaded, Projection, Publisher
from offsetzero.cli import rebuild_archive, rebuild_switch
from offsetzero.cli.rebuild_members import Members
from offsetzero.cli.rebuild_run import Rebuild
from offsetzero.cli.rebuild_switch import Wish
from offsetzero.clock import SYSTEM
from offsetzero.consumers.projection import make_tables
from offsetzero.consumers.rebuilding import alone, comparing, dropping, switching
from offsetzero.consumers.rebuilding.comparing import Comparison, TooSlow
from offsetzero.consumers.rebuilding.switching import TooFarBehind, Wanted, WouldLose
from offsetzero.errors import RebuildRefused
from offsetzero.generation import Generation
from offsetzero.history import archive, spans
from offsetzero.settings import Settings
from offsetzero.store import generations, positions, processed, withheld
from offsetzero.store.losses import Losses
from offsetzero.store.processed import EventIdentity, Outcome
from offsetzero.store.script import run
from offsetzero.store.withheld import StepEnd
from offsetzero.topics import retained
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names
from support import wait_until, within

NAMES = Projection("CREATE TABLE names (document_id uuid PRIMARY KEY, name text NOT NULL)")
OLD, NEW = Generation("names"), Generation("names", 2)
WANTED = Wanted(OLD, NEW, ["documents"], [], "a test", "a test")
WISH = Wish("a test", "a test")

pytestmark = pytest.mark.usefixtures("topics", "two")


@pytest.fixture
def two(database: psycopg.Connection) -> None:
    """Two generations that have read all there is, which is nothing; the first is read."""
    for generation in (OLD, NEW):
        with database.transaction():
            make_tables(database, generation, NAMES)


@pytest.fixture
def rebuild(settings: Settings) -> "Rebuild":
    group = ConsumerGroup("names", projection=NAMES)
    group.handler(DocumentUploaded)(lambda event, ctx: None)
    return Rebuild(settings, group, "mine:names", lambda text: None)


def frozen(database: psycopg.Connection) -> object:
    row = database.execute("SELECT frozen_until FROM group_pointers").fetchone()
    return row and row[0]


def switch(settings: Settings, database: psycopg.Connection, seconds: float = 20.0) -> None:
    switching.switch(settings, database, WANTED, seconds)


@pytest.mark.timed
def test_a_handler_that_does_not_end_holds_up_the_switch_and_the_other_transactions_for_a_bounded_time(
    settings: Settings, database: psycopg.Connection
) -> None:
    url = settings.database_url.get_secret_value()
    with psycopg.connect(url) as handler, psycopg.connect(url, autocommit=True) as other:
        run(handler, generations.enter(OLD))
        begun = time.monotonic()
        with pytest.raises(TooFarBehind, match="did not end within 1 s"):
            switch(settings, database, 1.0)
        within(15, time.monotonic() - begun, "it gave up")
        other.execute("SET lock_timeout = '30s'")
        standing = run(other, generations.enter(OLD))
        assert standing is not None
        assert (standing.is_read, standing.is_frozen) == (True, False)
    switch(settings, database)
    assert run(database, generations.active("names")) == 2


def test_a_long_stand_still_is_no_reason_to_have_others_wait_as_long_for_a_handler_that_does_not_end(
    settings: Settings, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While what is read stands still members wait at their ease; behind a lock they wait in the database."""
    monkeypatch.setattr(switching, "HOLD_SECONDS", 0.5)
    with psycopg.connect(settings.database_url.get_secret_value()) as handler:
        run(handler, generations.enter(OLD))
        with pytest.raises(TooFarBehind, match="did not end within"):
            switch(settings, database, 600.0)


def test_nobody_waits_behind_a_drop_that_waits_for_a_handler(
    settings: Settings, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropping, "LOCK_SECONDS", 0.3)
    monkeypatch.setattr(dropping, "PAUSE_SECONDS", 0.3)
    url = settings.database_url.get_secret_value()
    said: list[str] = []
    with psycopg.connect(url) as handler, psycopg.connect(url, autocommit=True) as other:
        run(handler, generations.enter(OLD))
        given = settings, database, "names", [2], [], said.append
        dropper = threading.Thread(target=dropping.drop, args=given)
        dropper.start()
        wait_until(lambda: said, what="its wait")
        other.execute("SET lock_timeout = '30s'")
        assert run(other, generations.enter(OLD)) is not None
        handler.commit()
        dropper.join(60)
    assert said[-1] == "Done: generation 2 is dropped"
    assert run(database, generations.numbers("names")) == [1]


def test_a_drop_that_is_interrupted_goes_on_where_it_was(
    settings: Settings, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a generation has done or withheld may be millions of rows: they go in many short transactions."""
    monkeypatch.setattr(dropping, "AT_ONCE", 2)
    monkeypatch.setattr(dropping, "TELL_SECONDS", 0.0)
    for _ in range(5):
        done = EventIdentity("names", "/test", str(Letter(0).event_id), generation=2)
        assert run(database, processed.claim(done, Outcome.APPLIED, silent=True))
        run(database, withheld.put(done, StepEnd(Outcome.APPLIED, UUID(int=1)), ()))
    spoken = EventIdentity("names", "/test", "spoken", generation=2)
    assert run(database, processed.claim(spoken, Outcome.APPLIED))

    def left() -> tuple[object, ...] | None:
        return database.execute(
            "SELECT (SELECT count(*) FROM withheld_effects), (SELECT count(*) FROM processed_events),"
            " to_regclass('names_g2.names') IS NULL"
        ).fetchone()

    def interrupt(text: str) -> None:
        if "rows are deleted" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dropping.drop(settings, database, "names", [2], [], interrupt)
    assert left() == (3, 6, True), "two are gone for good"
    dropping.drop(settings, database, "names", [], [], lambda text: None)
    assert left() == (0, 1, True)
    assert database.execute("SELECT event_id FROM processed_events").fetchone() == ("spoken",), "its effect was done"


def test_a_generation_that_is_behind_the_end_of_the_log_is_not_read(
    settings: Settings, database: psycopg.Connection
) -> None:
    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with pytest.raises(TooFarBehind, match="generation 2 was 1 records behind"):
        switch(settings, database, 0.5)
    assert run(database, generations.active("names")) == 1
    assert frozen(database) is None


def test_what_is_read_instead_does_not_stand_still(settings: Settings, database: psycopg.Connection) -> None:
    switch(settings, database)
    with pytest.raises(RebuildRefused, match="generation 1 is not read any more") as refused:
        switch(settings, database)
    assert not isinstance(refused.value, TooFarBehind), "it would be tried again for ever"
    assert frozen(database) is None


def test_a_rebuild_that_another_one_has_overtaken_changes_nothing(
    settings: Settings, database: psycopg.Connection, rebuild: Rebuild
) -> None:
    plan = rebuild.plan(back=False)
    switch(settings, database)
    with pytest.raises(RebuildRefused, match="another rebuild of it has changed its generations"):
        rebuild.begin(plan)
    rebuild.close()
    assert run(database, generations.numbers("names")) == [1, 2]


def test_a_switch_of_which_the_answer_is_lost_is_done_once(
    database: psycopg.Connection, rebuild: Rebuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database has committed, and the connection breaks before it can say so."""
    move: Callable[..., object] = switching._move
    moved = []

    def breaks(connection: psycopg.Connection, *given: object) -> object:
        moved.append(move(connection, *given))
        database.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        return connection.execute("SELECT 1")

    monkeypatch.setattr(switching, "_move", breaks)
    said: list[str] = []
    rebuild.say = said.append
    plan = rebuild.plan(back=False)
    rebuild_switch.switch(rebuild, plan, rebuild.begin(plan), Members("mine:names", NEW, 0), WISH)
    rebuild.close()
    assert said[-1] == "Generation 2 of names is read now."
    assert len(moved) == 1
    assert database.execute("SELECT from_generation, to_generation FROM group_switches").fetchall() == [(1, 2)]
    assert frozen(database) is None


def ended(database: psycopg.Connection, generation: Generation, letter: Letter, outcome: Outcome) -> None:
    identity = EventIdentity("names", "/test", str(letter.event_id), generation=generation.number)
    assert run(database, processed.claim(identity, outcome))


def told(found: Losses) -> list[tuple[str, str]]:
    return [(one.event_id, one.state) for one in found.events]


def test_what_would_be_lost_is_told_as_it_is_now_and_each_copy_is_read_once(
    settings: Settings, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look comes while the old one stands still: it must not take long because much waits."""
    first, both, later = (Letter(offset, due_ms=offset) for offset in (1, 2, 3))
    letters.write(settings, "names.g2", [first, both], to="redrive")
    ended(database, OLD, first, Outcome.APPLIED)
    comparison = Comparison(settings, database, OLD, NEW, [])
    found = comparison.look()
    assert told(found) == [(str(first.event_id), "waiting")]
    assert (found.count, found.due_ms, found.events[0].key) == (1, 1, str(first.document_id))
    ended(database, NEW, first, Outcome.APPLIED)
    ended(database, OLD, both, Outcome.APPLIED)
    ended(database, OLD, later, Outcome.APPLIED)
    letters.write(settings, "names.g2", [later], to="redrive")
    found = comparison.look(20.0)
    assert sorted(told(found)) == sorted((str(one.event_id), "waiting") for one in (both, later))
    assert (found.count, found.due_ms) == (2, 3)
    assert database.execute("SELECT count(*) FROM pg_temp.rebuild_copies").fetchone() == (3,)

    failed = [Letter(offset) for offset in range(5)]
    for one in failed:
        ended(database, OLD, one, Outcome.APPLIED)
        ended(database, NEW, one, Outcome.DEAD_LETTERED)
    monkeypatch.setattr(comparing, "MAX_NAMED", 2)
    found = comparison.look()
    assert (len(found.events), found.count) == (4, 7), "of each kind so many are named, and all are counted"
    assert found.due_ms is None, "to wait does not help"


def test_a_rebuild_goes_on_until_what_waits_for_a_while_is_done(
    settings: Settings, database: psycopg.Connection, rebuild: Rebuild
) -> None:
    """A short retry is no reason to give up; one in an hour is, and so is a dead letter."""
    waits = Letter(0, due_ms=SYSTEM.now_ms() + 1_000)
    letters.write(settings, "names.g2", [waits], to="redrive")
    ended(database, OLD, waits, Outcome.APPLIED)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "waits in retry topics" in text and len(said) == 1:
            ended(database, NEW, waits, Outcome.APPLIED)  # by a member, when it is due

    rebuild.say = say
    plan = rebuild.plan(back=False)
    members = Members("mine:names", NEW, 0)
    generation = rebuild.begin(plan)
    rebuild_switch.switch(rebuild, plan, generation, members, WISH)
    assert said[0].startswith("1 event waits in retry topics, due ")
    assert said[-1].startswith("Generation 2 of names is read now")

    late = Letter(1, due_ms=SYSTEM.now_ms() + 3_600_000)
    letters.write(settings, "names", [late], to="redrive")
    ended(database, NEW, late, Outcome.APPLIED)
    with pytest.raises(WouldLose):
        rebuild_switch.switch(rebuild, rebuild.plan(back=True), OLD, members, WISH)
    rebuild.close()


def test_what_waits_is_not_looked_at_again_before_the_last_of_it_is_due(
    settings: Settings, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look asks the cluster with clients of its own, and the database for all outcomes."""
    waits = Letter(0, due_ms=SYSTEM.now_ms() + 300_000)
    letters.write(settings, "names.g2", [waits], to="redrive")
    ended(database, OLD, waits, Outcome.APPLIED)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        assert not slept, "it looks again and again"
        slept.append(seconds)
        ended(database, NEW, waits, Outcome.APPLIED)

    monkeypatch.setattr(switching, "time", SimpleNamespace(sleep=sleep))
    switching.switch(settings, database, WANTED, 600.0, retries=True)
    assert 0.1 < slept[0] <= 300
    assert run(database, generations.active("names")) == 2


def test_a_rebuild_is_switched_although_there_is_always_a_retry_that_waits(
    settings: Settings, database: psycopg.Connection, rebuild: Rebuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has come before the one before it is done, as long as the generation that is read applies events.

    So none is done by its time alone: on a busy machine that is over before the next one has come.
    """
    monkeypatch.setattr(rebuild_switch, "WAIT_SECONDS", 60.0)
    stop = threading.Event()
    url = settings.database_url.get_secret_value()

    def trickle() -> None:
        waiting: deque[Letter] = deque()
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.is_set():
                one = Letter(0, due_ms=SYSTEM.now_ms() + 1_000)
                with connection.transaction():
                    standing = run(connection, generations.enter(OLD))
                    comes = standing is not None and standing.is_read and not standing.is_frozen
                    if comes:
                        letters.write(settings, "names.g2", [one], to="redrive")
                        ended(connection, OLD, one, Outcome.APPLIED)
                        waiting.append(one)
                while len(waiting) > comes and waiting[0].due_ms <= SYSTEM.now_ms():
                    ended(connection, NEW, waiting.popleft(), Outcome.APPLIED)

    said: list[str] = []
    rebuild.say = said.append
    plan = rebuild.plan(back=False)
    generation = rebuild.begin(plan)
    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        wait_until(lambda: processed_by(database, OLD), what="the first that waits")
        rebuild_switch.switch(rebuild, plan, generation, Members("mine:names", NEW, 0), WISH)
    finally:
        stop.set()
        thread.join(60)
        rebuild.close()
    # The first try may do: what waits while the old one stands still comes due within that time.
    assert all(" in retry topics" in line for line in said[:-1]), said
    assert said[-1].startswith("Generation 2 of names is read now; generation 1 stood still for")
    lost = database.execute(
        "SELECT count(*) FROM processed_events o WHERE generation = 1 AND NOT EXISTS (SELECT FROM processed_events n"
        " WHERE n.generation = 2 AND n.event_id = o.event_id)"
    ).fetchone()
    assert lost == (0,)


def processed_by(database: psycopg.Connection, generation: Generation) -> bool:
    query = "SELECT EXISTS (SELECT FROM processed_events WHERE generation = %s)"
    return bool((database.execute(query, (generation.number,)).fetchone() or (False,))[0])


def test_an_event_that_was_applied_before_an_operator_decided_about_it_is_told(
    settings: Settings, database: psycopg.Connection
) -> None:
    """What the log means now is without it: the new one has read it too early."""
    event = Letter(0)
    ended(database, OLD, event, Outcome.DEAD_LETTERED)
    ended(database, NEW, event, Outcome.APPLIED)
    comparison = Comparison(settings, database, OLD, NEW, [])
    assert comparison.look().count == 0, "it is none that readers have now"
    letters.discard(database, "names", "/test", event.event_id)
    assert told(comparison.look()) == [(str(event.event_id), "applied before an operator's decision")]


@pytest.mark.timed
def test_a_comparison_that_takes_longer_than_the_freeze_gives_up(
    settings: Settings, database: psycopg.Connection
) -> None:
    comparison = Comparison(settings, database, OLD, NEW, [])
    with psycopg.connect(settings.database_url.get_secret_value()) as other:
        other.execute("LOCK TABLE processed_events")
        begun = time.monotonic()
        with pytest.raises(TooSlow, match="could not be compared with generation 1 in time"):
            comparison.look(1.0)
        within(10, time.monotonic() - begun, "it gave up")
    assert comparison.look(20.0).count == 0


def test_a_rebuild_that_has_lost_its_connection_is_not_held_up_by_itself(
    settings: Settings, database: psycopg.Connection
) -> None:
    """The server does not know that the connection is gone, for half a minute, and its session has the lock."""
    said: list[str] = []
    one = alone.Alone(settings, "names", said.append)
    one.begin()
    lost, pid = one.connection, one.connection.info.backend_pid
    kept = os.dup(lost.fileno())  # what the server sees of it
    ours, theirs = socket.socketpair()
    theirs.close()
    os.dup2(ours.fileno(), lost.fileno())
    with pytest.raises(psycopg.OperationalError):
        lost.execute("SELECT 1")
    with pytest.raises(RebuildRefused):
        alone.only_one(database, "names")
    one.mend()
    assert one.connection.execute("SELECT 1").fetchone() == (1,)
    assert said == [f"The connection was lost; its session in the database, {pid}, is ended"]
    with pytest.raises(RebuildRefused):
        alone.only_one(database, "names")
    one.close()
    ours.close()
    os.close(kept)


def test_a_rebuild_that_has_lost_its_connection_ends_when_another_one_has_begun(
    settings: Settings, database: psycopg.Connection
) -> None:
    one = alone.Alone(settings, "names", lambda text: None)
    one.begin()
    database.execute("SELECT pg_terminate_backend(%s, 10000)", (one.connection.info.backend_pid,))
    alone.only_one(database, "names")
    with pytest.raises(psycopg.OperationalError):
        one.connection.execute("SELECT 1")
    with pytest.raises(RebuildRefused, match="a rebuild of it is running"):
        one.mend()
    one.close()
    assert run(database, generations.active("names")) == 1


def test_what_only_the_archive_has_is_read_first_and_members_go_on_from_there(
    settings: Settings, database: psycopg.Connection
) -> None:
    """A rebuild begins at offset zero, also where retention has taken the beginning of the log."""
    group = ConsumerGroup("names", projection=NAMES)

    @group.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        ctx.connection.execute("INSERT INTO names VALUES (%s, %s)", (event.document_id, event.name))

    def names() -> set[str]:
        return {row[0] for row in database.execute("SELECT name FROM names_g2.names")}

    def publish(*names: str) -> None:
        with Publisher(settings) as publisher:
            for name in names:
                publisher.publish(uploaded(name=name))

    publish(*"abcdefgh")
    archive.archive(settings, "documents", spans.resolve(settings, "documents", "earliest", "latest"))
    ends = {number: one.end for number, one in retained.bounds(settings, "documents").items()}
    topic = Names(settings.kafka.namespace).topic("documents")
    asked = [TopicPartition(topic, number, end) for number, end in ends.items()]
    admin = client(settings)
    for future in admin.delete_records(asked).values():
        future.result(30)
    publish("i")
    said: list[str] = []
    one = Rebuild(settings, group, "mine:names", said.append)
    assert {sentence.partition(":")[0] for sentence in one.unseen()} == {"Read from the archive first"}
    rebuild_archive.read(settings, one, NEW, said.append)
    assert names() == set("abcdefgh")
    assert said == ["8 offsets of the archive are read: 8 applied."]
    at = run(database, positions.of_generation(NEW))
    assert {number: known.offset for (_, number), known in at.items()} == {n: end for n, end in ends.items() if end}
    rebuild_archive.read(settings, one, NEW, said.append)
    assert len(said) == 1, "twice does nothing"
    one.close()
    member = RunningGroup(group, settings, generation=2)
    try:
        wait_until(lambda: names() == set("abcdefghi"), what="the rest, from the log")
    finally:
        member.stop()
