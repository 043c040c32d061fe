"""The lane of an event is chosen in the transaction that writes it: asked for, over a quota, or kept."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from running_api import Api, running

from offsetzero import metrics
from offsetzero.producers import runs as beginning
from offsetzero.settings import Settings
from offsetzero.store import documents, run_steps
from offsetzero.store.script import run
from support import wait_until

MOST = 3
RACES = 25
STEPS = ("indexer", "summariser")


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    settings = Settings(home=tmp_path, database_url=database_url, api={"tenant_in_flight": MOST})
    with running(settings) as api:
        yield api


def upload(api: Api, text: str, **query: str) -> dict[str, str]:
    answer = api.client.post("/documents", files={"file": ("a.txt", text.encode(), "text/plain")}, params=query)
    assert answer.status_code == 202, answer.text
    body: dict[str, str] = answer.json()
    return body


def reindex(api: Api, document_id: str, **query: str) -> dict[str, str]:
    headers = {"Idempotency-Key": str(uuid4())}
    answer = api.client.post(f"/documents/{document_id}/reindex", headers=headers, params=query)
    assert answer.status_code == 202, answer.text
    body: dict[str, str] = answer.json()
    return body


def end(api: Api, run_id: str, *steps: str) -> None:
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        for step in steps or STEPS:
            run(connection, run_steps.succeed_step(UUID(run_id), step))


def topics(api: Api, document_id: str) -> list[str]:
    """Where the events of a document go, in their order."""
    query = "SELECT topic FROM outbox WHERE aggregateid = %s ORDER BY number"
    return [topic for (topic,) in api.rows(query, document_id)]


def chosen(lane: str, why: str) -> float:
    return float(metrics.LANES.labels(lane, why)._value.get())


def test_a_priority_is_asked_for_and_shown(api: Api) -> None:
    first, second = upload(api, "urgent"), upload(api, "can wait", priority="bulk")
    assert topics(api, first["document_id"]) == ["documents"]
    assert topics(api, second["document_id"]) == ["documents.bulk"]
    lanes = [api.client.get(f"/runs/{one['run_id']}").json()["lane"] for one in (first, second)]
    assert lanes == ["normal", "bulk"]
    refused = api.client.post("/documents", files={"file": ("a.txt", b"x", "text/plain")}, params={"priority": "high"})
    assert refused.status_code == 422
    assert "query.priority" in refused.json()["detail"]


def test_a_tenant_over_its_quota_is_diverted_and_comes_back(api: Api) -> None:
    before = chosen("bulk", "quota")
    bulk = [upload(api, f"backfill {number}", priority="bulk") for number in range(MOST + 1)]  # does not count
    within = [upload(api, f"a {number}") for number in range(MOST)]
    beyond = upload(api, "one too many")
    lanes = [topics(api, one["document_id"]) for one in (*bulk, *within, beyond)]
    assert lanes == [["documents.bulk"]] * (MOST + 1) + [["documents"]] * MOST + [["documents.bulk"]]
    wait_until(lambda: chosen("bulk", "quota") == before + 1, what="its count, which comes after the answer")
    theirs = api.stranger.post("/documents", files={"file": ("a.txt", b"of another tenant", "text/plain")}).json()
    assert topics(api, theirs["document_id"]) == ["documents"]
    end(api, within[0]["run_id"], "indexer")
    assert topics(api, upload(api, "it has not ended yet")["document_id"]) == ["documents.bulk"]
    end(api, within[0]["run_id"], "summariser")
    assert topics(api, upload(api, "there is room")["document_id"]) == ["documents"]


def test_a_document_keeps_its_lane_until_its_event_is_handled(api: Api) -> None:
    made = upload(api, "a", priority="bulk")
    second = reindex(api, made["document_id"])
    end(api, made["run_id"])  # that of the run before says nothing about the last event
    reindex(api, made["document_id"])
    newest = reindex(api, made["document_id"])
    end(api, newest["run_id"], "indexer")
    reindexed = reindex(api, made["document_id"])
    assert topics(api, made["document_id"]) == ["documents.bulk"] * 5
    end(api, reindexed["run_id"])
    after = reindex(api, made["document_id"])
    reindex(api, made["document_id"], priority="bulk")
    assert topics(api, made["document_id"])[5:] == ["documents", "documents"]
    assert {second["status"], after["status"]} == {"queued"}


def test_a_cancelled_run_keeps_its_lane_for_its_event_is_still_in_the_log(api: Api) -> None:
    made = upload(api, "a", priority="bulk")
    assert api.client.post(f"/runs/{made['run_id']}/cancel").status_code == 200
    again = upload(api, "a")
    assert again["run_id"] != made["run_id"]
    assert topics(api, made["document_id"]) == ["documents.bulk"] * 2


def test_a_deletion_takes_the_lane_of_its_upload_however_that_ended(api: Api) -> None:
    """A group that nobody waits for may be behind."""
    waits, handled = (upload(api, text, priority="bulk") for text in ("waits", "is handled"))
    end(api, handled["run_id"])
    for one in (waits, handled):
        assert api.client.delete(f"/documents/{one['document_id']}").status_code == 204
        assert topics(api, one["document_id"]) == ["documents.bulk"] * 2
    urgent = upload(api, "urgent")
    api.client.delete(f"/documents/{urgent['document_id']}")
    assert topics(api, urgent["document_id"]) == ["documents"] * 2


def test_a_lane_is_left_only_once_the_groups_have_committed_what_was_in_it(api: Api) -> None:
    """Of many races between the last step's end and the next event: none is in another lane before that end."""
    made = [upload(api, f"race {number}", priority="bulk") for number in range(RACES)]
    for one in made:
        end(api, one["run_id"], "indexer")
    dice, start = random.Random(7), Barrier(2, timeout=60)
    ahead = [dice.randrange(-4, 5) for _ in made]  # statements that one of them is late by
    url = api.settings.database_url.get_secret_value()
    ample = api.settings.model_copy(update={"api": api.settings.api.model_copy(update={"tenant_in_flight": 1000})})

    def finish() -> None:
        with psycopg.connect(url, autocommit=True) as mine:
            for one, late in zip(made, ahead, strict=True):
                start.wait()
                for _ in range(late):
                    mine.execute("SELECT 1")
                run(mine, run_steps.succeed_step(UUID(one["run_id"]), "summariser"))

    def renew() -> None:
        with psycopg.connect(url, autocommit=True) as mine:
            for one, late in zip(made, ahead, strict=True):
                start.wait()
                for _ in range(-late):
                    mine.execute("SELECT 1")
                with mine.transaction():
                    run(mine, documents.lock("demo", UUID(one["document_id"])))
                    document = run(mine, documents.find("demo", UUID(one["document_id"])))
                    assert document is not None
                    run(mine, beginning.begin_again(document, ample))

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(finish), threads.submit(renew)]:
            done.result()
    left = api.rows(
        "SELECT b.lane, b.created_at > s.finished_at FROM runs a JOIN runs b ON b.document_id = a.document_id "
        "AND b.id <> a.id AND b.created_at > a.created_at JOIN run_steps s ON s.run_id = a.id AND s.step = 'summariser'"
    )
    assert len(left) == RACES
    assert all(is_after for lane, is_after in left if lane == "normal")


def test_runs_of_many_uploads_at_once_pass_the_quota_by_no_more_than_are_at_work(api: Api) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: upload(api, f"at once {number}"), range(40)))
    normal: Any = sum(topics(api, one["document_id"]) == ["documents"] for one in made)
    assert MOST <= normal <= MOST + 8
