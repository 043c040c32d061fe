"""`offsetzero rebuild`: a projection is made anew beside the one that is read; nothing is lost or done twice."""

import json
import os
import signal

import psycopg
import pytest
from kafka.rebuilding import REBUILD, Names

from offsetzero.cli import rebuild_switch
from offsetzero.consumers.rebuilding import alone
from offsetzero.settings import Settings
from offsetzero.store import generations
from offsetzero.store.script import run
from offsetzero.topics import cluster, lag, offsets
from offsetzero.topics import names as topic_names
from offsetzero.topics.admin import client
from support import wait_until

PARTITIONS = 2


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With fewer partitions: a generation has four topics of as many."""
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": PARTITIONS})})


@pytest.fixture
def names(settings: Settings, topics: None, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(settings, database, monkeypatch)


def test_it_fills_a_new_generation_has_it_read_and_the_members_move_over(names: Names) -> None:
    names.publish("a", "b", "c")
    with names.service() as member:
        names.await_rows(1, {"a", "b", "c"})
        shown = names.command("rebuild", "mine:names").stdout
        assert "generation 1 is read; a new generation begins at offset zero" in shown
        assert "3 of 3 records of documents" in shown
        assert names.numbers() == [1], "nothing without --yes"
        done = names.processes(*REBUILD)
        assert "Generation 2 of names is read now" in done.stderr
        assert "The group's members have moved over." in done.stderr
        assert (names.read, names.rows(2)) == (2, {"a", "b", "c"})
        indexed = names.database.execute(
            "SELECT schemaname FROM pg_indexes WHERE indexname = 'ix_names_name' ORDER BY 1"
        )
        assert indexed.fetchall() == [("names_g1",), ("names_g2",)]
        assert "Made of all that generation 2 has read: ix_names_name" in done.stderr
        assert len(names.emitted()) == 3, "each effect once"
        assert member.poll() is None
        names.publish("d")
        names.await_rows(2, {"a", "b", "c", "d"})
        assert names.rows(1) == {"a", "b", "c"}
        wait_until(lambda: len(names.emitted()) == 4, what="the effect of the fourth")
        audit = names.database.execute("SELECT from_generation, to_generation, why, accepted FROM group_switches")
        assert audit.fetchall() == [(1, 2, "a test", 0)]


def test_what_the_old_one_could_not_do_is_done_once_when_the_new_one_is_read(names: Names) -> None:
    """Waiting in a retry topic of the one that is read, and applied in silence by the other: its effect is owed."""
    (names.folder / "broken").touch()
    shaky = names.publish("a", "shaky", "b")[1]
    with names.member():
        names.await_rows(1, {"a", "b"})
        wait_until(lambda: _retried(names.settings, "names") == 1, what="the retry")
        (names.folder / "broken").unlink()
        names.rebuild()
        names.await_rows(2, {"a", "b", "shaky"})
        wait_until(lambda: len(names.emitted()) == 3, what="what is owed")
        assert names.emitted().count(str(shaky.run_id)) == 1
        assert names.one("SELECT count(*) FROM withheld_effects") == 0
        # and in turn: the one that is not read any more ends it in silence
        names.publish("c")
        names.await_rows(2, {"a", "b", "c", "shaky"})
        wait_until(lambda: len(names.emitted()) == 4, what="the effect of c")


def test_events_that_readers_would_lose_are_listed_and_nothing_is_switched(names: Names) -> None:
    bad, shaky, _ = names.publish("bad", "shaky", "a")
    with names.member():
        names.await_rows(1, {"a", "bad", "shaky"})
        (names.folder / "poison").touch()
        (names.folder / "broken").touch()
        refused = names.rebuild(status=3)
        assert f"key {bad.document_id}: event " in refused.stdout
        assert "dead-lettered" in refused.stdout
        assert f"key {shaky.document_id}: event " in refused.stdout
        assert "waiting" in refused.stdout
        assert "2 events are in generation 1 and not in generation 2; nothing was switched" in refused.stderr
        assert names.read == 1
        done = names.rebuild("--accept")
        assert "2 events are missing in it" in done.stderr
        assert names.read == 2
        assert names.one("SELECT accepted FROM group_switches") == 2
        assert len(names.emitted()) == 3, "what the old one has done is not done again"
        (names.folder / "poison").unlink()
        again = ["dlq", "redrive", "names.g2", "--all", "--why", "mended"]
        names.command(*again)
        names.await_rows(2, {"a", "bad"})
        assert len(names.emitted()) == 3, "and not by a redrive either"


def test_what_operators_have_decided_holds_for_the_new_one(names: Names) -> None:
    """The fold of the log has their edits, and not what they have discarded (design section 9)."""
    (names.folder / "poison").touch()
    edited, discarded, _ = names.publish("bad edited", "bad discarded", "a")
    with names.member():
        names.await_rows(1, {"a"})
        letters = "SELECT count(*) FROM processed_events WHERE group_name = 'names' AND outcome = 'dead-lettered'"
        wait_until(lambda: names.one(letters) == 2, what="two dead letters")
        shown = json.loads(names.command("dlq", "list", "names", "--json").stdout)
        place = {one["key"]: one["place"] for one in shown}
        why = ["--why", "a test"]
        names.command("dlq", "edit", "names", place[str(edited.document_id)], "--set", "name=good", *why)
        names.command("dlq", "discard", "names", place[str(discarded.document_id)], *why)
        names.command("dlq", "redrive", "names", place[str(edited.document_id)], *why)
        names.await_rows(1, {"a", "good"})
        (names.folder / "poison").unlink()
        names.rebuild()
        names.await_rows(2, {"a", "good"})
        outcomes = "SELECT outcome FROM processed_events WHERE group_name = 'names' AND generation = 2 ORDER BY 1"
        found = [row[0] for row in names.database.execute(outcomes.encode())]
        assert found == ["applied", "applied", "discarded"]
        assert len(names.emitted()) == 2


def test_what_operators_have_decided_of_a_later_one_holds_when_the_first_is_read_again(names: Names) -> None:
    names.publish("a")
    with names.member():
        names.await_rows(1, {"a"})
        names.rebuild()
        (names.folder / "poison").touch()
        edited = names.publish("bad edited")[0]
        letters = "SELECT count(*) FROM processed_events WHERE generation = 2 AND outcome = 'dead-lettered'"
        wait_until(lambda: names.one(letters) == 1, 60, what="a dead letter")
        place = json.loads(names.command("dlq", "list", "names.g2", "--json").stdout)[0]["place"]
        names.command("dlq", "edit", "names.g2", place, "--set", "name=good", "--why", "a test")
        names.command("dlq", "redrive", "names.g2", place, "--why", "a test")
        names.await_rows(2, {"a", "good"})
        (names.folder / "poison").unlink()
        names.rebuild("--rollback")
        names.await_rows(1, {"a", "good"})
        assert names.emitted().count(str(edited.run_id)) == 1


def test_the_one_before_is_read_again_once_it_has_caught_up_and_is_dropped_in_the_end(names: Names) -> None:
    """The first command gets a Ctrl-C when all is done: it must not say that it goes on when it is given again."""
    names.publish("a")
    with names.member():
        names.await_rows(1, {"a"})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rebuild_switch, "hand_over", _ctrl_c)
            interrupted = names.rebuild()
        assert "generation 2 of names is read: nothing is left to do" in interrupted.stderr
        assert "goes on" not in interrupted.stderr
        names.publish("b")
        names.await_rows(2, {"a", "b"})
        done = names.rebuild("--rollback")
        assert "Generation 1 of names is read now" in done.stderr
        assert (names.read, names.rows(1)) == (1, {"a", "b"})
        names.publish("c")
        names.await_rows(1, {"a", "b", "c"})
        wait_until(lambda: len(names.emitted()) == 3, what="the third effect")
        names.rebuild("--rollback")
        assert (names.read, names.rows(2)) == (2, {"a", "b", "c"})
        assert len(names.emitted()) == 3
        shown = names.command("rebuild", "mine:names", "--prune")
        assert "1 generation will be dropped: 1" in shown.stdout
        assert names.numbers() == [1, 2]
        names.rebuild("--prune")
    assert names.numbers() == [2]
    assert names.one("SELECT to_regnamespace('names_g1')") is None
    left = [topic for topic in cluster.partitions(names.settings) if topic.startswith("names.") and ".g2." not in topic]
    assert not left
    assert "names" not in lag.groups(names.settings)
    with names.member():
        names.publish("d")
        names.await_rows(2, {"a", "b", "c", "d"})
    names.command("rebuild", "mine:names", "--rollback", status=1)


def test_a_generation_that_is_read_by_a_request_is_dropped_after_it(names: Names, settings: Settings) -> None:
    names.publish("a")
    with names.member():
        names.await_rows(1, {"a"})
        with psycopg.connect(settings.database_url.get_secret_value()) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            assert run(reader, generations.read("names")) == 1
            names.rebuild()
            pruning = names.processes.start("rebuild", "mine:names", "--prune", "--yes")
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
            wait_until(lambda: names.one(waits) == 1, 60, what="the drop, which waits")
            assert reader.execute("SELECT name FROM names").fetchall() == [("a",)]
            names.publish("b")
            names.await_rows(2, {"a", "b"})  # nobody else waits
        said = pruning.communicate(timeout=60)
        assert pruning.returncode == 0, said
    assert names.numbers() == [2]


# What the command is about to call when it is killed.
STEPS = {
    "the tables are being made": "offsetzero.consumers.projection.generations:add",
    "members read": "offsetzero.cli.rebuild_run.Rebuild:fill",
    "its indexes are being made": "offsetzero.store.indexes:make_at_once",
    "what would be lost is looked at": "offsetzero.consumers.rebuilding.comparing.Comparison:look",
    "the old one is being frozen": "offsetzero.store.generations:freeze",
    "the old one is frozen": "offsetzero.consumers.rebuilding.switching:_await_end",
    "the pointer is being moved": "offsetzero.store.generations:move",
    "the switch is being written down": "offsetzero.store.switches:add",
    "the pointer has moved": "offsetzero.cli.rebuild_switch:hand_over",
}


@pytest.mark.timeout(300)
def test_a_rebuild_that_is_killed_in_each_of_its_steps_goes_on_with_the_same_command(names: Names) -> None:
    """Killed in a step it has to go through that one again to be killed in the next."""
    (names.folder / "broken").touch()
    names.publish("a", "b", "shaky")
    there = {"a", "b"}
    with names.member() as member, names.killing() as kill:
        names.await_rows(1, there)
        wait_until(lambda: _retried(names.settings, "names") == 1, what="the retry")
        (names.folder / "broken").unlink()
        for step, function in STEPS.items():
            kill(function, *REBUILD, "--processes", "1", "--stand-still", "2")  # what is frozen goes on by itself
            is_moved = step == "the pointer has moved"
            assert names.read == (2 if is_moved else 1), step
            names.publish(step)
            there |= {step, "shaky"} if is_moved else {step}
            names.await_rows(names.read or 0, there)  # what is read goes on, whatever the killed one has begun
        assert names.numbers() == [1, 2]
        wait_until(lambda: len(names.emitted()) >= len(there), what="what is owed")
        assert len(set(names.emitted())) == len(names.emitted()) == len(there), "each effect once"
        assert member.is_alive()


def test_a_rebuild_that_is_stopped_leaves_no_process_and_may_be_abandoned(names: Names) -> None:
    names.publish(*(f"n{number}" for number in range(50)))
    with names.member():
        wait_until(lambda: len(names.rows(1)) == 50, 60, what="the first generation")
        names.processes(*REBUILD, "--no-switch")
        assert names.numbers() == [1, 2]
        assert len(names.rows(2)) == 50
        assert not lag.group_state(names.settings, "names.g2").members
        assert names.read == 1
        shown = names.command("rebuild", "mine:names").stdout
        assert "generation 2, begun at" in shown
        names.rebuild("--abandon")
        assert names.numbers() == [1]
        assert names.one("SELECT count(*) FROM processed_events WHERE generation = 2") == 0
        names.command("rebuild", "mine:names", "--abandon", status=1)
        names.rebuild()
        assert names.read == 3, "no number is used twice"


def test_what_kafka_has_under_the_name_of_a_new_one_is_none_of_its(names: Names) -> None:
    """Of a database that was lost and made anew: its committed offsets are behind all that is to be read."""
    names.publish("a", "b")
    with names.member():
        names.await_rows(1, {"a", "b"})
    admin, prefix = client(names.settings), topic_names.Names(names.settings.kafka.namespace)
    ids = cluster.topic_ids(names.settings, ["documents"])
    places = [("documents", number) for number in range(PARTITIONS)]
    ends = offsets.ends(admin, prefix, places, offsets.OffsetSpec.latest())
    left = {place: offsets.Committed(end, ids["documents"]) for place, end in ends.items()}
    offsets.alter(admin, prefix, "names.g2", left)
    names.rebuild()
    assert names.rows(2) == {"a", "b"}


def test_two_rebuilds_of_a_group_do_not_run_at_once(names: Names, settings: Settings) -> None:
    names.publish("a")
    with names.member():
        names.await_rows(1, {"a"})
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as other:
        alone.only_one(other, "names")
        assert "a rebuild of it is running" in names.rebuild(status=1).stderr


def test_bad_input_is_one_clear_error(names: Names) -> None:
    assert "it has no generation yet" in names.rebuild(status=1).stderr
    assert "it is no projection" in names.command("rebuild", "notifier", status=1).stderr
    both = names.command("rebuild", "mine:names", "--rollback", "--prune", status=1).stderr
    assert "--rollback and --prune do not go together" in both
    assert "--why: say why" in names.command("rebuild", "mine:names", "--yes", status=1).stderr
    for given, problem in (
        (["--prune", "--stand-still", "9"], "--prune: of the others it takes --as and --yes alone"),
        (["--abandon", "--accept"], "--abandon: of the others it takes --yes alone"),
        (["--rollback", "--no-switch"], "--rollback: of the others it takes --processes and --accept and"),
        (["--no-switch", "--stand-still", "9"], "--stand-still: for the switch, which --no-switch leaves out"),
    ):
        assert problem in names.command("rebuild", "mine:names", *given, status=1).stderr
    with names.member():
        names.publish("a")
        names.await_rows(1, {"a"})
    assert "none of the generations that were read before" in names.rebuild("--rollback", status=1).stderr
    assert "only generation 1 is there" in names.command("rebuild", "mine:names", "--prune").stdout


def _ctrl_c(*_given: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def _retried(settings: Settings, group: str) -> int:
    return sum(one.high - one.low for one in lag.group_offsets(settings, group, [f"{group}.retry-1m"]))
