"""`GET /catalogue`: what a tenant has, as of one generation."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from running_api import Api, running

from offsetzero.consumers.groups.catalogue import group
from offsetzero.consumers.projection import make_tables
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store.catalogue import Entry, put
from offsetzero.store.script import run

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with running(Settings(home=tmp_path, database_url=database_url)) as api:
        yield api


def fill(api: Api, generation: int, *numbers: int, tenant: str = "demo") -> None:
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        make_tables(connection, Generation("catalogue", generation), group.projection)  # type: ignore[arg-type]
        run(
            connection,
            put(
                [
                    Entry(UUID(int=one), tenant, 1, "t", 0, one, f"{one}.pdf", "application/pdf", 7, AT, None)
                    for one in numbers
                ]
            ),
        )


def test_before_the_group_has_run_there_is_no_catalogue(api: Api) -> None:
    answer = api.client.get("/catalogue")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:offsetzero:problem:catalogue-unavailable")


def test_a_tenant_sees_counts_and_pages_of_its_own_documents(api: Api) -> None:
    fill(api, 1, 1, 2, 3)
    first = api.client.get("/catalogue", params={"limit": 2}).json()
    assert (first["count"], first["size_bytes"], first["next"]) == (3, 21, str(UUID(int=2)))
    assert first["documents"][0] == {
        "document_id": str(UUID(int=3)),
        "name": "3.pdf",
        "content_type": "application/pdf",
        "size_bytes": 7,
        "uploaded_at": "2026-01-31T12:00:00Z",
    }
    rest = api.client.get("/catalogue", params={"limit": 2, "before": first["next"]}).json()
    assert ([one["name"] for one in rest["documents"]], rest["next"]) == (["1.pdf"], None)
    nothing = {"count": 0, "size_bytes": 0, "documents": [], "next": None}
    assert api.stranger.get("/catalogue").json() == nothing


def test_it_follows_the_pointer(api: Api) -> None:
    fill(api, 1, 1)
    fill(api, 2, 1, 2)
    assert api.client.get("/catalogue").json()["count"] == 1
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        connection.execute("UPDATE group_pointers SET generation = 2, fence = fence + 1 WHERE group_name = 'catalogue'")
    assert api.client.get("/catalogue").json()["count"] == 2
