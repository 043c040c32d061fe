"""Schedules over HTTP: a tenant's own, and nothing of another's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commands import CommandsHere
from running_api import Api, running

from offsetzero.producers.schedules import firing
from offsetzero.schemas.event import Event
from offsetzero.settings import Settings
from offsetzero.store.script import run
from offsetzero.topics.catalogue import Topic, declared_for

NIGHTLY = {"name": "nightly", "kind": "reindex", "cron": "30 2  * * *", "zone": "Europe/Berlin"}


class KettleBoiled(Event, type="kettle.boiled", key="kettle"):
    """An event of the service."""

    kettle: str
    tenant_id: str = ""


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with (
        declared_for(Topic("kettles", event_types=("kettle.boiled",))),
        running(Settings(home=tmp_path, database_url=database_url)) as api,
    ):
        yield api


def _add(api: Api, key: str = "", **asked: Any) -> dict[str, Any]:
    answer = api.client.post("/schedules", json={**NIGHTLY, **asked}, headers={"Idempotency-Key": key} if key else {})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_schedule_is_added_paused_resumed_run_and_ended_and_who_did_it_is_kept(api: Api) -> None:
    made = _add(api, "k")
    assert _add(api, "k") == made, "the same answer to the same request"
    assert (made["cron"], made["paused_at"], made["error"]) == ("30 2 * * *", None, None)
    assert made["next_at"].endswith(("T00:30:00Z", "T01:30:00Z"))
    path = f"/schedules/{made['id']}"
    assert api.client.get(path).json() == made
    assert {api.client.patch(path, json={"paused": one}).status_code for one in (0, 1, "yes", None)} == {422}
    paused = api.client.patch(path, json={"paused": True}).json()
    assert paused["paused_at"] is not None
    assert paused["next_at"] is None
    assert api.client.get(path).json() == paused
    resumed = api.client.patch(path, json={"paused": False}).json()
    assert (resumed["paused_at"], resumed["next_at"]) == (None, made["next_at"])
    ran = [api.client.post(f"{path}/run", headers={"Idempotency-Key": "now"}) for _ in range(2)]
    assert [answer.status_code for answer in ran] == [202, 202]
    assert ran[0].json() == ran[1].json()
    (key_id,) = api.rows("SELECT left(encode(key_hash, 'hex'), 12) FROM api_keys WHERE tenant_id = 'demo'")
    assert ran[0].json()["by_hand"] == f"key {key_id[0]}"
    assert api.client.get(f"{path}/fires").json() == {"fires": [ran[0].json()], "next": None}
    assert api.client.delete(path).status_code == 204
    assert api.client.get(path).status_code == 404
    audit = api.rows("SELECT action, who FROM schedule_actions ORDER BY id")
    assert audit == [(one, f"key {key_id[0]}") for one in ("added", "paused", "resumed", "run", "removed")]


def test_pages_follow_each_other_and_end(api: Api) -> None:
    made = [_add(api, name=f"s{number}")["id"] for number in range(5)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = api.client.get("/schedules", params=query).json()
        seen += [one["id"] for one in page["schedules"]]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert seen == made[::-1]


def test_a_tenant_is_told_what_it_can_mend_and_nobody_of_the_operators(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/schedules/{_add(api, kind='report')['id']}"
    CommandsHere(api.settings, monkeypatch)("schedules", "run", "nightly", "--who", "ann@db-host-3")
    assert [fire["by_hand"] for fire in api.client.get(f"{path}/fires").json()["fires"]] == ["operator"]
    for error, told in [
        ("ConfigurationError: zone 'Mars': no such time zone", "zone 'Mars': no such time zone"),
        ('CheckViolation: relation "outbox" of host db-3', "it could not be done; the log of the scheduler says why"),
    ]:
        api.change("UPDATE schedules SET error = %s", error)
        assert api.client.get(path).json()["error"] == told
        assert api.client.get("/schedules").json()["schedules"][0]["error"] == told


def test_it_is_run_by_hand_after_the_clock_was_set_back_and_what_it_did_is_read_in_pages(api: Api) -> None:
    """There are fires of later times then, more than a page of them."""
    path = f"/schedules/{_add(api, kind='report')['id']}"
    api.change(
        "INSERT INTO schedule_fires (id, schedule_id, fire_at, ended_at) SELECT gen_random_uuid(), s.id, "
        "now() + make_interval(hours => hour), now() FROM schedules s, generate_series(1, 6) AS hour"
    )
    ran = api.client.post(f"{path}/run", headers={"Idempotency-Key": "now"})
    assert ran.status_code == 202, ran.text
    first = api.client.get(f"{path}/fires", params={"limit": 4}).json()
    rest = api.client.get(f"{path}/fires", params={"limit": 4, "before": first["next"]}).json()
    times = [fire["fire_at"] for fire in (*first["fires"], *rest["fires"])]
    assert (len(times), rest["next"], rest["fires"][-1]) == (7, None, ran.json())
    assert times == sorted(times, reverse=True)


def test_nobody_reads_or_changes_anothers(api: Api) -> None:
    path = f"/schedules/{_add(api)['id']}"
    run_it = {"Idempotency-Key": "x"}
    answers = [
        api.stranger.get(path),
        api.stranger.patch(path, json={"paused": True}),
        api.stranger.post(f"{path}/run", headers=run_it),
        api.stranger.get(f"{path}/fires"),
        api.stranger.delete(path),
    ]
    assert [answer.status_code for answer in answers] == [404] * 5
    assert api.stranger.get("/schedules").json()["schedules"] == []
    assert api.stranger.post("/schedules", json=NIGHTLY).status_code == 201, "names are the tenant's own"
    assert api.rows("SELECT count(*) FROM schedule_fires") == [(0,)]


def test_there_is_a_limit_and_a_name_is_taken_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offsetzero.api.routes.schedules.MOST", 2)
    _add(api)
    again = api.client.post("/schedules", json=NIGHTLY)
    assert (again.status_code, again.json()["type"]) == (409, "urn:offsetzero:problem:name-taken")
    _add(api, name="second")
    third = api.client.post("/schedules", json={**NIGHTLY, "name": "third"})
    assert (third.status_code, third.json()["type"]) == (409, "urn:offsetzero:problem:too-many-schedules")


def test_a_tenant_publishes_the_services_own_events_as_its_own(api: Api) -> None:
    asked = {**NIGHTLY, "kind": "event", "event_type": "kettle.boiled", "payload": {"kettle": "k1"}}
    made = _add(api, **asked)
    with psycopg.connect(api.settings.database_url.get_secret_value(), autocommit=True) as connection:
        connection.execute("UPDATE schedules SET done_until = now() - interval '25 h', next_at = now()")
        run(connection, firing.act(made["id"], api.settings))
    (row,) = api.rows(
        "SELECT aggregateid, type, convert_from(payload, 'UTF8')::jsonb, headers->>'ce_tenantid' FROM outbox"
    )
    assert row == ("k1", "kettle.boiled", {"kettle": "k1"}, "demo")
    for wrong, said in [
        ({"kettle": "k", "tenant_id": "other"}, "tenant_id is 'other', and the schedule is one of 'demo'"),
        ({"kettle": "\0"}, "no NUL"),
        ({"kettle": 1}, "kettle"),
        ({}, "kettle"),
    ]:
        answer = api.client.post("/schedules", json={**asked, "name": "wrong", "payload": wrong})
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:offsetzero:problem:schedule-refused"), wrong
        assert said in answer.json()["detail"]
    odd = '{"name": "odd", "kind": "event", "cron": "@", "event_type": "kettle.boiled", "payload": {"kettle": %s}}'
    for value in (r'"\ud800"', "NaN"):
        answer = api.client.post("/schedules", content=odd % value, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), answer.text


def test_reports_are_read_by_their_tenant(api: Api) -> None:
    api.client.post("/documents", files={"file": ("a.md", b"some words", "text/markdown")})
    path = f"/schedules/{_add(api, kind='report')['id']}/run"
    for number in range(3):
        assert api.client.post(path, headers={"Idempotency-Key": str(number)}).status_code == 202
    first = api.client.get("/reports", params={"limit": 2}).json()
    rest = api.client.get("/reports", params={"limit": 2, "before": first["next"]}).json()
    assert [len(first["reports"]), len(rest["reports"]), rest["next"]] == [2, 1, None]
    counted = first["reports"][0]
    assert (counted["documents"], counted["size_bytes"], counted["queued"], counted["failed"]) == (1, 10, 1, 0)
    assert api.stranger.get("/reports").json() == {"reports": [], "next": None}
