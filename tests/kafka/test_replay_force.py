"""`replay --force`: what is done is done again, once, in a generation that is opened for it; nothing else is."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import UUID, uuid4, uuid5

import local_http
import psycopg
import pytest
from commands import Commands, CommandsHere
from kafka.archived import archive_all
from kafka.conftest import await_dead_letters, effects, uploaded
from kafka.test_group_positions import CODEC, Running, audit_group, committed
from kafka.test_replay import PLACE, WHY, waits

from offsetzero import Publisher, RunFailed
from offsetzero.clock import SYSTEM
from offsetzero.consumers import registry
from offsetzero.consumers.context import Context
from offsetzero.consumers.groups import notifier
from offsetzero.consumers.reading.facts import ClusterFacts
from offsetzero.errors import TopicError
from offsetzero.history import archive
from offsetzero.producers.log import LogProducer
from offsetzero.retry.failures import Poison, ProviderDown, Transient
from offsetzero.retry.policy import Tier
from offsetzero.schemas import cloudevents
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.store import webhooks
from offsetzero.store.database import pool
from offsetzero.store.script import run
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed
from support import wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SPACE = UUID(int=0)
FAILS: dict[str, Exception] = {}
MINE = """
from offsetzero import ConsumerGroup, DocumentUploaded
from offsetzero.retry.failures import Transient
from offsetzero.retry.policy import Tier

audit = ConsumerGroup("audit", topics=["documents"], tiers=[Tier("retry-1m", 1.0)])

@audit.handler(DocumentUploaded)
def note(event, ctx):
    if event.name == "fails":
        raise Transient("not-yet", "It fails in the job.")
    ctx.connection.execute(
        "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)", (event.document_id, event.name, 1)
    )
"""


def fail(name: str, ctx: Context) -> None:
    """What is transient fails once, and then waits until the test lets it go on: it costs no attempt, however long."""
    if name in FAILS:
        raise ProviderDown("not-yet") if isinstance(FAILS[name], Transient) and ctx.attempt > 1 else FAILS[name]


AUDIT = audit_group(fail, tiers=[Tier("retry-1m", 1.0)])


@pytest.fixture
def here(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CommandsHere:
    monkeypatch.setitem(registry.BUILT_IN, "audit", "kafka.test_replay_force:AUDIT")
    monkeypatch.setattr("kafka.test_replay_force.FAILS", {})
    return CommandsHere(settings, monkeypatch)


def put(settings: Settings, *said: str) -> None:
    """Events whose ids and keys are their names: said twice, they are delivered twice."""
    with LogProducer(settings) as producer:
        for name in said:
            event = uploaded(uuid5(SPACE, name), name=name)
            headers = cloudevents.to_headers(
                Metadata(id=name, source="/test", type="document.uploaded"), cloudevents.AVRO
            )
            topic = Names(settings.kafka.namespace).topic("documents")
            producer.produce(topic, key=name.encode(), value=CODEC.encode(event), headers=headers, partition=0).result(
                10
            )


def counts(database: psycopg.Connection) -> Counter[str]:
    return Counter(note for _, note, _ in effects(database))


def reaches(settings: Settings, offset: int) -> None:
    def is_there() -> bool:
        with contextlib.suppress(TopicError):  # the coordinator of a broker that has just begun
            return (at := committed(settings)) is not None and at.offset == offset
        return False

    wait_until(is_there, what=f"offset {offset}")


def opened(database: psycopg.Connection) -> Sequence[tuple[Any, ...]]:
    return database.execute(
        "SELECT generation, first_offset, end_offset FROM forced_spans WHERE group_name = 'audit' ORDER BY 1"
    ).fetchall()


def test_a_partition_is_read_from_where_a_forced_replay_begins_with_what_was_opened_for_it(
    settings: Settings,
    here: CommandsHere,
    running: Running,
    database: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever finds out the new offsets knows of the generation, too, or all of it would be duplicates."""
    put(settings, *"abc")
    with running(AUDIT):
        reaches(settings, 3)
    ask = ClusterFacts._committed

    def overtaken(facts: ClusterFacts, places: Iterable[Place]) -> Mapping[Place, Committed]:
        if not opened(database):
            here("replay", "audit", "--from", "1", *PLACE, "--force", *WHY)
        return ask(facts, places)

    monkeypatch.setattr(ClusterFacts, "_committed", overtaken)
    with pool(settings, 1) as connections:
        facts = ClusterFacts(settings, "audit", ["documents"], [], connections).read([("documents", 0)])
    found = facts["documents", 0]
    assert found.committed == 1
    assert found.forced is not None
    assert [(one.first, one.end) for one in found.forced.spans] == [(1, 3)]


