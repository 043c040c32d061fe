"""Erased documents: nothing of them can be read anywhere but ids, sizes and hashes, now and after every rebuild."""

import io
import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import UUID, uuid4

import fastavro
import httpx
import pdfs
import psycopg
import pytest
from commands import Commands, CommandsHere
from e2e.conftest import Pipeline
from stored import add_document

from offsetzero.clock import SYSTEM
from offsetzero.consumers.groups import indexer
from offsetzero.consumers.projection import Projection, make_tables
from offsetzero.generation import Generation
from offsetzero.history import archive, spans
from offsetzero.producers.log import LogProducer
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import dead_letter_actions, generations, index
from offsetzero.store.dead_letters import Place
from offsetzero.store.documents import Document
from offsetzero.store.script import run
from offsetzero.store.tenants import create_key
from offsetzero.topics import cluster, retained
from offsetzero.topics.names import Names
from offsetzero.topics.reading import TopicReader
from support import wait_until

WORD = "qizzlebrompt"
"""In the content and the names of what is erased, and nowhere else."""
ALONE = "flimwhistle"
"""In one of the documents."""
KEPT = "vexillarium"
TENANT = "acme"


def rows(settings: Settings, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        return connection.execute(query.encode(), parameters).fetchall()


def in_database(settings: Settings, word: str) -> set[str]:
    """The tables, in all schemas, of which a row has the word: in texts, JSON, arrays, word lists and bytes."""
    hexed = word.encode().hex()
    tables = rows(
        settings,
        "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables "
        "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
    assert len(tables) > 15
    query = "SELECT count(*) FROM {} t WHERE t::text ILIKE %s OR t::text ILIKE %s"
    return {table for (table,) in tables if rows(settings, query.format(table), f"%{word}%", f"%{hexed}%") != [(0,)]}


def in_objects(settings: Settings, word: str) -> set[str]:
    """The files of the object store that have the word, those of the archive unpacked."""
    folder, found = Path(urlparse(settings.objects).path), set()
    for path in (one for one in folder.rglob("*") if one.is_file()):
        data = path.read_bytes()
        if path.suffix == ".avro":
            data += repr(list(fastavro.reader(io.BytesIO(data)))).encode()
        if word.encode() in data or word in str(path):
            found.add(str(path.relative_to(folder)))
    return found


def in_topics(settings: Settings, word: str) -> set[str]:
    """The topics of which a record has the word: in its key, value or headers."""
    found, records = set(), 0
    for topic in cluster.partitions(settings):
        wanted = {number: (one.low, one.end) for number, one in retained.bounds(settings, topic).items()}
        with TopicReader(settings) as reader:
            for batch in reader.read(topic, wanted):
                records += len(batch)
                if word in repr(batch) or word.encode() in b"".join(one.value or b"" for one in batch):
                    found.add(topic)
    assert records >= 10
    return found


def everywhere(settings: Settings, word: str) -> set[str]:
    return in_database(settings, word) | in_objects(settings, word) | in_topics(settings, word)


def archived(settings: Settings) -> None:
    for topic in cluster.partitions(settings):
        archive.archive(settings, topic, spans.resolve(settings, topic, "earliest", "latest"))


def other_tenant(pipeline: Pipeline) -> httpx.Client:
    with psycopg.connect(pipeline.settings.database_url.get_secret_value()) as connection:
        key = create_key(connection, "umbra")
    return httpx.Client(base_url=pipeline.client.base_url, headers={"Authorization": f"Bearer {key}"}, timeout=30)


def edit(settings: Settings) -> None:
    """What `dlq edit` writes: an operator gives the name of a file to a payload that has none."""
    with psycopg.connect(settings.database_url.get_secret_value(), autocommit=True) as connection:
        [row] = connection.execute(
            "SELECT topic_id, partition, place FROM dead_letters WHERE group_name = 'indexer'"
        ).fetchall()
        action = UUID(str(uuid7()))
        kind = dead_letter_actions.Kind.EDIT
        run(connection, dead_letter_actions.begin(action, kind, "indexer", "me", "its name", "0/0"))
        run(connection, dead_letter_actions.edit(action, Place(*row), b"", f'{{"name": "{WORD}.pdf"}}'.encode()))
        run(connection, dead_letter_actions.end(action))


@pytest.mark.timeout(300)
def test_nothing_of_an_erased_document_is_left_now_or_after_a_rebuild(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = pipeline.settings
    offsetzero = CommandsHere(settings, monkeypatch)
    pipeline.start_intake()
    groups = {name: pipeline.start("groups", "run", name) for name in ("indexer", "summariser", "ledger")}
    text = f"The {WORD} is described here at some length. It is a small {WORD} of no use to anybody."
    letter = pipeline.upload(f"{WORD}.txt", f"{text} {ALONE}!".encode())
    scan = pipeline.upload(f"Dear {WORD}.pdf", pdfs.pdf(text))
    poison = pipeline.upload(f"{WORD}-2.pdf", pdfs.corrupt() + WORD.encode(), "application/pdf")
    other = other_tenant(pipeline)
    kept = other.post("/documents", files={"file": (f"{KEPT}.txt", f"A {KEPT} for others.".encode(), "text/plain")})
    for one in (letter, scan, poison):
        pipeline.await_run(one["run_id"])
    wait_until(lambda: other.get("/search", params={"q": KEPT}).json()["hits"], what="the other tenant's document")
    wait_until(lambda: len(rows(settings, "SELECT 1 FROM dead_letters")) == 2, what="the ledger of two groups")
    edit(settings)
    archived(settings)
    before = everywhere(settings, WORD)
    assert {"public.documents", "public.summaries", "public.dead_letter_edits", "indexer_g1.chunks"} <= before
    assert len([one for one in before if one.startswith("documents/")]) == 3, "the objects"
    assert in_topics(settings, WORD) == set(), "the log never had it"

    assert "indexer_g1.chunks" in in_database(settings, ALONE)
    for name in ("indexer", "summariser"):
        groups[name].child.send_signal(signal.SIGSTOP)
    assert pipeline.client.delete(f"/documents/{letter['document_id']}").status_code == 204
    assert in_database(settings, ALONE) == in_objects(settings, ALONE) == set(), "gone with the answer"
    for name in ("indexer", "summariser"):
        groups[name].child.send_signal(signal.SIGCONT)
    shown = offsetzero("erase", "--document", scan["document_id"])
    assert "Nothing was changed" in shown.stderr
    assert "documents/acme" in str(in_objects(settings, WORD))
    why = ("--why", "request 4711", "--yes")
    assert "1 documents erased" in offsetzero("erase", "--document", scan["document_id"], *why).stdout
    assert "2 documents" not in offsetzero("erase", "--tenant", TENANT).stderr
    assert "1 documents erased" in offsetzero("erase", "--tenant", TENANT, *why).stdout
    assert "0 documents erased" in offsetzero("erase", "--tenant", TENANT, *why).stdout
    assert "1 documents erased" in offsetzero("erase", "--document", scan["document_id"], *why).stdout, "again"
    assert offsetzero("erase", "--audit").stdout.count("request 4711") == 4

    deleted = "SELECT count(*) FROM processed_events p JOIN outbox o ON o.id::text = p.event_id WHERE o.type = %s"
    wait_until(lambda: rows(settings, deleted, "document.deleted") == [(6,)], what="two groups handle three deletions")
    archived(settings)
    assert everywhere(settings, WORD) == set()
    assert rows(settings, "SELECT count(*) FROM documents WHERE deleted_at IS NOT NULL AND sha256 <> ''") == [(3,)]
    assert rows(settings, "SELECT count(*) FROM dead_letters") == [(0,)], (
        "those of what is erased are no work for anybody"
    )
    assert kept.json()["document_id"] == other.get("/search", params={"q": KEPT}).json()["hits"][0]["document_id"]

    # The ledger is made anew of the topics, and somebody sends back what it lists.
    assert groups["ledger"].stop() == 0
    rows_gone = "WITH gone AS (DELETE FROM dead_letter_positions RETURNING 1) DELETE FROM dead_letters RETURNING 1"
    assert rows(settings, rows_gone) == []
    for group in ("indexer", "summariser"):
        said = offsetzero("dlq", "redrive", group, "--all", "--why", "again").stdout
        assert "1 dead letter" in said, said
    redriven = "SELECT group_name, outcome FROM processed_events WHERE redrive_no = 1 ORDER BY 1"
    applied = [("indexer", "applied"), ("summariser", "applied")]
    wait_until(lambda: rows(settings, redriven) == applied, what="the redriven events")
    assert everywhere(settings, WORD) == set()

    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        assert indexer.group.projection is not None
        make_tables(connection, Generation("indexer", 2), indexer.group.projection)
    second = pipeline.start("groups", "run", "indexer", "--generation", "2")
    outcomes = (
        "SELECT generation, count(DISTINCT event_id) FROM processed_events WHERE group_name = 'indexer' GROUP BY 1"
    )
    wait_until(lambda: dict(rows(settings, outcomes)).get(2) == 7, 90, what="the second generation, from offset zero")
    assert everywhere(settings, WORD) == set()
    assert rows(settings, "SELECT name FROM indexer_g2.indexed_documents WHERE name <> ''") == [(f"{KEPT}.txt",)]
    assert rows(settings, "SELECT count(*) FROM indexer_g2.chunks") == [(1,)]
    assert second.stop() == 0


@pytest.fixture
def many(settings: Settings) -> int:
    """So many documents of a tenant in the database and the object store; no process has seen them."""
    folder, count = Path(urlparse(settings.objects).path) / "documents" / TENANT, 300
    folder.mkdir(parents=True)
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        for number in range(count):
            document_id = uuid4()
            (folder / str(document_id)).write_text(WORD)
            document = Document(
                id=document_id,
                tenant_id=TENANT,
                name=f"{WORD}.txt",
                content_type="text/plain",
                uri=f"{settings.objects}/documents/{TENANT}/{document_id}",
                size_bytes=len(WORD),
                sha256=f"{number:064d}",
                version=1,
                uploaded_at=SYSTEM.now(),
            )
            add_document(connection, document)
    return count


def test_an_erasure_that_is_killed_goes_on_where_it_was(settings: Settings, many: int, tmp_path: Path) -> None:
    offsetzero = Commands(settings, tmp_path)
    folder = Path(urlparse(settings.objects).path) / "documents" / TENANT
    (folder / str(uuid4())).write_text(WORD)  # an upload of this moment, not recorded yet
    erasing = ("erase", "--tenant", TENANT, "--why", "a person asks", "--yes")
    gone = "SELECT count(*) FROM documents WHERE deleted_at IS NOT NULL"
    for share in (0.1, 0.5):
        killed = offsetzero.start(*erasing)
        wait_until(lambda share=share: rows(settings, gone)[0][0] >= many * share, 60, what="some are erased")
        killed.kill()
        killed.communicate()
        assert rows(settings, gone)[0][0] < many, "it was killed too late to show anything"
        named = {one[0] for one in rows(settings, "SELECT id FROM documents WHERE name <> ''")}
        living = {one[0] for one in rows(settings, "SELECT id FROM documents WHERE deleted_at IS NULL")}
        told = {UUID(one[0]) for one in rows(settings, "SELECT aggregateid FROM outbox")}
        assert named == living
        assert len(living) + len(told) == many
        assert living.isdisjoint(told), "what is erased is told, in one transaction"
        stored = {UUID(one.name) for one in folder.iterdir()}
        assert stored.isdisjoint(told)
    assert "documents erased" in offsetzero(*erasing).stdout
    assert in_database(settings, WORD) == set()
    assert len(list(folder.iterdir())) == 1, "the object of the moment: too young to be taken for left behind"
    ended = [one[0] for one in rows(settings, "SELECT ended FROM erasures ORDER BY at")]
    assert ended == [None, None, "done"]


def test_objects_that_no_document_names_are_erased_with_the_tenant(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsetzero = CommandsHere(settings, monkeypatch)
    path = Path(urlparse(settings.objects).path) / "documents" / TENANT / str(uuid4())
    path.parent.mkdir(parents=True)
    path.write_text(WORD)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    assert "1 objects that belong to no document" in offsetzero("erase", "--tenant", TENANT).stderr
    assert path.exists()
    for tenant in (TENANT, "another"):
        offsetzero("schedules", "add", f"of-{tenant}", "0 2 * * *", "report", "--tenant", tenant)
    said = offsetzero("erase", "--tenant", TENANT, "--why", "a person asks", "--yes").stderr
    assert not path.exists()
    (goes_on,) = [line for line in said.splitlines() if "goes on" in line]
    assert goes_on.endswith(f"offsetzero schedules remove of-{TENANT} --tenant {TENANT}")


def test_generations_that_are_kept_and_do_not_follow_the_log_are_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tables have what they made of a document: whoever must erase a person is to know of it, and of the way."""
    offsetzero = CommandsHere(settings, monkeypatch)
    with psycopg.connect(settings.database_url.get_secret_value()) as connection:
        for number in (1, 2, 3, 4):
            make_tables(connection, Generation("names", number), Projection("CREATE TABLE names (name text)"))
        run(connection, generations.call(Generation("names", 3), "before", SYSTEM.now()))
        make_tables(connection, Generation("indexer", 2), Projection(index.TABLES))  # which is erased in all of them
        connection.execute("UPDATE group_generations SET read_at = now() WHERE group_name = 'names' AND generation = 2")
    said = offsetzero("erase", "--tenant", TENANT, "--why", "a person asks", "--yes").stderr
    assert [line.rpartition(": ")[2] for line in said.splitlines() if "is kept and not read" in line] == [
        "offsetzero rebuild names --prune",
        "offsetzero rebuild names --prune --as before",
        "offsetzero rebuild names --abandon",
    ]


def test_what_cannot_be_erased_is_one_clear_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    offsetzero = CommandsHere(settings, monkeypatch)
    assert "--document ID, or --tenant TENANT" in offsetzero("erase", status=1).stderr
    both = ("--tenant", TENANT, "--document", str(uuid4()), "--yes")
    assert "--why: say why" in (said := offsetzero("erase", *both, status=1).stderr)
    assert "--document ID, or --tenant TENANT" in said
    assert "there is no such document" in offsetzero("erase", "--document", str(uuid4()), status=1).stderr


def test_a_tombstone_removes_a_document_from_index_and_summaries(pipeline: Pipeline) -> None:
    """What compaction and other systems say for "deleted": a record of the key without a value."""
    settings = pipeline.settings
    pipeline.start_intake()
    for name in ("indexer", "summariser"):
        pipeline.start("groups", "run", name)
    one = pipeline.upload("a.txt", f"The {WORD} is described here at some length, and it is small.".encode())
    pipeline.await_run(one["run_id"])
    topic = Names(settings.kafka.namespace).topic("documents")
    with LogProducer(settings) as producer:
        for key in (one["document_id"], "no id of a document"):
            producer.produce(topic, key=key.encode(), value=None).result(10)
    removed = (
        "SELECT (SELECT count(*) FROM indexer_g1.indexed_documents WHERE removed_at IS NOT NULL), "
        "(SELECT count(*) FROM summaries WHERE removed_at IS NOT NULL AND text = '')"
    )
    wait_until(lambda: rows(settings, removed) == [(1, 1)], what="the tombstone")
    assert rows(settings, "SELECT count(*) FROM indexer_g1.chunks") == [(0,)]
    assert json.loads(pipeline.client.get("/search", params={"q": WORD}).text)["hits"] == []
