"""Schemathesis makes requests of the OpenAPI document, good and bad ones, as one tenant: no 5xx, no answer that the
document does not declare, and nothing of another tenant is shown or changed.

`make test` makes some 120 requests; `make requests` goes on for ten minutes: with each value that is just allowed or
just not, and with what one request has made for the next.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from local_http import Reply, serve
from running_api import Api, running

from offsetzero.api import run_stream
from offsetzero.api.app import create_app
from offsetzero.consumers.groups import catalogue
from offsetzero.consumers.projection import make_tables
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import catalogue as store
from offsetzero.store import generations, index
from offsetzero.store.catalogue import Entry
from offsetzero.store.script import run

MARK = "xyzzy4711"
SECONDS = int(os.environ.get("OZ_TEST_REQUESTS_SECONDS", "0"))
SHORT = ("--phases", "examples,fuzzing", "--max-examples", "3", "--no-shrink")
DOCUMENT = create_app(Settings(database_url="postgresql://nobody@127.0.0.1:1/none")).openapi()
OPERATIONS = sum(len(item) for item in DOCUMENT["paths"].values())
USAGE = {"window_seconds": 60, "keep_seconds": 3600, "partitions": [0], "partition_count": 1, "windows": []}


@pytest.fixture
def api(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """An API in which nothing is missing that would excuse a 503; streams end at once."""
    monkeypatch.setattr(run_stream, "LONGEST_SECONDS", 0.05)
    with (
        serve(lambda _received: Reply(body=json.dumps(USAGE).encode())) as usage,
        psycopg.connect(database_url) as made,
    ):
        make_tables(made, Generation("catalogue"), catalogue.group.projection)  # type: ignore[arg-type]
        made.commit()
        settings = Settings(
            home=tmp_path,
            database_url=database_url,
            api={"burst": 1_000_000, "max_upload_bytes": 10_000},
            usage={"urls": [usage.url]},
            webhooks={"total_timeout": 0.5, "connect_timeout": 0.5},
        )
        with running(settings) as api:
            yield api


@pytest.mark.timeout(400 + 3 * SECONDS)
def test_nothing_that_the_document_allows_or_forbids_breaks_it_or_reaches_anothers(api: Api, tmp_path: Path) -> None:
    known = {"ours": _fill(api, api.client, "ours"), "theirs": _fill(api, api.stranger, MARK), "mark": MARK}
    before = _theirs(api)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{api.client.base_url}/openapi.json"),
            *("--header", f"Authorization: {api.client.headers['Authorization']}"),
            # Some good requests are refused for what no schema says: a key that was used, an object that is not there.
            *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
            *("--generation-database", "none", "--no-color", "--warnings", "off"),
            *(("--max-time", str(SECONDS)) if SECONDS else SHORT),
        ],
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
            "PYTHONPATH": str(Path(__file__).parent),
            "OZ_TEST_KNOWN": json.dumps(known),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300 + 2 * SECONDS,
        check=False,
    )
    print(ended.stdout)
    assert ended.returncode == 0, ended.stderr
    assert f"Tested: {OPERATIONS}" in ended.stdout
    assert _theirs(api) == before


def _fill(api: Api, client: httpx.Client, mark: str) -> list[str]:
    """The ids of a document with its run, of a webhook, and of what is shown besides, all of it with a mark."""
    made = client.post("/documents", files={"file": (f"{mark}.md", f"# {mark}".encode(), "text/markdown")}).json()
    hook = client.post("/webhooks", json={"url": f"https://{mark}.example/"}).json()
    document, tenant = UUID(made["document_id"]), "demo" if client is api.client else "other"
    entry = Entry(document, tenant, 1, "t", 0, 1, f"{mark}.md", "text/markdown", 7, datetime.now(UTC), None)
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        for group, script in {
            "indexer": index.put(document, tenant, f"{mark}.md", 1, [(0, 1, mark)]),
            "catalogue": store.put([entry]),
        }.items():
            run(connection, generations.read(group))
            run(connection, script)
    return [made["document_id"], made["run_id"], hook["id"]]


def _theirs(api: Api) -> list[Any]:
    """All that the other tenant has."""
    mine = "WHERE tenant_id = 'other' ORDER BY 1"
    run_of = "runs r JOIN run_steps s ON s.run_id = r.id JOIN run_events e ON e.run_id = r.id"
    return [
        *(api.rows(f"SELECT * FROM {table} {mine}") for table in ("documents", "webhooks", "idempotency_keys")),
        api.rows(f"SELECT * FROM {run_of} {mine}, s.step, e.number"),
        api.rows("SELECT * FROM outbox WHERE headers ->> 'ce_tenantid' = 'other' ORDER BY id"),
        [path.read_bytes() for path in api.objects() if "/other/" in str(path)],
        *(api.stranger.get(path).json() for path in ("/runs", "/webhooks", "/catalogue", f"/search?q={MARK}")),
    ]
