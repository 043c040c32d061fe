"""Dead letters of a real group, redriven to it: each effect once, canaries, and runs that succeed after all."""

import json
import re
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal
from uuid import UUID, uuid4

import psycopg
import pytest
from commands import CommandsHere
from kafka import letters
from kafka.conftest import RunningGroup, await_dead_letters, uploaded
from kafka.test_ledger import delete_topic
from structlog.testing import capture_logs

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.publisher import Publisher
from offsetzero.retry.failures import Permanent, Poison
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import Settings
from offsetzero.store import run_views, runs
from offsetzero.store.script import run
from offsetzero.topics import cluster
from support import wait_until

Running = Callable[[ConsumerGroup], AbstractContextManager[RunningGroup]]


@pytest.fixture
def offsetzero(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    return CommandsHere(settings, monkeypatch)


class Mender:
    """A group whose handler fails until it is mended."""

    def __init__(self, *, step: bool = False, hold: bool = False) -> None:
        self.broken: Exception | None = Poison("corrupt")
        held: Literal["hold", "release"] = "hold" if hold else "release"
        self.group = ConsumerGroup("mender", step=step, topics=["documents"], on_dead_letter=held)
        self.group.handler(DocumentUploaded)(self.note)

    def note(self, event: DocumentUploaded, ctx: Context) -> None:
        if self.broken is not None:
            raise self.broken
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, event.name, ctx.attempt),
        )


def publish(settings: Settings, count: int, keys: int) -> list[UUID]:
    """Events of some keys, numbered in their order."""
    documents = [uuid4() for _ in range(keys)]
    with Publisher(settings) as publisher:
        for number in range(count):
            publisher.publish(uploaded(documents[number % keys], name=str(number)))
    return documents


def applied(database: psycopg.Connection) -> list[tuple[UUID, int]]:
    rows = database.execute("SELECT document_id, note FROM effects ORDER BY n").fetchall()
    return [(document_id, int(note)) for document_id, note in rows]


