"""Schedules in the real database: what is due is done once, whoever is killed, sleeps, pauses, or comes second."""

import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import psycopg
import pytest
from commands import CommandsHere

from offsetzero import metrics, tracing
from offsetzero.producers.schedules import firing, reindexing
from offsetzero.producers.schedules.scheduler import Scheduler
from offsetzero.schemas.ids import first_of, time_of, uuid7, uuid7_of
from offsetzero.settings import Settings
from offsetzero.store import fires, reports, schedules
from offsetzero.store.schedules import Schedule
from offsetzero.store.script import Script, run
from offsetzero.topics.catalogue import declared_for
from support import wait_until

Connection = psycopg.Connection[tuple[Any, ...]]
DELETED = {"document_id": str(uuid4()), "tenant_id": "acme", "deleted_at": "2026-01-31T12:00:00Z"}
EVENT = ("event", "--type", "document.deleted", "--data", json.dumps(DELETED))
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW
WHEN (NEW.aggregateid = '00000000-0000-0000-0000-000000000000') EXECUTE FUNCTION refuse();
"""
MODULE = """
from offsetzero.schemas.event import Event


class Rung(Event, type="bell.rung", key="bell"):
    bell: str
"""


@pytest.fixture
def config(database_url: str, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, database_url=database_url)


@pytest.fixture
def offsetzero(config: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(config, monkeypatch, "bells")


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@contextmanager
def scheduling(config: Settings) -> Iterator[Scheduler]:
    """A scheduler works, in a thread of this process."""
    stop, scheduler = threading.Event(), Scheduler(config)
    thread = threading.Thread(target=scheduler.run, args=(stop,), name="scheduler")
    thread.start()
    try:
        yield scheduler
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def one(connection: Connection, name: str) -> Schedule:
    (found,) = run(connection, schedules.named(name))
    return found


def past(zone: str = "UTC") -> str:
    """Cron text of the full hours that were two to five hours ago: none comes while a test runs, however slowly."""
    now = datetime.now(ZoneInfo(zone))
    return f"0 {','.join(str((now - timedelta(hours=hours)).hour) for hours in range(2, 6))} * * *"


def sleep(connection: Connection, name: str, for_so_long: timedelta) -> datetime:
    """As if no scheduler had looked for so long; returns when the last one did."""
    slept = "UPDATE schedules SET done_until = clock_timestamp() - %s, next_at = clock_timestamp() - %s WHERE name = %s"
    connection.execute(slept, (for_so_long, for_so_long, name))
    return one(connection, name).done_until


def act(connection: Connection, config: Settings, name: str) -> list[datetime]:
    """What a scheduler does for one schedule, once."""
    schedule_id = one(connection, name).id
    with connection.transaction():
        done = run(connection, firing.act(schedule_id, config))
    return list(done.fires) if done else []


def events(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT id, headers->>'ce_time' FROM outbox ORDER BY id").fetchall()


def documents(connection: Connection, tenant: str, count: int) -> list[UUID]:
    found = [uuid7() for _ in range(count)]
    for one in found:
        connection.execute(
            "INSERT INTO documents (id, tenant_id, name, content_type, uri, size_bytes, sha256, uploaded_at) "
            "VALUES (%s, %s, 'a.txt', 'text/plain', 'file:///a', 10, %s, now() - interval '3 days')",
            (one, tenant, str(one)),
        )
    return found


def test_of_what_was_missed_the_last_comes_once_and_its_id_follows_from_its_time(
    offsetzero: CommandsHere, connection: Connection, config: Settings
) -> None:
    said = offsetzero("schedules", "add", "hourly", past("Asia/Kolkata"), *EVENT, "--zone", "Asia/Kolkata").stdout
    assert "fires next at" in said
    assert "+05:30" in said
    assert act(connection, config, "hourly") == [], "nothing is due yet"
    since = sleep(connection, "hourly", timedelta(hours=6))
    (fired,) = act(connection, config, "hourly")
    ((event_id, ce_time),) = events(connection)
    assert fired.minute == 30, "by the clock of its zone"
    assert datetime.fromisoformat(ce_time) == fired == time_of(event_id)
    (fire,) = run(connection, fires.page(one(connection, "hourly").id, limit=10))
    assert (fire.id, fire.fire_at) == (event_id, fired)
    assert fire.missed_since is not None
    assert since < fire.missed_since <= since + timedelta(hours=2)
    assert fired - fire.missed_since == timedelta(hours=3)
    assert act(connection, config, "hourly") == []
    assert len(events(connection)) == 1


@pytest.mark.parametrize("policy", ["skip", "all"])
def test_what_was_missed_is_made_up_for_by_policy(
    offsetzero: CommandsHere, connection: Connection, config: Settings, policy: str
) -> None:
    offsetzero("schedules", "add", "odd", "0,20,40 * * * *", *EVENT, "--catch-up", policy)
    connection.execute(  # on no fire time: between two of them
        "UPDATE schedules SET done_until = t - interval '90 minutes', next_at = t - interval '90 minutes' "
        "FROM (SELECT date_trunc('hour', clock_timestamp()) - interval '12 hours' + interval '10 minutes' AS t) AS at"
    )
    begun = one(connection, "odd").done_until
    fired = act(connection, config, "odd")
    if policy == "skip":
        assert all(datetime.now(UTC) - fire_at < timedelta(seconds=120) for fire_at in fired)
        assert one(connection, "odd").done_until > begun
        return
    assert 36 <= len(fired) <= 100
    assert fired[0] - begun == timedelta(minutes=20)
    assert len(events(connection)) == len(set(fired)) == len(fired)


def test_a_clock_that_was_set_back_fires_nothing_twice_and_loses_nothing(
    offsetzero: CommandsHere, connection: Connection, config: Settings
) -> None:
    """The database's clock was a day ahead when it fired last; then somebody set it right."""
    offsetzero("schedules", "add", "each", "* * * * *", *EVENT)
    sleep(connection, "each", timedelta(minutes=10))
    (fired,) = act(connection, config, "each")
    ahead = datetime.now(UTC) + timedelta(days=1)
    connection.execute("UPDATE schedules SET done_until = %s, next_at = %s", (ahead, ahead + timedelta(minutes=1)))
    looked_at = run(connection, schedules.due(datetime.now(UTC), 10))
    assert looked_at == [(one(connection, "each").id, schedules.Kind.EVENT)]
    assert act(connection, config, "each") == []
    after = one(connection, "each")
    assert after.done_until < ahead
    assert after.next_at is not None
    assert after.next_at - after.done_until <= timedelta(minutes=1), "and fires when that minute comes"
    connection.execute("UPDATE schedules SET done_until = %s", (fired - timedelta(seconds=1),))  # set back by a minute
    again = act(connection, config, "each")
    assert fired not in again
    assert len(events(connection)) == 1 + len(again)


