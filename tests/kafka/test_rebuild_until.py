"""`offsetzero rebuild --until`: what a projection was at a time, beside the one that is read, and without effects."""

import subprocess
from datetime import datetime

import psycopg
import pytest
from kafka.archived import archive_all
from kafka.rebuilding import Names

from offsetzero.clock import SYSTEM
from offsetzero.settings import Settings
from offsetzero.topics import cluster, lag
from support import wait_until


@pytest.fixture
def names(settings: Settings, topics: None, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(settings, database, monkeypatch)


def between() -> datetime:
    """A time that is later than what was published before, and earlier than what will be."""
    found, begun = SYSTEM.now(), SYSTEM.monotonic()
    wait_until(lambda: SYSTEM.monotonic() - begun > 0.02, interval=0.005)
    return found


def make(names: Names, at: datetime, *options: str, status: int = 0) -> "subprocess.CompletedProcess[str]":
    return names.command("rebuild", "mine:names", "--until", at.isoformat(), *options, status=status)


def test_it_holds_what_was_there_at_that_time_and_nothing_follows_or_switches_to_it(names: Names) -> None:
    names.publish("a", "b")
    at = between()
    names.publish("c")
    with names.member():
        names.await_rows(1, {"a", "b", "c"})
        wait_until(lambda: len(names.emitted()) == 3, what="the effects")
        shown = make(names, at, "--as", "before")
        assert "a generation before will hold what 2 records before" in shown.stdout
        assert names.numbers() == [1], "nothing without --yes"
        archive_all(names.settings, "documents")
        made = make(names, at, "--as", "before", "--yes")
        assert "Generation 2, before, is whole: 2 applied." in made.stderr
        assert (names.read, names.rows(2)) == (1, {"a", "b"})
        assert "is there, and whole" in make(names, at, "--as", "before", "--yes").stdout
        differs = names.command("diff", "mine:names", "before", "1", status=3).stdout
        assert differs.startswith("names: 0 rows only in before, 1 only in 1, 0 changed, 2 the same\n  + document_id=")
        assert differs.endswith("name=c\n")
        names.command("rebuild", "mine:names", "--abandon", status=1)

        names.rebuild()  # is about another one, and drops none with a name
        assert (names.read, names.numbers()) == (3, [1, 2, 3])
        names.publish("d")
        names.await_rows(3, {"a", "b", "c", "d"})
        wait_until(lambda: len(names.emitted()) == 4, what="the effect of d")
        assert len(set(names.emitted())) == 4, "each effect once"
        assert names.one("SELECT count(*) FROM withheld_effects WHERE generation = 2") == 0
        names.rebuild("--prune")
        assert names.numbers() == [2, 3]
        assert names.rows(2) == {"a", "b"}
    said = names.processes("groups", "run", "mine:names", "--generation", "2", status=1).stderr
    assert "generation 2, before, is what there was at" in said
    names.rebuild("--prune", "--as", "before")
    assert names.numbers() == [3]
    wait_until(
        lambda: not any(one.startswith("names.g2.") for one in cluster.partitions(names.settings)), what="topics"
    )
    assert "names.g2" not in lag.groups(names.settings)


def test_what_fails_is_tried_a_few_times_and_left_out(names: Names) -> None:
    names.publish("a", "bad", "shaky")
    with names.member():
        names.await_rows(1, {"a", "bad", "shaky"})
    names.publish("late")  # which the one that is read has not applied: its effect would be owed
    (names.folder / "poison").touch()
    (names.folder / "broken").touch()
    made = make(names, between(), "--yes")
    assert "is whole: 2 applied, 2 dead-lettered." in made.stderr
    assert "see `offsetzero dlq list names.g2`" in made.stderr
    assert names.rows(2) == {"a", "late"}
    listed = names.command("dlq", "list", "names.g2").stdout
    assert "as it is called" in listed or "corrupt" in listed
    assert not [topic for topic in cluster.partitions(names.settings) if topic.startswith("names.g2.retry")]
    assert names.one("SELECT count(*) FROM withheld_effects") == 0


def test_one_that_was_killed_goes_on_with_the_same_command(names: Names) -> None:
    names.publish("a", "b")
    with names.member():
        names.await_rows(1, {"a", "b"})
    at = between()
    command = "rebuild", "mine:names", "--until", at.isoformat(), "--as", "x", "--yes"
    with names.killing() as kill:
        kill("offsetzero.store.generations:filled", *command)
    differs = names.command("diff", "mine:names", "1", "x")
    assert "Generation x is not whole" in differs.stderr
    assert "Generation 2, x, is whole" in make(names, at, "--as", "x", "--yes").stderr
    assert (names.numbers(), names.rows(2)) == ([1, 2], {"a", "b"})
    assert not names.command("diff", "mine:names", "1", "x").stderr
    said = make(names, between(), "--as", "x", "--yes", status=1).stderr
    assert "the name x is taken, for " in said


def test_bad_input_is_one_clear_error(names: Names) -> None:
    for text, problem in (("yesterday", "give a time with its zone"), ("2999-01-01T00:00:00Z", "has not come yet")):
        assert problem in names.command("rebuild", "mine:names", "--until", text, status=1).stderr
    at = between()
    assert "--as 1: give a letter" in make(names, at, "--as", "1", status=1).stderr
    alone = "--until: of the others it takes --as and --yes alone"
    assert alone in make(names, at, "--stand-still", "9", status=1).stderr
    assert "--until and --rollback do not go together" in make(names, at, "--rollback", status=1).stderr
    assert "it has no generation yet" in make(names, at, "--yes", status=1).stderr
    assert "--as: it is the name of" in names.command("rebuild", "mine:names", "--as", "x", status=1).stderr
    names.publish("a")
    with names.member():
        names.await_rows(1, {"a"})
    said = names.command("rebuild", "mine:names", "--prune", "--as", "x", status=1).stderr
    assert "no generation has the name x; there are: none" in said
