"""Uploads of many in one statement: each is written as if it had come alone."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from offsetzero.producers import runs
from offsetzero.settings import Settings
from offsetzero.store.database import Connection
from offsetzero.store.documents import Document, Intake, find_intakes
from offsetzero.store.intake import New
from offsetzero.store.script import run
from offsetzero.store.tenants import create_key, owners_of, revoke_key

SETTINGS = Settings.model_validate({"api": {"tenant_in_flight": 3, "required_steps": ["one", "two"]}})


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def _new(content: str, tenant: str = "demo", *, bulk: bool = False) -> New:
    document = Document(
        id=uuid4(),
        tenant_id=tenant,
        name=f"{content}.txt",
        content_type="text/plain",
        uri=f"file:///objects/{content}",
        size_bytes=len(content),
        sha256=content,
        version=1,
        uploaded_at=datetime.now(UTC),
    )
    return runs.prepare(document, SETTINGS, bulk=bulk)


def _lanes(connection: Connection, *news: New) -> str:
    """N and B for each, by the run's lane; - for one that was not written."""
    run(connection, runs.take_in(news, SETTINGS))
    found = dict(connection.execute("SELECT id, lane FROM runs").fetchall())
    return "".join({"normal": "N", "bulk": "B", None: "-"}[found.get(new.run_id)] for new in news)


def test_all_of_each_is_written(connection: Connection) -> None:
    news = [_new("a"), _new("b", "other"), _new("c")]
    taken = run(connection, runs.take_in(news, SETTINGS))
    assert [one and (one.document_id, one.run_id) for one in taken] == [(new.document.id, new.run_id) for new in news]
    for new in news:
        (written,) = connection.execute(
            "SELECT tenant_id, name, content_type, uri, size_bytes, sha256, uploaded_at, version FROM documents"
            " WHERE id = %s",
            (new.document.id,),
        ).fetchall()
        one = new.document
        assert written == (
            *(one.tenant_id, one.name, one.content_type, one.uri, one.size_bytes, one.sha256, one.uploaded_at),
            1,
        )
        states = connection.execute(
            "SELECT kind, state ->> 'status', state ->> 'step', (state ->> 'required')::bool FROM run_events"
            " WHERE run_id = %s ORDER BY number",
            (new.run_id,),
        ).fetchall()
        assert states[0] == ("run", "queued", None, None)
        assert sorted(states[1:]) == [("step", "queued", "one", True), ("step", "queued", "two", True)]
        (event,) = connection.execute(
            "SELECT aggregatetype, aggregateid, type, payload, topic, headers ->> 'ce_runid' FROM outbox WHERE id = %s",
            (new.event.id,),
        ).fetchall()
        told = ("document", str(one.id), "document.uploaded", new.event.payload, "documents", str(new.run_id))
        assert event == told


def test_of_the_same_content_one_is_written(connection: Connection) -> None:
    first, same, others, again = _new("a"), _new("a"), _new("a", "other"), _new("a")
    taken = run(connection, runs.take_in([first, same, others], SETTINGS))
    assert [one is not None for one in taken].count(True) == 2
    assert taken[2] is not None, "another tenant's is another document"
    assert run(connection, runs.take_in([again], SETTINGS)) == [None]
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (2,)
    stands, theirs, none = run(connection, find_intakes([("demo", "a"), ("other", "a"), ("other", "b")]))
    assert isinstance(stands, Intake)
    assert stands.document_id in (first.document.id, same.document.id)
    assert theirs is not None
    assert theirs.run_id == others.run_id
    assert none is None


def test_what_is_over_the_quota_takes_the_other_lane_within_a_statement_too(connection: Connection) -> None:
    """Three of a tenant at once; those that ask for the lane for backfill, and other tenants', do not count."""
    assert _lanes(connection, _new("1"), _new("2", bulk=True), _new("3"), _new("1", "other")) == "NBNN"
    assert _lanes(connection, _new("4"), _new("5"), _new("6"), _new("2", "other"), _new("7")) == "NBBNB"
    connection.execute("UPDATE runs SET finished_at = now() WHERE tenant_id = 'demo'")
    assert _lanes(connection, *(_new(str(number)) for number in range(8, 13))) == "NNNBB"
    lanes = connection.execute(
        "SELECT r.lane, o.topic FROM runs r JOIN outbox o ON o.aggregateid = r.document_id::text"
    )
    assert set(lanes.fetchall()) == {("normal", "documents"), ("bulk", "documents.bulk")}


def test_whose_keys_are(connection: Connection) -> None:
    mine, theirs, gone = (create_key(connection, tenant) for tenant in ("demo", "other", "demo"))
    run(connection, revoke_key(gone))
    found = run(connection, owners_of([mine, gone, "ozk_unknown", theirs, mine]))
    assert [one and one.tenant_id for one in found] == ["demo", None, None, "other", "demo"]
