"""Search by words and meaning together, on the real database, with a real server that computes vectors of words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import vector_server
from desk import Desk
from local_http import Reply
from stored import add_document
from vector_server import DIMENSIONS, Vectors

from offsetzero.api.erasing import Eraser
from offsetzero.consumers.groups import indexer
from offsetzero.consumers.projection import make_tables, open_generation
from offsetzero.errors import ConfigurationError
from offsetzero.generation import Generation
from offsetzero.retry.failures import ProviderDown, Transient
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import comparison, differences, embeddings, search, vectors
from offsetzero.store.database import session
from offsetzero.store.documents import Document
from offsetzero.store.embeddings import Model, Texts
from offsetzero.store.migrate import upgrade
from offsetzero.store.script import run
from offsetzero.store.search import Found, Meaning, Method

WORDS = Model("words", DIMENSIONS)
CAR = "An automobile stood in the garage."
DOCTOR = "The surgeon came at noon."


@pytest.fixture
def server() -> Iterator[Vectors]:
    with vector_server.serving(words=DIMENSIONS, others=DIMENSIONS) as made:
        yield made


@pytest.fixture
def desk(database_url: str, tmp_path: Path, server: Vectors) -> Iterator[Desk]:
    made = Desk(with_endpoint(database_url, tmp_path, server))
    opened(made.settings)
    yield made
    made.pool.close()


def with_endpoint(database_url: str, home: Path, server: Vectors, **more: Any) -> Settings:
    own = {"base_url": server.url, "model": "words", "dimensions": DIMENSIONS, **more}
    return Settings(home=home, database_url=database_url, embeddings=own)


def opened(settings: Settings) -> None:
    """Open the generation that is read, as a member does when it starts."""
    projection = indexer.group.projection
    assert projection is not None
    with session(settings, "test") as connection, connection.transaction():
        open_generation(connection, "indexer", projection, None, projection.by_settings(settings))


def add(desk: Desk, text: str, name: str, tenant: str = "demo") -> UUID:
    event = desk.document(text.encode(), name, "text/plain")
    event = event.model_copy(update={"tenant_id": tenant})
    assert desk.index(event) == []
    return event.document_id


def hybrid(desk: Desk, query: str, tenant: str = "demo", model: Model = WORDS, **how: Any) -> Found:
    meaning = Meaning(model, vector_server.vector(query), 0.2)
    with desk.pool.connection() as connection:
        return run(connection, search.search(tenant, query, **{"limit": 10, **how}, meaning=meaning))


def names(found: Found) -> list[str]:
    return [hit.name for hit in found.hits]


def test_a_document_is_found_by_what_it_means_and_shown_from_its_beginning(desk: Desk) -> None:
    add(desk, CAR + " <It was red.>", "car.txt")
    add(desk, DOCTOR, "doctor.txt")
    found = hybrid(desk, "vehicle")
    assert (names(found), found.method, found.model) == (["car.txt"], Method.HYBRID, WORDS)
    assert found.hits[0].snippet == "An automobile stood in the garage. &lt;It was red.&gt;"
    assert names(hybrid(desk, "physician")) == ["doctor.txt"]
    assert desk.search("vehicle") == []


def test_words_and_meaning_are_fused_by_the_places_in_both(desk: Desk) -> None:
    both = add(desk, "A car. A car. A car.", "both.txt")
    word = add(desk, "car " + "other things fill this text up " * 9, "word.txt")
    near = add(desk, "automobile vehicle", "near.txt")
    found = {hit.document_id: hit.rank for hit in hybrid(desk, "car").hits}
    # By words: both, word. By meaning: near (nothing else in it), both; word is too far away.
    assert found == {both: 1 / 61 + 1 / 62, near: 1 / 61, word: 1 / 62}
    assert list(found) == [both, near, word]
    assert "<mark>car</mark>" in hybrid(desk, "car").hits[0].snippet


def test_ties_are_in_one_order_and_pages_have_each_document_once(desk: Desk) -> None:
    every = sorted(add(desk, "automobile", f"{number}.txt") for number in range(7))
    assert [hit.document_id for hit in hybrid(desk, "car").hits] == every, "as near as each other"
    add(desk, "car", "word.txt")
    pages = [hybrid(desk, "car", limit=3, offset=offset).hits for offset in (0, 3, 6)]
    assert [len(page) for page in pages] == [3, 3, 2]
    assert len({hit.document_id for page in pages for hit in page}) == 8


def test_neighbours_of_other_tenants_are_not_seen(desk: Desk) -> None:
    add(desk, CAR, "mine.txt")
    add(desk, "automobile", "theirs.txt", "other")
    assert names(hybrid(desk, "car")) == ["mine.txt"]
    assert names(hybrid(desk, "car", "other")) == ["theirs.txt"]
    assert names(hybrid(desk, "car", "nobody")) == []


def test_a_query_of_another_model_is_answered_by_words(desk: Desk) -> None:
    add(desk, CAR, "car.txt")
    found = hybrid(desk, "garage", model=Model("others", DIMENSIONS))
    assert (found.method, names(found), found.model) == (Method.WORDS, ["car.txt"], WORDS)


def test_no_text_is_paid_for_twice(desk: Desk, server: Vectors) -> None:
    """A retry, a replay, the same text in another document of the tenant; another tenant's is its own."""
    event = desk.document(CAR.encode(), "car.txt", "text/plain")
    for _ in range(2):
        assert desk.index(event) == []
    second = add(desk, CAR, "again.txt")
    assert server.texts == [CAR]
    add(desk, CAR, "theirs.txt", "other")
    assert server.texts == [CAR, CAR]
    assert desk.rows("SELECT count(*) FROM chunk_vectors") == desk.rows("SELECT count(*) FROM embeddings") == [(3,)]
    assert {hit.document_id for hit in hybrid(desk, "vehicle").hits} == {event.document_id, second}


