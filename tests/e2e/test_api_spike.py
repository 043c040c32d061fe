"""More uploads at once than the API has connections to the database: each waits for its turn, and is taken in.

`make spike` measures how long that takes.
"""

import asyncio
from pathlib import Path

import httpx
import psycopg
from running_api import serving

from offsetzero.settings import Settings
from offsetzero.store.tenants import create_key

UPLOADS = 60


def test_uploads_that_come_all_at_once_are_all_taken_in(database_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=database_url, api={"pool_size": 2, "tenant_in_flight": 20})
    with psycopg.connect(database_url) as connection:
        key = create_key(connection, "demo")

    async def send(url: str) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=UPLOADS)
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=60) as client:
            sent = [
                client.post("/documents", files={"file": ("a.txt", f"document {number}".encode(), "text/plain")})
                for number in range(UPLOADS)
            ]
            return await asyncio.gather(*sent)

    with serving(settings) as url:
        answers = asyncio.run(send(url))
    assert {answer.status_code for answer in answers} == {202}, [answer.text for answer in answers][:3]
    with psycopg.connect(database_url) as connection:
        found = dict(connection.execute("SELECT lane, count(*) FROM runs GROUP BY lane").fetchall())
        topics = dict(connection.execute("SELECT topic, count(*) FROM outbox GROUP BY topic").fetchall())
    assert sum(found.values()) == UPLOADS
    assert 20 <= found["normal"] <= 40, "a statement keeps to the quota, and does not see what the one beside it writes"
    assert topics == {"documents": found["normal"], "documents.bulk": found["bulk"]}
