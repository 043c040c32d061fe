"""How deliveries went: what the tenant sees of it, and what the operator finds in the dead letters."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from e2e.conftest import Pipeline
from local_http import Received, Reply, serve
from running_api import Api, running

from offsetzero.consumers.groups import notifier
from offsetzero.consumers.groups.webhooks import signing
from offsetzero.consumers.groups.webhooks.sending import Attempt
from offsetzero.producers import outbox
from offsetzero.retry.failures import Transient
from offsetzero.schemas.runs import RunCancelled
from offsetzero.settings import Settings
from offsetzero.store import webhook_deliveries, webhooks
from offsetzero.store.script import run
from offsetzero.store.webhook_deliveries import Target
from support import wait_until


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[Api]:
    with running(Settings(home=tmp_path, database_url=database_url)) as api:
        yield api


def _record(api: Api, webhook_id: str, message_id: str, **how: Any) -> None:
    with psycopg.connect(api.settings.database_url.get_secret_value()) as connection:
        run(connection, webhook_deliveries.record(UUID(webhook_id), message_id, "run.failed", **how))


def test_a_tenant_sees_the_last_delivery_of_each_webhook(api: Api) -> None:
    made = api.client.post("/webhooks", json={"url": "https://receiver.example/hook"}).json()
    quiet = api.client.post("/webhooks", json={"url": "https://quiet.example/"}).json()
    assert made["last_delivery"] is None
    one = made["id"]
    _record(api, one, "msg_1", delivered=True, status_code=200, error=None)
    _record(api, one, "msg_2", delivered=False, status_code=None, error="no answer within 15 s")
    _record(api, one, "msg_2", delivered=False, status_code=503, error="the receiver answered 503")
    shown = api.client.get(f"/webhooks/{one}").json()
    assert "secret" not in shown
    last = shown["last_delivery"]
    assert last.pop("at").endswith("Z")
    assert last == {
        "message_id": "msg_2",
        "event_type": "run.failed",
        "attempts": 2,
        "delivered": False,
        "status_code": 503,
        "error": "the receiver answered 503",
    }
    _record(api, one, "msg_1", delivered=True, status_code=204, error=None)
    listed = api.client.get("/webhooks").json()["webhooks"]
    assert [item["id"] for item in listed] == [one, quiet["id"]]
    last = listed[0]["last_delivery"]
    assert (last["message_id"], last["delivered"], last["status_code"]) == ("msg_1", True, 204)
    assert listed[1]["last_delivery"] is None


def test_a_webhook_of_another_tenant_is_not_found(api: Api) -> None:
    made = api.client.post("/webhooks", json={"url": "https://receiver.example/hook"}).json()
    assert api.client.get(f"/webhooks/{made['id']}").status_code == 200
    for path in (f"/webhooks/{made['id']}", f"/webhooks/{uuid4()}"):
        assert api.stranger.get(path).status_code == 404


def test_the_failure_names_the_webhooks_and_hosts_that_were_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    owed = [Target(UUID(int=n), f"https://host{n}.example:8443/secret?token=s{n}", ("whsec_",)) for n in range(1, 9)]
    asked = iter([Attempt(200), *(Attempt(503, "the receiver answered 503" + "!" * 500) for _ in range(7))])

    async def deliver(*_arguments: object) -> Attempt:
        return next(asked)

    monkeypatch.setattr(notifier, "_owed", lambda *_arguments: owed)
    monkeypatch.setattr(notifier, "_deliver", deliver)
    monkeypatch.setattr(notifier.messages, "message_id", lambda _meta: "msg_1")
    monkeypatch.setattr(notifier.messages, "payload", lambda *_arguments: "{}")

    class Nothing:
        def __getattr__(self, _name: str) -> None:
            return None

    with pytest.raises(Transient) as caught:
        asyncio.run(notifier.notify(Nothing(), Nothing()))  # type: ignore[arg-type]
    detail = caught.value.detail
    assert detail.startswith("7 of 8 receivers did not take it: webhook 00000000-0000-0000-0000-000000000002")
    assert " at host2.example:8443: the receiver answered 503!" in detail
    assert detail.endswith("; and 2 more")
    assert "secret" not in detail
    assert "token" not in detail


def test_the_notifier_tries_again_in_its_own_tiers_and_never_before_the_receiver_says(pipeline: Pipeline) -> None:
    answers = iter([Reply(503, headers={"Retry-After": "3"}), Reply(302, headers={"Location": "/"}), Reply(202)])
    came: list[float] = []

    def answer(_received: Received) -> Reply:
        came.append(time.monotonic())
        return next(answers)

    ended = RunCancelled(run_id=uuid4(), tenant_id="demo", document_id=uuid4(), finished_at=datetime.now(UTC))
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    with serve(answer) as server, psycopg.connect(pipeline.settings.database_url.get_secret_value()) as connection:
        run(connection, webhooks.add(uuid4(), "demo", server.url, secret, ["run.cancelled"], most=1))
        outbox.add(connection, ended)
        connection.commit()
        pipeline.start("relay")
        member = pipeline.start("groups", "run", "notifier", OFFSETZERO_WEBHOOKS__ALLOW_PRIVATE_TARGETS="true")
        wait_until(lambda: len(came) == 3, 60, what="it is delivered")
        log = "SELECT attempt, status_code, delivered FROM webhook_attempts ORDER BY id"
        wait_until(lambda: len(connection.execute(log).fetchall()) == 3, what="it is in the log")
        assert connection.execute(log).fetchall() == [(1, 503, False), (2, 302, False), (3, 202, True)]
        assert member.stop() == 0
    assert came[1] - came[0] >= 3.0
    assert came[2] - came[1] >= pipeline.settings.webhooks.delays["retry-5m"]
    assert len({received.headers["webhook-id"] for received in server.received}) == 1
    assert len({received.body for received in server.received}) == 1
    times = [int(received.headers["webhook-timestamp"]) for received in server.received]
    assert times == sorted(set(times)), "each attempt has the time of its own"
    for received in server.received:
        signing.verify(secret, received.body, received.headers)
