"""`offsetzero replay` of a group that is stopped, and by a side job beside a group."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from commands import CommandsHere
from kafka.conftest import effects, uploaded
from kafka.test_group_due_times import HOUR, SteppedClock
from kafka.test_group_due_times import member as later
from kafka.test_group_generations import NAMES, member, named, names_group
from kafka.test_group_positions import Running, audit_group, await_effects, committed, publish

from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import Context
from offsetzero.consumers.projection import make_tables
from offsetzero.consumers.replaying import spans
from offsetzero.consumers.replaying.job import SideJob
from offsetzero.consumers.replaying.looking import Wanted
from offsetzero.generation import Generation
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.failures import Transient
from offsetzero.retry.policy import Tier
from offsetzero.settings import Settings
from offsetzero.topics import lag, points
from support import wait_until

WHY = ("--why", "the disk was restored", "--yes")
PLACE = ("--topic", "documents", "--partition", "0")
MINE = """
from offsetzero import ConsumerGroup, DocumentUploaded
from offsetzero.retry.failures import Transient
from offsetzero.retry.policy import Tier

audit = ConsumerGroup("audit", topics=["documents"], tiers=[Tier("retry-1m", 3600.0)], {options})

@audit.handler(DocumentUploaded)
def note(event, ctx):
    if event.name == {fails!r}:
        raise Transient("not-yet", "It fails.")
    with open("handled", "a") as file:
        file.write(event.name + "\\n")
    if ctx.connection is not None:
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, event.name, ctx.attempt),
        )