def test_a_second_insert_for_a_fire_time_changes_nothing(
    offsetzero: CommandsHere, connection: Connection, config: Settings
) -> None:
    """As after a restored backup, or with a scheduler that has taken what another one has."""
    offsetzero("schedules", "add", "hourly", past(), *EVENT)
    sleep(connection, "hourly", timedelta(hours=3, minutes=30))
    slept = one(connection, "hourly")
    assert len(act(connection, config, "hourly")) == 1
    connection.execute("UPDATE schedules SET done_until = %s, next_at = %s", (slept.done_until, slept.next_at))
    assert act(connection, config, "hourly") == []
    assert len(events(connection)) == 1


def test_killed_before_the_commit_nothing_was_done_and_the_next_one_does_it(
    offsetzero: CommandsHere, connection: Connection, config: Settings, database_url: str
) -> None:
    offsetzero("schedules", "add", "hourly", past(), *EVENT)
    sleep(connection, "hourly", timedelta(hours=3, minutes=30))
    schedule_id = one(connection, "hourly").id
    with psycopg.connect(database_url) as victim:
        done = run(victim, firing.act(schedule_id, config))
        assert done is not None
        assert len(done.fires) == 1
        assert act(connection, config, "hourly") == [], "another one leaves it alone meanwhile"
        connection.execute("SELECT pg_terminate_backend(%s)", (victim.info.backend_pid,))
        wait_until(
            lambda: (
                not connection.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE pid = %s", (victim.info.backend_pid,)
                ).fetchall()
            )
        )
        victim.close()
    assert events(connection) == []
    assert act(connection, config, "hourly") == list(done.fires)
    assert len(events(connection)) == 1