def test_each_redriven_effect_happens_once_and_in_order_whenever_the_redrive_is_killed(
    settings: Settings, offsetzero: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    """CrossBusExplorer#64, azure-webjobs-sdk#2751, gbrain#2974: lost, sent to all, dead at once."""
    mender = Mender()
    with running(mender.group):
        publish(settings, 400, 40)
        await_dead_letters(settings, "mender", 400, 60)
        mender.broken = None
        process = offsetzero.in_process_of_its_own.start(
            "dlq", "redrive", "mender", "--all", "--why", "mended", "--rate", "50"
        )
        wait_until(lambda: letters.count_redriven(settings, "mender") > 60, what="some are sent")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert len(applied(database)) < 400
        said = offsetzero("dlq", "redrive", "mender", "--all", "--why", "mended").stderr
        (resume,) = re.findall(r"--resume (\S+)", said)
        offsetzero("dlq", "redrive", "mender", "--resume", resume, "--rate", "1000")
        wait_until(lambda: len(applied(database)) >= 400, what="all effects")
    found = applied(database)
    assert Counter(number for _, number in found) == Counter(range(400))
    by_key: dict[UUID, list[int]] = {}
    for document_id, number in found:
        by_key.setdefault(document_id, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    listed = json.loads(offsetzero("dlq", "list", "mender", "--status", "all", "--json").stdout)
    assert Counter(row["status"] for row in listed) == {"resolved": 400}


def test_canaries_keep_the_rest_back_or_let_it_follow(
    settings: Settings, offsetzero: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    mender = Mender()
    arguments = ("dlq", "redrive", "mender", "--all", "--why", "mended?", "--canary", "4", "--stop-above", "25%")
    with running(mender.group):
        publish(settings, 20, 20)
        await_dead_letters(settings, "mender", 20)
        said = offsetzero(*arguments, status=1).stderr
        assert "4 dead letters sent to mender. Stopped: of 4 canaries" in said
        assert "more than 25% failed. 16 were not sent, and are open" in said
        assert "No member" not in said
        assert "16 were not sent, and are open" in said
        await_dead_letters(settings, "mender", 24)
        listed = json.loads(offsetzero("dlq", "list", "mender", "--status", "all", "--json").stdout)
        sent = Counter((row["redriven"], row["status"], row["outcome"]) for row in listed)
        assert sent == {(0, "open", None): 16, (0, "ended", "dead-lettered"): 4, (1, "open", None): 4}
        assert offsetzero("dlq", "list", "mender", "--status", "redriven").stdout.startswith("No redriven dead letters")
        mender.broken = None
        offsetzero(*arguments)
        wait_until(lambda: len(applied(database)) == 20, what="all effects")
    listed = json.loads(offsetzero("dlq", "list", "mender", "--status", "all", "--json").stdout)
    assert Counter(row["status"] for row in listed) == {"resolved": 24}  # with the four that failed a second time
    first, second = json.loads(offsetzero("dlq", "audit", "mender", "--json").stdout)
    assert (first["done"], first["ended"].partition(":")[0], second["done"]) == (4, "of 4 canaries", 20)


def test_canaries_of_a_group_that_does_not_run_are_not_awaited_in_silence(
    settings: Settings, offsetzero: CommandsHere, running: Running
) -> None:
    mender = Mender()
    with running(mender.group):
        publish(settings, 2, 2)
        await_dead_letters(settings, "mender", 2)
    arguments = ("--all", "--why", "x", "--canary", "1", "--canary-seconds", "0.1")
    said = offsetzero("dlq", "redrive", "mender", *arguments, status=1).stderr
    assert "No member of mender runs: canaries end only when one does" in said
    assert "of 1 canaries: none has ended; the others have not ended in 0.1 s. 1 were not sent, and are open" in said


def test_a_run_that_failed_is_in_work_again_and_succeeds(
    settings: Settings, offsetzero: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    mender, run_id, document_id = Mender(step=True), uuid4(), uuid4()
    run(database, runs.create(run_id, "acme", document_id, ["mender"]))
    with running(mender.group), Publisher(settings) as publisher:
        publisher.publish(uploaded(document_id, run_id))
        await_dead_letters(settings, "mender", 1)
        wait_until(lambda: status(database, run_id) == "failed", what="the run has failed")
        mender.broken = Permanent("password-needed")  # a redriven event may fail for good, without a dead letter
        offsetzero("dlq", "redrive", "mender", "--all", "--why", "mended")
        wait_until(lambda: status(database, run_id) == "failed", what="the run has failed again")
        (listed,) = json.loads(offsetzero("dlq", "list", "mender", "--status", "all", "--json").stdout)
        assert (listed["status"], listed["outcome"]) == ("ended", "failed")
        assert " ended (failed) " in offsetzero("dlq", "list", "mender", "--status", "ended").stdout
        other = uploaded(uuid4(), uuid4())
        run(database, runs.create(other.run_id, "acme", other.document_id, ["mender"]))
        mender.broken = Poison("corrupt")
        publisher.publish(other)
        await_dead_letters(settings, "mender", 2)
        wait_until(lambda: status(database, other.run_id) == "failed", what="the second run has failed")
        mender.broken = None
        offsetzero("dlq", "redrive", "mender", "--all", "--why", "mended")
        wait_until(lambda: status(database, other.run_id) == "succeeded", what="the second run succeeds")
    view = run(database, run_views.find("acme", other.run_id))
    assert view is not None
    assert [(step.status, step.attempts, step.reason) for step in view.steps] == [("succeeded", 1, None)]
    told = database.execute("SELECT type FROM outbox WHERE aggregateid = %s ORDER BY id", (str(other.run_id),))
    assert [kind for (kind,) in told.fetchall()] == ["run.failed", "run.succeeded"]


def status(database: psycopg.Connection, run_id: UUID) -> str:
    view = run(database, run_views.find("acme", run_id))
    assert view is not None
    return view.status


def test_the_log_says_the_fingerprint_that_the_dead_letter_has(
    settings: Settings, offsetzero: CommandsHere, running: Running
) -> None:
    mender = Mender()
    with running(mender.group), capture_logs() as lines:
        publish(settings, 1, 1)
        await_dead_letters(settings, "mender", 1)
    (line,) = (line for line in lines if line["event"] == "handling failed")
    (listed,) = json.loads(offsetzero("dlq", "list", "mender", "--json").stdout)
    assert (line["fingerprint"], line["next"]) == (listed["fingerprint"], "dlq")


def test_a_discard_ends_what_nobody_may_apply_any_more(
    settings: Settings, offsetzero: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    mender = Mender()
    with running(mender.group):
        publish(settings, 2, 2)
        await_dead_letters(settings, "mender", 2)
        (first, _) = json.loads(offsetzero("dlq", "list", "mender", "--json").stdout)
        offsetzero("dlq", "discard", "mender", first["event_id"], "--why", "no use")
        mender.broken = None
        offsetzero("dlq", "redrive", "mender", "--all", "--why", "mended")
        wait_until(lambda: len(applied(database)) == 1, what="the other one's effect")
    assert len(applied(database)) == 1


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "not in the log any more"])
def test_a_key_that_is_held_goes_on_after_a_discard(
    settings: Settings, offsetzero: CommandsHere, running: Running, database: psycopg.Connection, is_kept: bool
) -> None:
    """wolverine#3476: later messages of the key overtook the dead one."""
    mender = Mender(hold=True)
    with running(mender.group):
        publish(settings, 6, 2)
        await_dead_letters(settings, "mender", 2)
        mender.broken = None
        (first, second) = json.loads(offsetzero("dlq", "list", "mender", "--json").stdout)
        assert (first["holds_key"], second["holds_key"]) == (True, True)
        assert offsetzero("dlq", "list", "mender").stdout.count("open (holds its key)") == 2
        assert "holds_key: True" in offsetzero("dlq", "show", "mender", first["place"]).stdout
        if not is_kept:
            delete_topic(settings, "mender.dlq")
            wait_until(lambda: "mender.dlq" not in cluster.partitions(settings), what="the topic is gone")
            letters.make_topics(settings, "mender", 6)
        said = offsetzero("dlq", "discard", "mender", first["event_id"], "--why", "no use").stdout
        assert "1 of them held up its key: mender was told to go on." in said
        wait_until(lambda: len(applied(database)) == 2, what="the rest of its key")
        assert {str(key) for key, _ in applied(database)} == {first["key"]}
        if is_kept:
            offsetzero("dlq", "redrive", "mender", second["event_id"], "--why", "mended")
            wait_until(lambda: len(applied(database)) == 5, what="the other key, from its dead letter on")
            assert [number for key, number in applied(database) if str(key) == second["key"]] == sorted(
                number for key, number in applied(database) if str(key) == second["key"]
            )
    outcomes = database.execute(
        "SELECT outcome FROM processed_events WHERE event_id = %s ORDER BY redrive_no", (first["event_id"],)
    ).fetchall()
    if is_kept:
        assert outcomes == [("dead-lettered",), ("discarded",)]
    assert statuses(offsetzero)[first["place"]] == "discarded"


def statuses(offsetzero: CommandsHere) -> dict[str, str]:
    listed = json.loads(offsetzero("dlq", "list", "mender", "--status", "all", "--json").stdout)
    return {row["place"]: row["status"] for row in listed}