"""


@pytest.fixture
def here(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch, "mine")


def mine(folder: Path, fails: str = "", **options: Any) -> str:
    """The name of a group whose file is in the folder."""
    shown = ", ".join(f"{name}={value!r}" for name, value in options.items())
    (folder / "mine.py").write_text(MINE.format(options=shown, fails=fails))
    return "mine:audit"


def names(database: psycopg.Connection) -> list[str]:
    return [note for _, note, _ in effects(database)]


def audited(database: psycopg.Connection) -> list[tuple[Any, ...]]:
    return database.execute("SELECT way, why, asked, places, records, ended FROM replays ORDER BY at").fetchall()


def test_a_stopped_group_reads_on_from_an_earlier_offset_and_does_nothing_twice(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    publish_all = 10
    with running(audit_group()):
        publish(settings, 0, publish_all)
        await_effects(database, publish_all)
    shown = here("replay", "audit", "--from", "4", *PLACE)
    assert shown.stdout.split()[-5:] == ["documents/0", "4", "10", "6", "0"]
    assert "6 records, written from 20" in shown.stderr
    assert "6 of them have their outcome, and are not done again." in shown.stderr
    assert "All of it is done already" in shown.stderr
    assert "Nothing was changed" in shown.stderr
    assert audited(database) == []
    here("replay", "audit", "--from", "4", *PLACE, *WHY)
    assert (at := committed(settings)) is not None
    assert at.offset == 4
    way, why, asked, places, records, ended = audited(database)[0]
    assert (way, why, records, ended) == ("offsets", "the disk was restored", 6, "done")
    assert (asked, places) == ("--from 4 --topic documents --partition 0", "documents/0: 4-10")
    with running(audit_group()):
        publish(settings, 10, 12)
        await_effects(database, 12)
        wait_until(lambda: (now := committed(settings)) is not None and now.offset == 12)
    assert sorted(names(database), key=int) == [str(number) for number in range(12)]


def test_a_waiting_retry_keeps_its_attempt_and_the_order_of_its_key_when_its_span_is_replayed(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    key = uuid4()

    def fail(name: str, ctx: Context) -> None:
        if name == "b" and ctx.attempt == 1:
            raise Transient("not-yet", "It fails.")

    tiers = [Tier("retry-1m", HOUR / 4)]
    with Publisher(settings) as publisher:
        for name in ("a", "b", "c"):
            publisher.publish(uploaded(key, name=name)).result(10)
    with running(audit_group(fail, tiers=tiers)):
        await_effects(database, 1)
        wait_until(lambda: waits(settings) == 2, what="b and c in the retry topic")
    here("replay", "audit", "--from", "earliest", *WHY)
    with later(audit_group(fail, tiers=tiers), settings, SteppedClock(HOUR / 2)):
        await_effects(database, 3)
        wait_until(lambda: waits(settings) == 0, what="empty retry topics")
    assert [(note, attempt) for _, note, attempt in effects(database)] == [("a", 1), ("b", 2), ("c", 1)]


def waits(settings: Settings) -> int:
    return sum(one.lag for one in lag.group_offsets(settings, "audit", ["audit.retry-1m"]))


def test_a_side_job_does_what_was_skipped_once_and_leaves_the_offsets_alone(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection, tmp_path: Path
) -> None:
    publish(settings, 0, 10)
    with running(audit_group(start="latest")):
        wait_until(
            lambda: all(one.committed is not None for one in lag.group_offsets(settings, "audit", ["documents"]))
        )
        publish(settings, 10, 12)
        await_effects(database, 2)
    before = committed(settings)
    group = mine(tmp_path)
    shown = here("replay", group, "--from", "earliest", "--to", "latest")
    assert "12 records" in shown.stderr
    assert "2 of them have their outcome" in shown.stderr
    assert "for 10 records at" in shown.stderr
    assert "(as in the busiest minute of this group)" in shown.stderr
    wrong = here("replay", group, "--from", "latest", "--to", "earliest", *WHY, status=1)
    assert "--to: in no partition it lies behind --from" in wrong.stderr
    done = here("replay", group, "--from", "earliest", "--to", "latest", *WHY)
    assert "12 records were read and meant: 10 applied, 2 duplicate." in done.stderr
    again = here.in_process_of_its_own("replay", group, "--from", "earliest", "--to", "latest", *WHY)
    assert "12 records were read and meant: 12 duplicate." in again.stderr
    assert "group started" not in again.stdout + again.stderr, "nor a line for each event"
    assert sorted(names(database), key=int) == [str(number) for number in range(12)]
    assert committed(settings) == before
    assert [row[-1] for row in audited(database)] == ["done: 10 applied, 2 duplicate", "done: 12 duplicate"]


def test_a_side_job_goes_no_further_than_the_group_has_read_and_takes_only_what_is_meant(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection, tmp_path: Path
) -> None:
    group, keys = mine(tmp_path, database=False), [uuid4(), uuid4()]
    with Publisher(settings) as publisher:
        for number in range(6):
            publisher.publish(uploaded(keys[number % 2], name=str(number))).result(10)
    with running(audit_group(start="latest")):
        wait_until(
            lambda: all(one.committed is not None for one in lag.group_offsets(settings, "audit", ["documents"]))
        )
    with Publisher(settings) as publisher:
        publisher.publish(uploaded(keys[0], name="6")).result(10)
    handled = tmp_path / "handled"
    shown = here("replay", group, "--from", "-1h", "--to", "latest", "--key", str(keys[0]), "--rate", "100")
    assert "6 records" in shown.stderr
    assert "3 of them are meant" in shown.stderr
    assert "the group's own position it will read by itself" in shown.stderr
    assert "at 100 a second (as stated)" in shown.stderr
    here("replay", group, "--from", "-1h", "--to", "latest", "--key", str(keys[0]), *WHY)
    assert handled.read_text().split() == ["0", "2", "4"]
    none = here("replay", group, "--from", "-1h", "--to", "latest", "--type", "document.deleted", *WHY)
    assert "0 records were read and meant: nothing." in none.stderr
    here("replay", group, "--from", "-1h", "--to", "latest", "--type", "document.uploaded", *WHY)
    assert len(handled.read_text().split()) == 9  # a group without a database does it again


def test_what_waits_in_the_group_is_not_run_by_a_side_job_and_what_fails_there_becomes_the_groups(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection, tmp_path: Path
) -> None:
    waiting, other = uuid4(), uuid4()

    def fail(name: str, ctx: Context) -> None:
        if name == "b":
            raise Transient("not-yet", "It fails.")

    tiers = [Tier("retry-1m", 3600.0)]
    put(settings, waiting, "a", "b", "c")
    with running(audit_group(fail, tiers=tiers)):
        await_effects(database, 1)
        wait_until(lambda: waits(settings) == 2, what="b and c in the retry topic")
    put(settings, other, "d", "e", "f")
    here("groups", "reset", "audit", "--to", "latest", "--yes")
    group = mine(tmp_path, fails="e")
    done = here("replay", group, "--from", "earliest", "--to", "latest", *WHY)
    assert "6 records were read and meant" in done.stderr
    assert names(database) == ["a", "d"]  # b, and c behind it, wait; e has failed, f is parked behind it
    assert waits(settings) == 5  # b and c, a once more behind them (a duplicate, when its turn comes), e and f


def test_a_new_group_tells_when_it_has_caught_up(
    settings: Settings, topics: None, here: CommandsHere, database: psycopg.Connection, tmp_path: Path
) -> None:
    publish(settings, 0, 5)
    process = here.in_process_of_its_own.start("groups", "run", mine(tmp_path))
    try:
        assert process.stderr is not None
        lines = (json.loads(line) for line in process.stderr if line.startswith("{"))
        assert next(line for line in lines if line["event"] == "caught up")["group"] == "audit"
        assert len(names(database)) == 5
    finally:
        process.kill()
        process.wait()


def put(settings: Settings, key: UUID, *said: str) -> None:
    with Publisher(settings) as publisher:
        for name in said:
            publisher.publish(uploaded(key, name=name)).result(10)


def test_what_cannot_be_replayed_is_refused_with_all_that_is_wrong(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    refused = here(
        "replay", "audit", "--from", "yesterday", "--key", "k", "--type", "t", "--rate", "0", "--yes", status=1
    ).stderr
    for said in ("--from yesterday: give", "--key: only with --to", "--type: only with --to", "--rate 0", "--why: say"):
        assert said in refused
    assert "--to runs its handlers" in here("replay", "x", "--from", "1", "--to", "2", status=1).stderr
    assert "read nothing yet" in here("replay", "nobody", "--from", "earliest", status=1).stderr
    for elsewhere, said in {"usage": "`offsetzero rebuild usage`", "ledger": "`offsetzero rebuild ledger`"}.items():
        assert said in here("replay", elsewhere, "--from", "earliest", status=1).stderr
    assert "--force asks what it keeps" in here("replay", "nobody", "--from", "1", "--force", status=1).stderr
    assert "cannot have a part of it twice" in here("replay", "indexer", "--from", "-2h", "--force", status=1).stderr
    shown = here("replay", "indexer", "--from", "earliest", "--force")
    assert "--force is `offsetzero rebuild indexer`" in shown.stderr
    assert "a new generation begins at offset zero" in shown.stdout
    with running(audit_group()):
        publish(settings, 0, 2)
        await_effects(database, 2)
    for arguments, said in {
        ("--from", "4"): "--topic and --partition",
        ("--from", "9", *PLACE): "has the offsets from 0 to 2, not 9",
        ("--from", "1", "--topic", "documents", "--partition", "99"): "no partition 99",
        ("--from", "1", "--topic", "nothing", "--partition", "0"): "do not exist",
    }.items():
        assert said in here("replay", "audit", *arguments, status=1).stderr


def test_outcomes_offsets_and_retries_are_those_of_the_generation_that_is_read(
    settings: Settings, here: CommandsHere, topics: None, database: psycopg.Connection
) -> None:
    with database.transaction():
        make_tables(database, Generation("names", 1), NAMES)
        make_tables(database, Generation("names", 2), NAMES)
    database.execute("UPDATE group_pointers SET generation = 2 WHERE group_name = 'names'")
    for name in "abc":
        put(settings, uuid4(), name)
    with member(settings, 2):
        wait_until(lambda: named(database, 2) == 3, what="rows of the second generation")
    shown = here("replay", "names", "--from", "earliest").stderr
    assert "3 records" in shown
    assert "3 of them have their outcome, and are not done again." in shown
    assert "read nothing yet" in here("replay", "names.g3", "--from", "earliest", status=1).stderr
    assert "read nothing yet" in here("replay", "names.g1", "--from", "earliest", status=1).stderr
    assert "names: names.g2 is the generation that is read." in here("groups", "list", "names", "--partitions").stderr
    assert "there is no group names;" in here("groups", "list", "names.g1", status=1).stderr
    assert here("groups", "reset", "names", "--to", "earliest", *PLACE).stdout == (
        here("groups", "reset", "names.g2", "--to", "earliest", *PLACE).stdout
    )
    assert here("dlq", "list", "names").stdout == "No open dead letters in names.g2.\n"
    assert "there is no group names:" in here("dlq", "redrive", "names.g1", "--all", "--dry-run", status=1).stderr
    spans_of = spans.find(settings, "names.g2", points.parse_with_ago("--from", "earliest", SYSTEM.now()))
    database.execute("DELETE FROM processed_events WHERE event_id = (SELECT min(event_id) FROM processed_events)")
    database.execute("TRUNCATE names_g2.names")
    job = SideJob(names_group(), settings, spans_of, Wanted())
    assert job.run() == []
    assert job.outcomes == {"applied": 1, "duplicate": 2}
    assert (named(database, 2), named(database, 1)) == (1, 0)