def test_a_stopped_group_does_again_what_is_chosen_each_time_and_nothing_else_is_done_twice(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    put(settings, *"abcdef")
    with running(AUDIT):
        reaches(settings, 6)
    shown = here("replay", "audit", "--from", "3", *PLACE, "--force").stderr
    assert "--force: 3 of them have their outcome, and are done again" in shown
    assert "Nothing was changed" in shown
    assert opened(database) == []
    here("replay", "audit", "--from", "3", *PLACE, "--force", *WHY)
    put(settings, "a", "f")  # delivered twice: the one was done before what is chosen, the other is in it
    with running(AUDIT):
        reaches(settings, 8)
    assert counts(database) == {**dict.fromkeys("abc", 1), **dict.fromkeys("def", 2)}
    here("replay", "audit", "--from", "4", *PLACE, "--force", *WHY)
    with running(AUDIT):
        reaches(settings, 8)
    assert counts(database) == {"a": 2, "b": 1, "c": 1, "d": 2, "e": 3, "f": 3}
    assert opened(database) == [(2, 3, 6), (3, 4, 8)]
    again = here("replay", "audit", "--from", "0", *PLACE).stderr
    assert "8 of them have their outcome, and are not done again." in again
    rows = database.execute("SELECT way, why, asked, generation, ended FROM replays ORDER BY at").fetchall()
    asked = "--topic documents --partition 0"
    assert rows == [
        ("offsets", WHY[1], f"--from 3 {asked} --force", 2, "done"),
        ("offsets", WHY[1], f"--from 4 {asked} --force", 3, "done"),
    ]
    history = database.execute("SELECT generation, count(*) FROM processed_events GROUP BY 1 ORDER BY 1").fetchall()
    assert history == [(1, 6), (2, 3), (3, 3)], "nothing of the history is gone"


def test_a_side_job_goes_from_the_archive_into_the_log_and_points_may_lie_in_both(
    settings: Settings,
    here: CommandsHere,
    running: Running,
    database: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive, "SEGMENT_OFFSETS", 2)
    put(settings, *"abcd")
    at = SYSTEM.now()
    wait_until(lambda: SYSTEM.now_ms() > at.timestamp() * 1000 + 5)
    put(settings, *"efgh")
    with running(AUDIT):
        reaches(settings, 8)
    archive_all(settings, "documents", keep=2)

    def again(start: str, end: str, shown: str) -> str:
        before = counts(database)
        said = here("replay", "audit", "--from", start, "--to", end, *PLACE, "--force", *WHY).stderr
        assert shown in said
        return "".join(sorted((counts(database) - before).elements()))

    assert (
        again("earliest", "latest", "documents/0: the log begins at 6, so 6 offsets are of the archive.") == "abcdefgh"
    )
    assert again("1", "3", "2 offsets are of the archive.") == "bc"
    assert again(at.isoformat(), "latest", "2 offsets are of the archive.") == "efgh"
    assert again("earliest", at.isoformat(), "4 offsets are of the archive.") == "abcd"
    stored = sorted((Path(urlparse(settings.objects).path) / "archive").rglob("*02.json"))
    stored[0].unlink()  # as if nobody had archived it
    assert again("earliest", "latest", "6 offsets are of the archive; nobody has 2 of them.") == "abefgh"
    refused = here("replay", "audit", "--from", "3", "--to", "7", *PLACE, status=1).stderr
    assert "--from 3: the log of documents/0 begins at 6, and the archive has 0 to 1, 4 to 5 before" in refused


def test_members_that_run_do_it_again_what_waits_is_done_once_and_what_is_dead_is_tried_again(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    FAILS.update(waits=Transient("not-yet"), mended=Poison("corrupt"), broken=Poison("corrupt"))
    put(settings, "well", "waits", "mended", "broken")
    with running(AUDIT):
        reaches(settings, 4)
        wait_until(lambda: waits(settings) == 1, what="the retry")
        await_dead_letters(settings, "audit", 2)
        del FAILS["mended"]
        done = here("replay", "audit", "--from", "0", *PLACE, "--force", *WHY)
        assert "applied" in done.stdout
        del FAILS["waits"]
        wait_until(lambda: waits(settings) == 0, what="the retry that waited")
        wait_until(lambda: counts(database) == {"well": 2, "waits": 1, "mended": 1}, what="all of it again")
        assert next(attempt for _, note, attempt in effects(database) if note == "waits") == 2
        await_dead_letters(settings, "audit", 3)
        del FAILS["broken"]
        here("dlq", "redrive", "audit", "--all", "--why", "mended")
        wait_until(lambda: counts(database)["broken"] == 1, what="what was redriven")
        wait_until(
            lambda: (
                {row["status"] for row in json.loads(here("dlq", "list", "audit", "--status", "all", "--json").stdout)}
                == {"resolved"}
            ),
            what="all letters resolved",
        )
    assert counts(database) == {"well": 2, "waits": 1, "mended": 1, "broken": 1}


def test_killed_when_the_generation_is_open_and_nothing_is_moved_the_same_command_without_force_does_it_once(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    put(settings, *"abc")
    with running(AUDIT):
        reaches(settings, 3)
    with psycopg.connect(settings.database_url.get_secret_value()) as other:
        other.execute("LOCK TABLE group_starts IN ACCESS EXCLUSIVE MODE")  # it looks there before it moves offsets
        process = Commands(settings, tmp_path).start("replay", "mine:audit", "--from", "earliest", "--force", *WHY)
        try:
            wait_until(lambda: opened(database), 60, what="the generation")
        finally:
            process.kill()
            process.communicate()
    with running(AUDIT):
        put(settings, "d")
        reaches(settings, 4)
    assert counts(database) == dict.fromkeys("abcd", 1), "nothing was read again"
    shown = here("replay", "audit", "--from", "earliest", *WHY).stderr
    assert "1 of them have their outcome, and are not done again." in shown
    assert "3 were to be done again by a forced replay, and are not yet: they are done now." in shown
    with running(AUDIT):
        reaches(settings, 4)
    assert counts(database) == {**dict.fromkeys("abc", 2), "d": 1}
    assert database.execute("SELECT generation, ended FROM replays ORDER BY at").fetchall() == [
        (2, None),
        (None, "done"),
    ]


def test_what_fails_in_a_forced_side_job_is_done_again_by_the_members_that_run(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    put(settings, "a", "fails", "b")
    with running(audit_group(tiers=[Tier("retry-1m", 1.0)])):
        reaches(settings, 3)
        asked = ("--from", "0", "--to", "2", *PLACE)
        done = Commands(settings, tmp_path)("replay", "mine:audit", *asked, "--force", *WHY)
        assert "2 records were read and meant: 1 applied" in done.stderr
        wait_until(lambda: counts(database)["fails"] == 2, what="what failed in the job, by the group")
        wait_until(lambda: waits(settings) == 0, what="an empty retry topic")
        again = here("replay", "audit", *asked).stderr
        assert "2 of them have their outcome, and are not done again." in again
    assert counts(database) == {"a": 2, "fails": 2, "b": 1}


def test_webhooks_go_out_again_and_the_preview_says_how_many(
    settings: Settings, here: CommandsHere, running: Running, database: psycopg.Connection
) -> None:
    settings = settings.model_copy(
        update={"webhooks": settings.webhooks.model_copy(update={"allow_private_targets": True})}
    )
    with local_http.serve() as server:
        for _ in range(2):
            run(database, webhooks.add(uuid4(), "acme", server.url, SECRET, ["run.failed"], most=9))
        with Publisher(settings) as publisher:
            for _ in range(3):
                publisher.publish(
                    RunFailed(
                        run_id=uuid4(),
                        tenant_id="acme",
                        document_id=uuid4(),
                        step="indexer",
                        reason="corrupt",
                        detail="",
                        finished_at=SYSTEM.now(),
                    )
                )
        with running(notifier.group, settings):
            wait_until(lambda: len(server.received) == 6, what="deliveries")
            wait_until(lambda: database.execute("SELECT count(*) FROM processed_events").fetchone() == (3,))
        shown = here("replay", "notifier", "--from", "earliest", "--force").stderr
        assert "3 of them have their outcome, and are done again" in shown
        assert "That is 6 webhook deliveries to 2 subscriptions" in shown
        assert "webhook" not in here("replay", "notifier", "--from", "earliest").stderr
        here("replay", "notifier", "--from", "earliest", "--force", *WHY)
        with running(notifier.group, settings):
            wait_until(lambda: len(server.received) == 12, what="deliveries once more")
            wait_until(lambda: database.execute("SELECT count(*) FROM processed_events").fetchone() == (6,))
        ids = Counter(received.headers["webhook-id"] for received in server.received)
        assert list(ids.values()) == [4, 4, 4], "each bears the id that it had"