def test_texts_that_all_tenants_have_are_looked_for_among_those_of_one(desk: Desk) -> None:
    """A form that thousands of tenants upload: whoever came next went through the vectors of all others."""
    script = embeddings.missing(Texts(uuid7(), "demo", WORDS, [embeddings.hash_of(CAR)]))
    next(script)
    statement, parameters = script.send([])
    with desk.pool.connection() as connection:
        connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        plan = connection.execute(f"EXPLAIN {statement}".encode(), parameters).fetchall()
    assert any("Index Cond: ((hash = t.hash) AND (tenant_id = 'demo'::text))" in line for (line,) in plan), plan


def test_a_generation_that_is_made_anew_pays_for_nothing_and_is_the_same(desk: Desk, server: Vectors) -> None:
    projection = indexer.group.projection
    assert projection is not None
    with session(desk.settings, "test") as connection, connection.transaction():
        make_tables(connection, Generation("indexer", 2), projection, projection.by_settings(desk.settings))
    anew = Desk(desk.settings, "indexer_g2")
    for text in (CAR, DOCTOR):
        event = desk.document(text.encode(), "a.txt", "text/plain")
        desk.index(event)
        anew.index(event)
    assert server.texts == [CAR, DOCTOR]
    schemas = "indexer_g1", "indexer_g2"
    with session(desk.settings, "test") as connection:
        tables = [run(connection, comparison.tables(schema)) for schema in schemas]
        found = {one.table: differences.summary(connection, one, *schemas) for one in comparison.compare(*tables)}
    assert found["chunk_vectors"] == (0, 0, 0, 2)
    assert not any(one.differs for one in found.values())
    anew.pool.close()


def test_what_came_before_a_failure_is_kept(desk: Desk, server: Vectors) -> None:
    """Of a long document every batch that was answered; a part that is in it twice is asked about once."""
    desk.settings = with_endpoint(
        desk.settings.database_url.get_secret_value(), desk.settings.home, server, batch_texts=2
    )
    parts = [f"{word} " * 200 for word in ("automobile", "surgeon", "wage", "home", "river")]
    event = desk.document("\n\n".join([*parts, parts[0]]).encode(), "long.txt", "text/plain")
    server.instead = lambda _body: Reply(503) if server.calls == 2 else None
    with pytest.raises(Exception, match="503"):
        desk.index(event)
    assert desk.rows("SELECT count(*) FROM embeddings") == [(2,)]
    assert desk.index(event) == []
    assert len(server.texts) == len(set(server.texts)), "each once"
    assert desk.rows("SELECT count(*) FROM chunk_vectors") == desk.rows("SELECT count(*) FROM chunks")
    sent = desk.rows("SELECT count(*), count(DISTINCT hash) FROM embeddings")
    assert sent == [(len(server.texts), len(server.texts))]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b'{"data": [{"index": 0, "embedding": [1.0, 2.0]}]}', ProviderDown),
        (f'{{"data": [{{"index": 0, "embedding": [{"NaN, " * 63} 1.0]}}]}}'.encode(), Transient),
        (b'{"data": []}', Transient),
    ],
    ids=["two dimensions", "NaN", "none"],
)
def test_an_answer_of_no_use_is_a_failure_and_nothing_of_it_is_kept(
    desk: Desk, server: Vectors, answer: bytes, kind: type[Exception]
) -> None:
    server.instead = lambda _body: Reply(200, answer)
    with pytest.raises(kind):
        add(desk, CAR, "car.txt")
    assert desk.rows("SELECT count(*) FROM embeddings") == desk.rows("SELECT count(*) FROM chunks") == [(0,)]


