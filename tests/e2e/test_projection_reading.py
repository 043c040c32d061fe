"""Readers of a projection see one generation, whatever happens to the pointer meanwhile."""

import threading
from collections.abc import Iterator

import psycopg
import pytest
from running_api import Api, running

from offsetzero.consumers.projection import Projection, make_tables
from offsetzero.generation import Generation
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store import generations, index
from offsetzero.store.script import run

DOCUMENTS = 20


@pytest.fixture
def api(settings: Settings) -> Iterator[Api]:
    with running(settings) as made:
        yield made


def test_a_search_while_the_pointer_moves_gives_the_old_or_the_new_and_never_both(api: Api) -> None:
    url = api.settings.database_url.get_secret_value()
    ids = [uuid7() for _ in range(DOCUMENTS)]

    def fill(connection: psycopg.Connection, name: str) -> None:
        run(connection, generations.read("indexer"))
        for document_id in ids:
            run(connection, index.put(document_id, "demo", name, 1, [(0, 1, f"a word of the {name}")]))

    def point_at(connection: psycopg.Connection, number: int) -> None:
        connection.execute(
            "UPDATE group_pointers SET generation = %s, fence = fence + 1 WHERE group_name = 'indexer'", (number,)
        )

    with psycopg.connect(url) as connection:
        fill(connection, "old")
    with psycopg.connect(url) as connection:
        make_tables(connection, Generation("indexer", 2), Projection(index.TABLES))
        connection.execute("RESET search_path")
        point_at(connection, 2)
        fill(connection, "new")
    over = threading.Event()

    def move() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            number = 1
            while not over.is_set():
                point_at(connection, number)
                number = 3 - number

    mover = threading.Thread(target=move)
    mover.start()
    try:
        seen = set()
        for _ in range(5000):
            hits = api.client.get("/search", params={"q": "word", "limit": 50}).json()["hits"]
            assert len(hits) == DOCUMENTS
            names = {hit["name"] for hit in hits}
            assert len(names) == 1, "a mix of two generations"
            seen |= names
            if len(seen) == 2 and _ >= 100:
                break
        assert seen == {"old", "new"}
    finally:
        over.set()
        mover.join(60)
