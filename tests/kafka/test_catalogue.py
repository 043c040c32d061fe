"""The group `catalogue`: the same tables whatever comes twice, late, again or from dead letters."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from commands import CommandsHere
from kafka.conftest import RunningGroup, await_dead_letters, uploaded

from offsetzero import DocumentDeleted, DocumentUploaded, Publisher
from offsetzero.clock import SYSTEM
from offsetzero.consumers.groups.catalogue import group
from offsetzero.consumers.projection import make_tables
from offsetzero.generation import Generation
from offsetzero.retry.failures import Poison
from offsetzero.settings import Settings
from offsetzero.store.catalogue import Catalogue, Entry, of_tenant, put
from offsetzero.store.script import run
from support import wait_until

pytestmark = pytest.mark.usefixtures("topics")
STATE = "SELECT document_id, sequence, name, deleted_at IS NOT NULL FROM catalogue_g1.catalogue_documents ORDER BY 1"


def rows(database: psycopg.Connection, query: str) -> list[tuple[Any, ...]]:
    return database.execute(query.encode()).fetchall()


def deleted(document_id: UUID) -> DocumentDeleted:
    return DocumentDeleted(document_id=document_id, tenant_id="acme", deleted_at=SYSTEM.now())


@contextmanager
def members(
    settings: Settings, database: psycopg.Connection, events: int, generation: int = 1, count: int = 1
) -> Iterator[None]:
    """Run so many members until so many events have an outcome, and while the block goes on."""
    started: list[RunningGroup] = []
    ended = f"SELECT count(*) FROM processed_events WHERE group_name = 'catalogue' AND generation = {generation}"
    try:
        for _ in range(count):
            started.append(RunningGroup(group, settings, generation=generation if generation > 1 else None))
        wait_until(lambda: rows(database, ended)[0][0] >= events, 60, what=f"{events} outcomes")
        yield
    finally:
        for one in started:
            one.runtime.stop()
        for one in started:
            one.stop()


def test_what_comes_twice_late_or_again_leaves_the_newest_state(
    settings: Settings, database: psycopg.Connection
) -> None:
    twice, gone, late, again, bare = sorted(uuid4() for _ in range(5))
    with Publisher(settings) as publisher:
        for _ in range(2):
            publisher.publish(uploaded(twice, name="twice"), sequence=1, event_id="0198-twice")
        publisher.publish(uploaded(gone, name="gone"), sequence=1)
        publisher.publish(deleted(gone), sequence=2)
        publisher.publish(deleted(late), sequence=2)
        publisher.publish(uploaded(late, name="late"), sequence=1)
        publisher.publish(uploaded(again, name="second"), sequence=2)
        publisher.publish(uploaded(again, name="first"), sequence=1, bulk=True)
        publisher.publish(uploaded(bare, name="older"))
        publisher.publish(uploaded(bare, name="newer"))
    with members(settings, database, 9):
        found = rows(database, STATE)
    assert found == [
        (twice, 1, "twice", False),
        (gone, 2, "", True),
        (late, 2, "", True),
        (again, 2, "second", False),
        (bare, 0, "newer", False),
    ]


def test_an_old_event_that_is_redriven_changes_nothing_newer(
    settings: Settings, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, other = uuid4(), uuid4()
    monkeypatch.setitem(group.rules, psycopg.errors.CheckViolation, Poison)
    with database.transaction():
        make_tables(database, Generation("catalogue"), group.projection)  # type: ignore[arg-type]
        database.execute("ALTER TABLE catalogue_documents ADD CONSTRAINT no CHECK (name NOT LIKE 'bad%')")
    database.execute("RESET search_path")
    with Publisher(settings) as publisher:
        publisher.publish(uploaded(document, name="bad"), sequence=1)
        publisher.publish(uploaded(other, name="bad, too"), sequence=1)
    with members(settings, database, 2):
        await_dead_letters(settings, "catalogue", 2)
        with Publisher(settings) as publisher:  # only now: in one batch with the older one it would stand for both
            publisher.publish(uploaded(document, name="good"), sequence=2)
        wait_until(lambda: rows(database, STATE), what="the newer one")
        assert rows(database, STATE) == [(document, 2, "good", False)]
        database.execute("ALTER TABLE catalogue_g1.catalogue_documents DROP CONSTRAINT no")
        CommandsHere(settings, monkeypatch)("dlq", "redrive", "catalogue", "--all", "--why", "allowed now")
        again = "SELECT count(*) FROM processed_events WHERE redrive_no = 1 AND outcome = 'applied'"
        wait_until(lambda: rows(database, again)[0][0] == 2, what="both of them")
        assert dict(row[0::2] for row in rows(database, STATE)) == {document: "good", other: "bad, too"}


def test_events_of_two_lanes_that_name_no_version_are_not_guessed_at(
    settings: Settings, database: psycopg.Connection
) -> None:
    document, fine = uuid4(), uuid4()
    with Publisher(settings) as publisher:
        publisher.publish(uploaded(document, name="one")).result(10)
        publisher.publish(uploaded(document, name="another"), bulk=True)
        publisher.publish(uploaded(fine, name="fine"), bulk=True)
    with members(settings, database, 3):
        (letter,) = await_dead_letters(settings, "catalogue", 1)
    assert letter.reason == "not-comparable"
    assert {name for _, _, name, _ in rows(database, STATE)} in ({"one", "fine"}, {"another", "fine"})


def test_two_members_and_two_generations_make_the_same_rows_as_a_fold_of_the_log(
    settings: Settings, database: psycopg.Connection
) -> None:
    dice = random.Random(7)
    documents = [uuid4() for _ in range(150)]
    versions = {document: list(range(1, dice.randrange(2, 9))) for document in documents}
    wanted: dict[UUID, tuple[int, str, bool]] = {}
    published = twice = 0
    with Publisher(settings) as publisher:
        while versions:
            document = dice.choice(list(versions))
            left = versions[document]
            version = left.pop(dice.randrange(len(left)))  # in any order: as copies, imports and lanes may have them
            if not left:
                del versions[document]
            removes = dice.random() < 0.05
            event: DocumentUploaded | DocumentDeleted = (
                deleted(document) if removes else uploaded(document, name=str(version))
            )
            bulk, event_id = dice.random() < 0.3, str(uuid4())
            for _ in range(copies := 1 + (dice.random() < 0.2)):
                publisher.publish(event, sequence=version, bulk=bulk, event_id=event_id)
            published, twice = published + 1, twice + copies - 1
            state = version, "" if removes else str(version), removes
            before = wanted.get(document, (0, "", False))
            wanted[document] = max(state, before, key=lambda one: (one[2], one[0]))
    assert twice > 50
    with members(settings, database, published, count=2):
        pass
    with database.transaction():
        make_tables(database, Generation("catalogue", 2), group.projection)  # type: ignore[arg-type]
    database.execute("RESET search_path")
    with members(settings, database, published, generation=2, count=2):
        pass
    assert {row[0]: row[1:] for row in rows(database, STATE)} == wanted
    first, second = ("SELECT * FROM catalogue_g1.catalogue_documents", "SELECT * FROM catalogue_g2.catalogue_documents")
    assert rows(database, f"({first} EXCEPT {second}) UNION ALL ({second} EXCEPT {first})") == []
    assert rows(database, "SELECT count(*) FROM processed_events GROUP BY generation") == [(published,)] * 2


def test_what_a_tenant_has_is_counted_and_listed(database: psycopg.Connection) -> None:
    with database.transaction():
        make_tables(database, Generation("catalogue"), group.projection)  # type: ignore[arg-type]
        at = SYSTEM.now()

        def entry(number: int, tenant: str = "acme", *, gone: bool = False) -> Entry:
            times = (None, at) if gone else (at + timedelta(seconds=number), None)
            size = 0 if gone else 10**number
            return Entry(UUID(int=number), tenant, 1, "t", 0, number, f'{number}\\"{{}},', "text/plain", size, *times)

        made = [entry(1), entry(2), entry(3, gone=True), entry(4), entry(5, "other")]
        assert run(database, put(made)) == []
        assert run(database, put(made)) == [], "the same once more is no tie"
        page = run(database, of_tenant("acme", limit=2))
        assert (page.documents, page.bytes) == (3, 10_110)
        assert [(one.document_id.int, one.name, one.uploaded_at) for one in page.listed] == [
            (number, f'{number}\\"{{}},', at + timedelta(seconds=number)) for number in (4, 2)
        ]
        rest = run(database, of_tenant("acme", limit=2, before=page.listed[-1].document_id))
        assert [one.document_id.int for one in rest.listed] == [1]
        assert run(database, of_tenant("nobody", limit=2)) == Catalogue(0, 0, [])
