"""Subscriptions over HTTP: changing them, trying them, rotating their secrets, and the log of what was sent."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from local_http import Received, Reply, serve
from running_api import Api, running
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from offsetzero.settings import Settings
from offsetzero.store import webhook_deliveries, webhooks
from offsetzero.store.script import run


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    settings = Settings(home=tmp_path, database_url=database_url, webhooks={"allow_private_targets": True})
    with running(settings) as api:
        yield api


def _made(api: Api, url: str) -> dict[str, Any]:
    made: dict[str, Any] = api.client.post("/webhooks", json={"url": url}).json()
    return made


def _opens(secret: str, received: Received) -> bool:
    try:
        Webhook(secret).verify(received.body.decode(), dict(received.headers))
    except WebhookVerificationError:
        return False
    return True


def test_a_subscription_is_tried_when_its_tenant_says_so(api: Api) -> None:
    answers = iter([Reply(204), Reply(500)])
    with serve(lambda _received: next(answers)) as server:
        made = _made(api, server.url)
        path = f"/webhooks/{made['id']}"
        first, second = (api.client.post(f"{path}/test").json() for _ in range(2))
        assert api.stranger.post(f"{path}/test").status_code == 404
    assert (first["delivered"], first["status_code"], first["error"]) == (True, 204, None)
    assert (second["delivered"], second["status_code"], second["error"]) == (False, 500, "the receiver answered 500")
    assert [received.headers["webhook-id"] for received in server.received] == [
        first["message_id"],
        second["message_id"],
    ]
    assert first["message_id"] != second["message_id"]
    assert all(_opens(made["secret"], received) for received in server.received)
    body = json.loads(server.received[0].body)
    assert (body["type"], body["data"]) == ("webhook.test", {"webhook_id": made["id"]})
    assert api.client.get(f"{path}/deliveries").json() == {"attempts": [second, first], "next": None}
    assert api.client.get(path).json()["last_delivery"]["message_id"] == second["message_id"]


def test_a_tenant_does_not_flood_a_receiver_with_tries(api: Api) -> None:
    with serve() as server, ThreadPoolExecutor(30) as threads:
        path = f"/webhooks/{_made(api, server.url)['id']}/test"
        answers = list(threads.map(lambda _: api.client.post(path, timeout=30), range(30)))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert len(server.received) == len(answers) - len(refused) >= 10


def test_two_secrets_are_live_while_one_is_rotated(api: Api) -> None:
    with serve() as server:
        made = _made(api, server.url)
        path = f"/webhooks/{made['id']}"

        def signed_with() -> list[bool]:
            assert api.client.post(f"{path}/test").json()["delivered"]
            return [_opens(secret, server.received[-1]) for secret in secrets]

        secrets = [made["secret"]]
        assert made["previous_secret_until"] is None
        assert signed_with() == [True]
        for live in ([True, True], [False, True, True]):
            rotated = api.client.post(f"{path}/secret").json()
            assert rotated["previous_secret_until"] > rotated["created_at"]
            secrets.append(rotated["secret"])
            assert signed_with() == live
        assert "secret" not in api.client.get(path).json()
        odd = [api.client.post(f"{path}/secret", json={"keep_seconds": one}) for one in ("0", True, -1, 1e300)]
        assert [answer.status_code for answer in odd] == [422] * 4
        at_once = api.client.post(f"{path}/secret", json={"keep_seconds": 0}).json()
        secrets.append(at_once["secret"])
        assert at_once["previous_secret_until"] is None
        assert signed_with() == [False, False, False, True]
        secrets.append(api.client.post(f"{path}/secret", json={"keep_seconds": 60}).json()["secret"])
        with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
            connection.execute("UPDATE webhooks SET previous_until = now() - interval '1 second'")
            run(connection, webhooks.forget_secrets())
        assert api.rows("SELECT previous_secret FROM webhooks") == [(None,)]
        assert signed_with() == [False, False, False, False, True]
        assert api.client.get(path).json()["previous_secret_until"] is None
        assert api.stranger.post(f"{path}/secret").status_code == 404
        assert len(set(secrets)) == 5


def test_a_subscription_is_changed_in_part(api: Api) -> None:
    made = _made(api, "https://receiver.example/one")
    path = f"/webhooks/{made['id']}"
    changed = api.client.patch(path, json={"url": "https://receiver.example/two"}).json()
    assert changed == {**{name: made[name] for name in changed}, "url": "https://receiver.example/two"}
    changed = api.client.patch(path, json={"event_types": ["run.failed", "run.succeeded"]}).json()
    assert changed["event_types"] == ["run.succeeded", "run.failed"]
    assert {api.client.patch(path, json={"enabled": one}).status_code for one in (0, 1, "no")} == {422}
    off = api.client.patch(path, json={"enabled": False}).json()
    assert off["disabled_at"] is not None
    assert api.client.patch(path, json={"enabled": False}).json() == off
    assert api.client.patch(path, json={}).json() == off
    assert api.client.patch(path, json={"enabled": True}).json()["disabled_at"] is None
    assert api.stranger.patch(path, json={"enabled": False}).status_code == 404
    assert api.client.get(path).json()["disabled_at"] is None


def test_who_has_had_a_message_is_forgotten_once_nobody_can_have_it_sent_again(api: Api) -> None:
    made, quiet = _made(api, "https://receiver.example/"), _made(api, "https://quiet.example/")
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:

        def note(message: str, webhook: dict[str, Any] = made) -> None:
            how = {"delivered": True, "status_code": 200, "error": None}
            assert run(connection, webhook_deliveries.record(UUID(webhook["id"]), message, "run.failed", **how))  # type: ignore[arg-type]

        for message in ("old", "kept"):
            note(message)
        note("old", quiet)
        kept = webhook_deliveries.KEPT_DELIVERIES
        age = "UPDATE webhook_deliveries SET attempted_at = now() - %s::interval WHERE message_id = %s"
        connection.execute(age, (kept + timedelta(hours=1), "old"))
        connection.execute(age, (kept - timedelta(hours=1), "kept"))
        note("new")
    known = api.rows("SELECT message_id FROM webhook_deliveries WHERE webhook_id = %s ORDER BY 1", UUID(made["id"]))
    assert known == [("kept",), ("new",)]
    assert api.client.get(f"/webhooks/{quiet['id']}").json()["last_delivery"]["message_id"] == "old"


def test_the_log_of_deliveries_has_pages(api: Api) -> None:
    made, other = _made(api, "https://receiver.example/"), _made(api, "https://other.example/")
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:

        def note(number: int, webhook: dict[str, Any] = made) -> None:
            how = {"delivered": number % 2 == 0, "status_code": 200 + number, "error": None, "seconds": 0.25}
            script = webhook_deliveries.record(UUID(webhook["id"]), f"msg_{number % 4}", "run.failed", **how)  # type: ignore[arg-type]
            assert run(connection, script)

        for number in range(7):
            note(number)
        note(0, other)
    path = f"/webhooks/{made['id']}/deliveries"
    found, before = [], {}
    while True:
        page = api.client.get(path, params={"limit": 3, **before}).json()
        found.append([(item["status_code"], item["message_id"], item["attempt"]) for item in page["attempts"]])
        if page["next"] is None:
            break
        with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
            note(80)  # what comes meanwhile moves no page
        before = {"before": page["next"]}
    assert found == [
        [(206, "msg_2", 2), (205, "msg_1", 2), (204, "msg_0", 2)],
        [(203, "msg_3", 1), (202, "msg_2", 1), (201, "msg_1", 1)],
        [(200, "msg_0", 1)],
    ]
    failed = api.client.get(path, params={"delivered": False}).json()["attempts"]
    assert [item["status_code"] for item in failed] == [205, 203, 201]
    assert {item["duration_ms"] for item in failed} == {250}
    assert api.stranger.get(path).status_code == 404


def test_old_attempts_leave_the_log_and_their_messages_stay_delivered(api: Api) -> None:
    made = _made(api, "https://receiver.example/")
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:

        def note(message_id: str) -> None:
            how = {"delivered": True, "status_code": 200, "error": None}
            run(connection, webhook_deliveries.record(UUID(made["id"]), message_id, "run.failed", **how))  # type: ignore[arg-type]

        note("msg_old")
        connection.execute("UPDATE webhook_attempts SET id = '01800000-0000-7000-8000-000000000000'")
        connection.commit()
        page = api.client.get(f"/webhooks/{made['id']}/deliveries").json()
        assert page == {"attempts": [], "next": None}, "also where nothing was sent since"
        note("msg_new")
        assert connection.execute("SELECT message_id FROM webhook_attempts").fetchall() == [("msg_new",)]
        assert run(connection, webhook_deliveries.owed("demo", "run.failed", "msg_old")) == []


def test_a_name_that_leads_into_the_internal_network_is_refused_at_each_delivery(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gotempsh/temps#332: it led outside when it was checked."""
    with serve() as inside, running(Settings(home=tmp_path, database_url=database_url)) as api:
        port = inside.url.rpartition(":")[2]
        made = _made(api, f"https://receiver.test:{port}/hook")
        real = socket.getaddrinfo

        def rebound(host: Any, *rest: Any, **more: Any) -> Any:
            return real("127.0.0.1" if host == "receiver.test" else host, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", rebound)
        attempt = api.client.post(f"/webhooks/{made['id']}/test").json()
        refused = api.client.patch(f"/webhooks/{made['id']}", json={"url": f"https://127.0.0.1:{port}/"})
    assert (attempt["delivered"], attempt["status_code"]) == (False, None)
    assert "has an address that is not public" in attempt["error"]
    assert refused.status_code == 422
    assert inside.received == []
