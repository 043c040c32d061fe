"""A rebuild with another model of vectors: the command, and what becomes of members with the settings of before."""

from collections.abc import Iterator
from functools import partial

import psycopg
import pytest
import vector_server
from commands import CommandsHere
from desk import Desk
from kafka.rebuilding import Threads, following
from vector_server import Vectors

from offsetzero import Publisher
from offsetzero.cli import rebuild_members
from offsetzero.errors import ConfigurationError
from offsetzero.settings import EmbeddingSettings, Settings
from support import wait_until

DIMENSIONS = {"old": 64, "new": 96}

pytestmark = pytest.mark.usefixtures("topics")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With fewer partitions: a generation has four topics of as many."""
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 2})})


@pytest.fixture
def server() -> Iterator[Vectors]:
    with vector_server.serving(**DIMENSIONS) as made:
        yield made


def test_a_rebuild_makes_the_next_generation_with_the_new_model_and_its_index(
    settings: Settings, database: psycopg.Connection, server: Vectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (
        settings.model_copy(update={"embeddings": EmbeddingSettings(base_url=server.url, model=model, dimensions=size)})
        for model, size in DIMENSIONS.items()
    )
    desk = Desk(old)
    with Publisher(settings) as publisher:
        for word in ("automobile", "surgeon"):
            publisher.publish(desk.document(word.encode(), f"{word}.txt", "text/plain"))
    desk.pool.close()
    command = CommandsHere(settings, monkeypatch, "none")
    monkeypatch.setattr(rebuild_members, "Members", partial(Threads, new))
    refused = pytest.raises(ConfigurationError, match="generation 2 was made with")  # the member, once it has moved
    with refused, following(old, "indexer") as member:
        wait_until(lambda: sizes(database, 1) == [64, 64], 60, what="two documents with vectors of the old model")
        for name in ("base_url", "model", "dimensions"):
            monkeypatch.setenv(f"OFFSETZERO_EMBEDDINGS__{name.upper()}", str(getattr(new.embeddings, name)))
        said = command("rebuild", "indexer", "--why", "a better model", "--processes", "1", "--yes").stderr
        assert "Made of all that generation 2 has read: ix_chunk_vectors_embedding" in said
        assert "settings of before end with an error: start indexer" in said
        member.join(60)
    assert sizes(database, 2) == [96, 96]
    assert sorted(server.texts) == ["automobile"] * 2 + ["surgeon"] * 2, "each once of each model"
    index = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('indexer_g2.ix_chunk_vectors_embedding')"
    assert database.execute(index.encode()).fetchall() == [(True,)]
    kept = b"SELECT model, count(*) FROM embeddings GROUP BY model ORDER BY model"
    assert database.execute(kept).fetchall() == [("new", 2), ("old", 2)]
    command("rebuild", "indexer", "--prune", "--yes")
    assert database.execute(kept).fetchall() == [("new", 2)], "of the model of a generation that is no more"


def sizes(database: psycopg.Connection, generation: int) -> list[int]:
    if database.execute("SELECT to_regclass(%s)", (f"indexer_g{generation}.chunk_vectors",)).fetchone() == (None,):
        return []
    query = f"SELECT vector_dims(embedding) FROM indexer_g{generation}.chunk_vectors"
    return [row[0] for row in database.execute(query.encode()).fetchall()]