def test_paused_while_it_is_due_it_does_not_fire_and_nothing_is_made_up_for(
    offsetzero: CommandsHere, connection: Connection, config: Settings
) -> None:
    offsetzero("schedules", "add", "hourly", past(), *EVENT)
    sleep(connection, "hourly", timedelta(hours=3, minutes=30))
    offsetzero("schedules", "pause", "hourly", "--who", "ann")
    offsetzero("schedules", "pause", "hourly", "--who", "bob")
    assert run(connection, schedules.due(datetime.now(UTC), 10)) == []
    assert act(connection, config, "hourly") == []
    offsetzero("schedules", "run", "hourly", "--who", "cid")
    assert len(events(connection)) == 1, "by hand all the same"
    assert json.loads(offsetzero("schedules", "show", "hourly").stdout)["next"] == [], "none while it is paused"
    offsetzero("schedules", "resume", "hourly", "--who", "dan")
    assert act(connection, config, "hourly") == []
    shown = json.loads(offsetzero("schedules", "show", "hourly").stdout)
    assert [fire["by_hand"] for fire in shown["fires"]] == ["cid"]
    assert [(done["action"], done["who"]) for done in shown["audit"]][1:] == [
        ("paused", "ann"),
        ("run", "cid"),
        ("resumed", "dan"),
    ]
    assert len(shown["next"]) == 5
    offsetzero("schedules", "remove", "hourly", "--who", "eve")
    last = connection.execute("SELECT name, action, who FROM schedule_actions ORDER BY id DESC LIMIT 1").fetchone()
    assert last == ("hourly", "removed", "eve")
    assert "there is no schedule hourly" in offsetzero("schedules", "show", "hourly", status=1).stderr


