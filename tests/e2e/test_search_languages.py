"""Search knows the language of each document: its words in any form, and every word as it is written."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from desk import Desk

from offsetzero.settings import Settings
from offsetzero.store import generations, index, search
from offsetzero.store.migrate import engine
from offsetzero.store.script import run

TEXTS = {
    "english": "The companies were publishing their reports; what is an event? To be or not to be.",
    "german": "Die Häuser und die Verträge wurden gestern von den Bürgern geprüft.",
    "french": "Les chevaux mangeaient dans les prés pendant que nous écrivions des lettres.",
    "russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "simple": "東京は日本の首都です。人口は約1400万人です。",
}


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(Settings(home=tmp_path, database_url=database_url))
    for language, text in TEXTS.items():
        assert made.index(made.document(text.encode(), f"{language}.txt", "text/plain")) == []
    yield made
    made.pool.close()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("company publishes report", "english"),  # other forms of all three words
        ("COMPANIES", "english"),
        ("the", "english"),  # a word that says little is a word
        ('"to be or not to be"', "english"),
        ("what is the report", "english"),
        ("publishing -letters", "english"),
        ("Vertrag Haus", "german"),
        ("geprüft", "german"),
        ("cheval mange", "french"),
        ("écrivions lettre", "french"),
        ("человек право", None),
        ("свободный права", "russian"),
        ("東京", "simple"),
        ("首都 人口", "simple"),
        ('"日本の首都"', "simple"),
        ("京日", None),
        ("report -company", None),  # any form of an excluded word excludes
        ('"the event"', None),
    ],
)
def test_a_query_finds_the_forms_of_words_in_the_documents_language(desk: Desk, query: str, found: str | None) -> None:
    assert [hit.name for hit in desk.search(query)] == ([f"{found}.txt"] if found else [])


def test_the_language_is_stored_with_document_and_chunks(desk: Desk) -> None:
    assert set(desk.rows("SELECT name, language FROM indexed_documents")) == {(f"{name}.txt", name) for name in TEXTS}
    assert desk.rows("SELECT DISTINCT d.language FROM indexed_documents d JOIN chunks c USING (document_id, language)")


def test_a_query_reaches_documents_of_several_languages(desk: Desk) -> None:
    names = {hit.name for hit in desk.search("company or Vertrag or 東京")}
    assert names == {"english.txt", "german.txt", "simple.txt"}


@pytest.mark.parametrize(
    ("text", "query", "snippet"),
    [
        ("He said “windows” – and left.", "windows", "He said “<mark>windows</mark>” – and left"),
        (
            "Costs: either/or, C:\\temp\\file.",
            "or either",
            "Costs: <mark>either</mark>/<mark>or</mark>, C:\\temp\\file",
        ),
        ("A List<String> of them.", "string", "A List&lt;<mark>String</mark>&gt; of them"),
        ("人口は東京です。", "東京", "人口は<mark>東京</mark>です"),
        ("naïve «guillemets» end", "guillemets", "naïve «<mark>guillemets</mark>» end"),
    ],
)
def test_marks_are_no_part_of_words_and_are_shown(desk: Desk, text: str, query: str, snippet: str) -> None:
    """tika testTXT_win-1252.txt: in a database with the locale C a quotation mark counts as a letter."""
    desk.index(desk.document(text.encode(), "marks.txt", "text/plain"))
    assert {hit.name: hit.snippet for hit in desk.search(query)}["marks.txt"] == snippet


def test_an_upload_indexed_again_changes_its_language(desk: Desk) -> None:
    ((document_id,),) = desk.rows("SELECT document_id FROM indexed_documents WHERE language = 'german'")
    with desk.pool.connection() as connection:
        run(connection, index.put(document_id, "demo", "now.txt", 1, [(0, 1, "Reports were published.")], "english"))
    assert "now.txt" in [hit.name for hit in desk.search("report")]
    assert desk.rows("SELECT count(*) FROM indexed_documents WHERE language = 'german'") == [(0,)]


def test_a_database_of_before_is_searched_as_it_was(postgres_url: str, tmp_path: Path) -> None:
    """Chunks that migration 0001's column made stay as they are, under `simple`."""
    from alembic import command
    from alembic.config import Config

    import offsetzero.store.migrate as migrate

    name = "before_languages"
    url = postgres_url.rsplit("/", 1)[0] + "/" + name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name}")
    try:
        config = Config()
        config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
        with engine(url).begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "0001")
        with psycopg.connect(url) as old:
            old.execute(
                "INSERT INTO indexed_documents (document_id, tenant_id, name, pages) "
                "VALUES ('00000000-0000-0000-0000-000000000001', 'demo', 'old.txt', 1)"
            )
            old.execute(
                "INSERT INTO chunks (document_id, number, tenant_id, page, text) "
                "VALUES ('00000000-0000-0000-0000-000000000001', 0, 'demo', 1, 'Old <b>reports</b> here')"
            )
        migrate.upgrade(url)
        with psycopg.connect(url) as new:
            run(new, generations.read("indexer"))
            assert [hit.name for hit in run(new, search.search("demo", "reports", limit=5)).hits] == ["old.txt"]
            assert run(new, search.search("demo", "report", limit=5)).hits == []
        with engine(url).begin() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0001")
            command.upgrade(config, "head")
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