def test_erasing_a_document_leaves_no_vector_of_it_and_those_of_others(desk: Desk) -> None:
    event = desk.document(CAR.encode(), "car.txt", "text/plain")
    kept = add(desk, CAR, "same.txt")
    with session(desk.settings, "test") as connection:
        add_document(connection, _row(event))
        assert desk.index(event) == []
        assert Eraser(connection, desk.settings).document("demo", event.document_id)
    for table in ("embeddings", "chunk_vectors"):
        assert desk.rows(f"SELECT document_id FROM {table}") == [(kept,)]
    with session(desk.settings, "test") as connection, connection.transaction():
        texts = Texts(event.document_id, "demo", WORDS, [embeddings.hash_of(CAR)])
        assert run(connection, embeddings.missing(texts)) is None, "a late attempt finds that it was erased"
        assert run(connection, embeddings.keep(texts, {texts.hashes[0]: vector_server.vector(CAR)})) is False
    desk.delete(indexer, kept)
    assert desk.rows("SELECT count(*) FROM embeddings") == desk.rows("SELECT count(*) FROM chunk_vectors") == [(0,)]


def test_vectors_that_were_taken_out_between_prepare_and_handler_are_made_again(desk: Desk, server: Vectors) -> None:
    event = desk.document(CAR.encode(), "car.txt", "text/plain")
    ctx = desk.context()
    ctx.prepared = indexer.extract(event, ctx)
    desk.rows("DELETE FROM embeddings RETURNING 1")
    with pytest.raises(Transient, match="vectors-gone"), desk.pool.connection() as ctx.connection:
        indexer.add(event, ctx)
    assert desk.rows("SELECT count(*) FROM chunks") == [(0,)]
    assert desk.index(event) == []


def test_a_generation_has_one_model_and_another_setting_is_refused(
    desk: Desk, database_url: str, tmp_path: Path, server: Vectors
) -> None:
    opened(desk.settings)  # the same once more
    for change in ({"model": "others"}, {"dimensions": 3}, {"base_url": ""}):
        with pytest.raises(ConfigurationError) as caught:
            opened(with_endpoint(database_url, tmp_path, server, **change))
        said = str(caught.value)
        assert "`offsetzero rebuild indexer`" in said
        assert "OFFSETZERO_EMBEDDINGS__" in said
        assert '{"model": "words", "dimensions": 64}' in said


def test_an_index_with_documents_gets_no_vectors_beside_them(
    database_url: str, tmp_path: Path, server: Vectors
) -> None:
    without = Desk(Settings(home=tmp_path, database_url=database_url))
    opened(without.settings)
    add(without, CAR, "car.txt")
    with pytest.raises(ConfigurationError, match="generation 1 was made without"):
        opened(with_endpoint(database_url, tmp_path, server))
    assert [hit.name for hit in without.search("garage")] == ["car.txt"]
    assert server.calls == 0
    without.pool.close()


def test_without_pgvector_all_works_but_the_endpoint_and_the_error_says_what_to_do(
    database_url: str, tmp_path: Path, server: Vectors
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("DROP EXTENSION vector")
    without = Desk(Settings(home=tmp_path, database_url=database_url))
    opened(without.settings)
    opened_with = with_endpoint(database_url, tmp_path, server)
    with pytest.raises(ConfigurationError, match="a superuser run there: CREATE EXTENSION vector"):
        opened(opened_with)
    add(without, CAR, "car.txt")
    assert [hit.name for hit in without.search("garage")] == ["car.txt"]
    without.delete(indexer, without.rows("SELECT document_id FROM indexed_documents")[0][0])
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    old = pytest.raises(ConfigurationError, match=r"has 0\.7\.4.*ALTER EXTENSION vector UPDATE")
    with psycopg.connect(database_url) as connection, old:
        run(connection, vectors.require())
    without.pool.close()


def test_a_role_that_may_not_make_extensions_migrates_all_the_same(postgres_url: str, tmp_path: Path) -> None:
    role = f"r{uuid7().hex[-12:]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
        connection.execute(f"CREATE DATABASE {role} OWNER {role}")
    url = postgres_url.replace(postgres_url.split("//")[1].split("@")[0], f"{role}:secret").rsplit("/", 1)[0]
    try:
        upgrade(f"{url}/{role}")
        with psycopg.connect(f"{url}/{role}") as connection:
            assert connection.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchall() == []
            with pytest.raises(ConfigurationError, match="CREATE EXTENSION vector"):
                run(connection, vectors.require())
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {role} WITH (FORCE)")
            connection.execute(f"DROP ROLE {role}")


def _row(event: DocumentUploaded) -> Document:
    return Document(
        id=event.document_id,
        tenant_id=event.tenant_id,
        name=event.name,
        content_type=event.content_type,
        uri=event.uri,
        size_bytes=event.size_bytes,
        sha256=event.sha256,
        version=1,
        uploaded_at=event.uploaded_at,
    )