def test_rules_that_have_changed_are_applied_and_only_where_they_change_something(
    offsetzero: CommandsHere, connection: Connection, config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 200,000 schedules a statement for each took minutes, in which nothing fired and health failed."""
    for name in ("same", "changed", "gone"):
        offsetzero("schedules", "add", name, "0 2 * * *", "report")
    offsetzero("schedules", "pause", "gone")
    right = one(connection, "changed").next_at
    connection.execute("UPDATE schedules SET next_at = next_at + interval '1 hour' WHERE name = 'changed'")
    connection.execute("UPDATE schedules SET zone = 'Mars/Olympus' WHERE name = 'gone'")
    corrected: list[UUID] = []
    look_again = schedules.look_again
    monkeypatch.setattr(schedules, "look_again", lambda *args: corrected.append(args[0]) or look_again(*args))
    with scheduling(config):
        wait_until(lambda: one(connection, "changed").next_at == right)
    assert corrected == [one(connection, "changed").id]
    assert one(connection, "gone").error is None, "nobody wants it now"


def test_a_schedule_whose_zone_is_known_again_has_no_error_any_more(
    offsetzero: CommandsHere, connection: Connection, config: Settings
) -> None:
    """It had it until it fired next, which may be in a year."""
    offsetzero("schedules", "add", "yearly", "0 2 29 2 *", "report")
    right = one(connection, "yearly").next_at
    connection.execute("UPDATE schedules SET zone = 'Mars/Olympus', next_at = now()")
    with scheduling(config):
        wait_until(lambda: one(connection, "yearly").error)
        connection.execute("UPDATE schedules SET zone = 'UTC', next_at = now()")  # its machine has the zone again
        wait_until(lambda: (one(connection, "yearly").error, one(connection, "yearly").next_at) == (None, right))


def test_a_report_is_what_sql_says(offsetzero: CommandsHere, connection: Connection, config: Settings) -> None:
    offsetzero("schedules", "add", "daily", "0 0 * * *", "report")
    mine, (gone, *_) = documents(connection, "acme", 3), documents(connection, "acme", 1)
    documents(connection, "other", 1)
    connection.execute("UPDATE documents SET deleted_at = now() WHERE id = %s", (gone,))
    for status, hours, tokens in [("succeeded", 30, 5), ("failed", 30, 7), ("failed", 40, 9), ("queued", 0, 100)]:
        run_id = uuid7()
        connection.execute(
            "INSERT INTO runs (id, tenant_id, document_id, status, created_at) "
            "VALUES (%s, 'acme', %s, %s, date_trunc('day', clock_timestamp()) - make_interval(hours => %s - 24))",
            (run_id, mine[0], status, hours) if hours else (run_id, mine[0], status, -24),
        )
        for step in ("indexer", "summariser"):
            connection.execute(
                "INSERT INTO run_steps (run_id, step, input_tokens, output_tokens) VALUES (%s, %s, %s, %s)",
                (run_id, step, tokens, 1),
            )
    sleep(connection, "daily", timedelta(days=1))
    (fired,) = act(connection, config, "daily")
    found = connection.execute(
        "SELECT tenant_id, since, until, documents, size_bytes, queued, running, succeeded, failed, cancelled, "
        "input_tokens, output_tokens FROM reports ORDER BY tenant_id"
    ).fetchall()
    day = timedelta(days=1)
    assert found == [
        ("acme", fired - day, fired, 3, 30, 0, 0, 1, 2, 0, 42, 6),
        ("other", fired - day, fired, 1, 10, 0, 0, 0, 0, 0, 0, 0),
    ]
    offsetzero("schedules", "run", "daily")
    offsetzero("schedules", "run", "daily")
    since = connection.execute("SELECT since FROM reports WHERE tenant_id = 'acme' ORDER BY id DESC LIMIT 2").fetchall()
    assert since == [(fired,), (fired,)], "since the last one of its own times"


def test_what_was_done_long_ago_is_forgotten_but_not_the_last_of_its_own_times(
    offsetzero: CommandsHere, connection: Connection
) -> None:
    offsetzero("schedules", "add", "daily", "0 0 * * *", "report")
    now, day = datetime.now(UTC), timedelta(days=1)
    for days, by_hand, is_over in [
        (99, None, True),
        (98, "ann", True),
        (97, None, False),
        (96, None, True),
        (95, "ann", True),
    ]:
        connection.execute(
            "INSERT INTO schedule_fires (id, schedule_id, fire_at, by_hand, ended_at) VALUES (%s, %s, %s, %s, %s)",
            (
                uuid7_of(now - days * day),
                one(connection, "daily").id,
                now - days * day,
                by_hand,
                now - days * day if is_over else None,
            ),
        )
    with psycopg.connect(connection.info.dsn, password=connection.info.password) as another:
        another.execute("SELECT FROM schedule_fires ORDER BY id LIMIT 1 FOR UPDATE")
        assert run(connection, fires.prune()) == 2, "it does not wait for another scheduler"
    assert run(connection, fires.prune()) == 1
    left = run(connection, fires.page(one(connection, "daily").id, limit=10))
    assert [(now - fire.fire_at).days for fire in left] == [96, 97]


def test_reports_and_the_audit_are_forgotten_after_two_years(
    offsetzero: CommandsHere, connection: Connection, config: Settings
) -> None:
    offsetzero("schedules", "add", "daily", "0 0 * * *", "report", "--tenant", "acme")
    offsetzero("schedules", "run", "daily")
    for table, at in [("reports", "made_at"), ("schedule_actions", "at")]:
        connection.execute(
            f"INSERT INTO {table} SELECT (jsonb_populate_record(NULL::{table}, to_jsonb(r) || jsonb_build_object("
            f"'id', d.id, '{at}', now() - d.age))).* FROM (SELECT * FROM {table} LIMIT 1) r, "
            "(VALUES (%s, interval '731 days'), (%s, interval '729 days')) d (id, age)".encode(),
            [uuid7_of(datetime.now(UTC) - timedelta(days=days)) for days in (731, 729)],
        )
    with scheduling(config):
        for table in ("reports", "schedule_actions"):
            oldest = f"SELECT min(id::text)::uuid > %s FROM {table}".encode()
            about = (first_of(datetime.now(UTC) - timedelta(days=730)),)
            wait_until(lambda: connection.execute(oldest, about).fetchone() == (True,), what=table)  # noqa: B023
    counts = "SELECT (SELECT count(*) FROM reports), (SELECT count(*) FROM schedule_actions)"
    assert connection.execute(counts).fetchone() == (2, 3), "and only these"


def test_what_is_quick_comes_before_reports_and_between_two_of_them(
    offsetzero: CommandsHere, connection: Connection, config: Settings
) -> None:
    for name, kind in [("first", ["report"]), ("second", ["report"]), ("event", EVENT)]:
        offsetzero("schedules", "add", name, past(), *kind)
        sleep(connection, name, timedelta(hours=3))
    scheduler = Scheduler(config)
    done = []
    while scheduler._fire(connection):
        rows = connection.execute("SELECT s.name FROM schedule_fires f JOIN schedules s ON s.id = f.schedule_id")
        done.append(sorted(name for (name,) in rows))
    assert [len(names) for names in done] == [2, 3], "one report at a time"
    assert "event" in done[0]


@pytest.mark.parametrize(
    ("script", "condition"),
    [
        (fires.prune, "Index Cond: (id <"),
        (partial(fires.page, UUID(int=0), limit=10), "Index Scan Backward using ux_schedule_fires_schedule_id_fire_at"),
        (partial(reports.make, UUID(int=0), "acme", datetime.now(UTC), datetime.now(UTC)), "AND (id >= "),
        (partial(reports.make, UUID(int=0), None, datetime.now(UTC), datetime.now(UTC)), "Index Cond: (id >="),
    ],
    ids=["prune", "page", "report", "report-of-all"],
)
def test_what_runs_again_and_again_does_not_go_through_all(
    connection: Connection, script: Callable[[], Script[Any]], condition: str
) -> None:
    connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
    statement, parameters = next(script())
    plan = connection.execute(f"EXPLAIN {statement}".encode(), parameters).fetchall()
    assert any(condition in line for (line,) in plan), plan


def test_a_reindex_begins_a_run_of_each_document_once_whoever_is_killed(
    offsetzero: CommandsHere,
    connection: Connection,
    config: Settings,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reindexing, "PAGE", 10)
    mine = documents(connection, "acme", 35)
    documents(connection, "other", 5)
    (gone, held), untouched = mine[3:5], documents(connection, "acme", 1)
    connection.execute("UPDATE documents SET deleted_at = now() WHERE id = %s", (gone,))
    connection.execute("UPDATE documents SET uploaded_at = now() WHERE id = ANY (%s)", (untouched,))
    offsetzero("schedules", "add", "nightly", "0 2 * * *", "reindex", "--tenant", "acme")
    sleep(connection, "nightly", timedelta(days=1))
    assert len(act(connection, config, "nightly")) == 1

    def turn(on: Connection) -> reindexing.Turned | None:
        page = run(on, fires.take_page())
        return run(on, reindexing.turn(page, config)) if page else None

    def count() -> int:
        return connection.execute("SELECT count(*)::int FROM outbox").fetchall()[0][0]

    with psycopg.connect(database_url) as upload:
        upload.execute("SELECT FROM documents WHERE id = %s FOR NO KEY UPDATE", (held,))
        with connection.transaction():
            assert (turned := turn(connection)) is not None
        assert (turned.documents, turned.over) == (3, False), "up to the one that an upload holds"
        with connection.transaction():
            assert (turned := turn(connection)) is not None
        assert (turned.documents, turned.over) == (0, False), "it waits for none, and leaves none out"
    with psycopg.connect(database_url) as victim:
        assert (turned := turn(victim)) is not None
        assert turned.documents == 10
        assert turn(connection) is None, "another scheduler leaves the page alone"
        victim.rollback()  # as a kill does
    offsetzero("schedules", "pause", "nightly")
    assert turn(connection) is None
    connection.execute("UPDATE schedules SET paused_at = NULL")
    counted = metrics.LANES.labels("bulk", "asked")._value
    before = counted.get()
    with scheduling(config), scheduling(config):
        wait_until(lambda: connection.execute("SELECT 1 FROM schedule_fires WHERE ended_at IS NOT NULL").fetchall())
    assert counted.get() == before + 31, "what schedulers have begun and committed"
    worked = [UUID(key) for (key,) in connection.execute("SELECT aggregateid FROM outbox ORDER BY number")]
    assert worked == [one for one in mine if one != gone], "each once, in its order"
    assert connection.execute("SELECT count(*), count(DISTINCT document_id) FROM runs").fetchone() == (34, 34)
    assert connection.execute("SELECT DISTINCT topic FROM outbox").fetchall() == [("documents.bulk",)]
    assert connection.execute("SELECT documents FROM schedule_fires").fetchone() == (34,)
    ((fire_id,),) = connection.execute("SELECT id FROM schedule_fires").fetchall()
    headers = [found for (found,) in connection.execute("SELECT headers FROM outbox")]
    parents = [tracing.read(one["traceparent"]) for one in headers if one["traceparent"] == one["ce_traceparent"]]
    assert [span and span.trace_id for span in parents] == [fire_id.hex] * 34, "the trace of the fire"
    assert count() == 34


def test_reindexes_of_tenants_take_turns_and_one_that_fails_holds_up_no_other(
    offsetzero: CommandsHere, connection: Connection, config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest was worked at to its end, or failed each minute, and those of all others waited behind it."""
    monkeypatch.setattr(reindexing, "PAGE", 10)
    of = dict.fromkeys(documents(connection, "acme", 30), "acme") | dict.fromkeys(
        documents(connection, "other", 10), "other"
    )
    (bad,) = documents(connection, "bad", 1)
    connection.execute("UPDATE documents SET id = %s WHERE id = %s", (UUID(int=0), bad))
    connection.execute(REFUSE.encode())
    for tenant in ("acme", "bad", "other"):
        offsetzero("schedules", "add", tenant, "0 2 * * *", "reindex", "--tenant", tenant)
        for _ in range(3):
            offsetzero("schedules", "run", tenant)
    under_way = "SELECT s.name FROM schedule_fires f JOIN schedules s ON s.id = f.schedule_id WHERE ended_at IS NULL"
    assert sorted(connection.execute(under_way).fetchall()) == [("acme",), ("bad",), ("other",)], "one waits, no more"
    sleep(connection, "acme", timedelta(days=1))
    assert len(act(connection, config, "acme")) == 1, "that by hand does not stand for one of its own times"
    with scheduling(config):
        wait_until(lambda: connection.execute(under_way).fetchall() == [("bad",)])
    worked = [of[UUID(key)] for (key,) in connection.execute("SELECT aggregateid FROM outbox ORDER BY number")]
    assert worked == ["acme"] * 10 + ["other"] * 10 + ["acme"] * 50


def test_many_schedulers_fire_once_and_one_that_cannot_be_done_holds_up_no_other(
    offsetzero: CommandsHere, connection: Connection, config: Settings
) -> None:
    for number in range(8):
        offsetzero("schedules", "add", f"s{number}", past(), *EVENT)
    refused = json.dumps({**DELETED, "document_id": str(UUID(int=0))})
    offsetzero("schedules", "add", "bad", past(), *EVENT[:-1], refused)
    offsetzero("schedules", "add", "gone", past(), *EVENT)
    connection.execute(REFUSE.encode())
    connection.execute("UPDATE schedules SET zone = 'Mars/Olympus' WHERE name = 'gone'")
    slept = "UPDATE schedules SET done_until = now() - interval '210 minutes', next_at = now() - interval '210 minutes'"
    connection.execute(slept.encode())
    with scheduling(config), scheduling(config), scheduling(config) as scheduler:
        wait_until(lambda: connection.execute("SELECT count(*) FROM outbox").fetchone() == (8,))
        wait_until(lambda: one(connection, "bad").error and one(connection, "gone").error)
        assert scheduler.health()[0]
        connection.execute(f"{slept} WHERE error IS NULL".encode())
        wait_until(lambda: run(connection, schedules.due(datetime.now(UTC), 10)) == [])
        connection.execute("DROP TRIGGER refuse ON outbox; UPDATE schedules SET next_at = now() WHERE name = 'bad'")
        wait_until(lambda: len(events(connection)) == 9, what="the one that could not be done")
    assert one(connection, "bad").error is None
    assert "no such time zone" in (one(connection, "gone").error or "")
    assert "Mars/Olympus" in offsetzero("schedules", "list").stdout


def test_what_the_page_shows_works(offsetzero: CommandsHere, config: Settings, connection: Connection) -> None:
    page = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()
    (commands,), (module,) = (re.findall(rf"^```{kind}\n(.*?)^```", page, re.M | re.S) for kind in ("sh", "python"))
    (config.home / "bells.py").write_text(module)
    with declared_for():
        for line in commands.splitlines():
            _, *arguments = shlex.split(line, comments=True)
            said = offsetzero(*arguments).stdout
            if arguments == ["schedules", "list"]:
                assert [name in said for name in ("nightly", "daily", "hourly", "bell.rang")] == [True] * 4
            if arguments[1] == "show":
                assert json.loads(said)["payload"] == {"bell": "tower"}
    done = connection.execute("SELECT name, action FROM schedule_actions ORDER BY id").fetchall()
    assert done[3:] == [("daily", "run"), ("nightly", "paused"), ("nightly", "resumed"), ("hourly", "removed")]
    assert connection.execute("SELECT tenant_id, documents FROM reports").fetchall() == [("acme", 0)]


def test_a_mistake_is_told_once_and_plainly(offsetzero: CommandsHere, config: Settings) -> None:
    def refused(*arguments: str) -> list[str]:
        return offsetzero("schedules", "add", *arguments, status=1).stderr.splitlines()[1:]

    assert refused("n", "61 * * * *", "reindex") == [
        "  cron '61 * * * *': the field minute cannot be read, or never comes"
    ]
    (zone,) = refused("n", "0 2 * * *", "report", "--zone", "Berlin")
    assert "zone 'Berlin': no such time zone" in zone
    (config.home / "quiet_bells.py").write_text(MODULE)
    bell = ("event", "--type", "bell.rung", "--data", '{"bell": "a"}')
    (unknown,) = refused("n", "0 2 * * *", *bell)
    assert "event type 'bell.rung': this process knows only" in unknown
    (no_topic,) = refused("n", "0 2 * * *", *bell, "--module", "quiet_bells")
    assert "event type 'bell.rung': no topic is declared" in no_topic
    (payload,) = refused("n", "0 2 * * *", "event", "--type", "document.deleted", "--data", "{}")
    assert "document_id" in payload
    (tenant,) = refused("n", "0 2 * * *", *EVENT, "--tenant", "other")
    assert "tenant_id is 'acme', and the schedule is one of 'other'" in tenant
    assert len(refused("a name", "x", "reindex", "--zone", "y", "--type", "z")) == 3, "all at once"
    offsetzero("schedules", "add", "n", "0 2 * * *", "reindex")
    assert "there is a schedule n of all tenants already" in "".join(refused("n", "0 3 * * *", "reindex"))
    offsetzero("schedules", "add", "n", "0 2 * * *", "reindex", "--tenant", "acme")
    assert "there are several schedules n" in offsetzero("schedules", "pause", "n", status=1).stderr
    offsetzero("schedules", "pause", "n", "--tenant", "acme")
