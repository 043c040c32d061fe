"""What the functions of indexer, summariser and notifier do in the real database, to real receivers."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pdfs
import pytest
from desk import AT, Desk
from local_http import Received, Reply, serve
from standardwebhooks.webhooks import Webhook

from offsetzero.consumers.groups import indexer, notifier, summariser
from offsetzero.consumers.groups.webhooks import sending
from offsetzero.retry.failures import Permanent, Poison, Transient
from offsetzero.retry.policy import JITTER
from offsetzero.schemas.runs import RunFailed
from offsetzero.settings import Settings
from offsetzero.store import webhooks
from offsetzero.store.objects import Objects
from offsetzero.store.script import run
from offsetzero.topics import catalogue
from support import ManualClock

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    settings = Settings(home=tmp_path, database_url=database_url, webhooks={"allow_private_targets": True})
    made = Desk(settings)
    yield made
    made.pool.close()


def test_a_document_is_found_on_its_page(desk: Desk) -> None:
    event = desk.document(pdfs.pdf("The first page.", "A page on expenses."), name="policy\0.pdf")
    assert desk.index(event) == []
    (hit,) = desk.search("expenses")
    assert (hit.document_id, hit.name, hit.page) == (event.document_id, "policy.pdf", 2)


def test_handling_an_upload_again_changes_nothing(desk: Desk) -> None:
    event = desk.document(pdfs.pdf("Once is enough."))
    desk.index(event)
    first = desk.rows("SELECT number, page, text FROM chunks")
    desk.index(event)
    assert desk.rows("SELECT number, page, text FROM chunks") == first


@pytest.mark.parametrize(
    "text",
    [
        "a nul \0 here, in a text that is long enough",
        "x" * 3_000_000,
        " ".join(f"w{n}" for n in range(400_000)),
        "lone \ud800 surrogate",
        "\ufffe",
    ],
    ids=["nul", "one huge word", "many distinct words", "surrogate", "noncharacter"],
)
def test_one_odd_text_never_fails(desk: Desk, text: str) -> None:
    """PostgreSQL refuses NUL in text and a tsvector over 1 MB."""
    event = desk.document(text.encode("utf-8", "surrogatepass"), "a.txt", "text/plain")
    desk.index(event)
    desk.summarise(event)


def test_a_document_without_text_succeeds_with_a_warning(desk: Desk) -> None:
    event = desk.document(pdfs.without_text())
    assert ["no text" in warning for warning in desk.index(event)] == [True]
    assert ["no text" in warning for warning in desk.summarise(event)] == [True]


@pytest.mark.parametrize("functions", [Desk.index, Desk.summarise])
def test_failures_keep_their_class(desk: Desk, functions: Any) -> None:
    with pytest.raises(Poison):
        functions(desk, desk.document(pdfs.corrupt()))
    with pytest.raises(Permanent) as caught:
        functions(desk, desk.document(b"text", kind="application/msword"))
    assert caught.value.reason == "unsupported-type"


@pytest.mark.parametrize(
    "uri", ["file:///etc/passwd", "{store}/../secret", "{store}/documents/none", "{store}", "s3://x/y"]
)
def test_an_event_cannot_make_it_read_outside_the_store(desk: Desk, uri: str) -> None:
    event = desk.document(pdfs.pdf("x"))
    (desk.settings.home / "secret").write_bytes(pdfs.pdf("secret"))
    event = event.model_copy(update={"uri": uri.format(store=desk.settings.objects)})
    with pytest.raises(Permanent) as caught:
        desk.index(event)
    assert caught.value.reason == "object-missing"


def test_a_deleted_document_leaves_nothing_and_does_not_come_back(desk: Desk) -> None:
    event = desk.document(pdfs.pdf("To be forgotten. It was a text of some length."))
    desk.index(event)
    desk.summarise(event)
    desk.delete(indexer, event.document_id)
    desk.delete(summariser, event.document_id)
    assert desk.search("forgotten") == []
    assert desk.rows("SELECT 1 FROM chunks") == []
    assert desk.rows("SELECT text FROM summaries") == [("",)]
    assert desk.index(event) != []
    assert desk.summarise(event) != []
    assert desk.search("forgotten") == []
    assert desk.rows("SELECT text FROM summaries") == [("",)]


def test_an_upload_handled_after_its_deletion_stays_out(desk: Desk) -> None:
    event = desk.document(pdfs.pdf("Late to the party."))
    desk.delete(indexer, event.document_id)
    desk.delete(summariser, event.document_id)
    desk.index(event)
    desk.summarise(event)
    assert desk.search("party") == []
    assert desk.rows("SELECT text FROM summaries") == [("",)]


def test_an_upload_whose_object_is_gone_with_its_document_is_nothing_to_fail_for(desk: Desk) -> None:
    event = desk.document(pdfs.pdf("Gone."))
    asyncio.run(Objects(desk.settings.objects).delete(f"documents/demo/{event.document_id}"))
    with desk.pool.connection() as connection:
        connection.execute(
            "INSERT INTO documents (id, tenant_id, name, content_type, uri, size_bytes, sha256, deleted_at) "
            "VALUES (%s, 'demo', 'a', 'b', 'c', 1, 'd', now())",
            (event.document_id,),
        )
    assert desk.index(event) == ["the document was deleted before it could be worked on"]
    assert desk.summarise(event) == ["the document was deleted before it could be worked on"]


def test_a_configured_endpoint_makes_the_summary(desk: Desk) -> None:
    body = {"model": "m", "choices": [{"message": {"content": "Short."}}], "usage": {"prompt_tokens": 5}}
    with serve(lambda _received: Reply(200, json.dumps(body).encode())) as server:
        desk.settings = desk.settings.model_copy(
            update={"llm": desk.settings.llm.model_copy(update={"base_url": server.url})}
        )
        desk.summarise(desk.document(pdfs.pdf("A long text about something.")))
    assert desk.rows("SELECT text, model, input_tokens FROM summaries") == [("Short.", "m", 5)]
    assert server.received[0].path == "/chat/completions"


def _failed() -> RunFailed:
    return RunFailed(
        run_id=UUID(int=7),
        tenant_id="demo",
        document_id=UUID(int=8),
        step="indexer",
        reason="corrupt",
        detail="It cannot be read.",
        finished_at=AT,
    )


def _subscribe(desk: Desk, url: str, *types: str, tenant: str = "demo") -> UUID:
    webhook_id = uuid4()
    with desk.pool.connection() as connection:
        run(connection, webhooks.add(webhook_id, tenant, url, SECRET, types or ("run.failed",), most=20))
    return webhook_id


def _notify(desk: Desk, event_id: str = "1") -> None:
    asyncio.run(notifier.notify(_failed(), desk.context(event_id)))


def test_a_webhook_tells_how_a_run_ended(desk: Desk) -> None:
    with serve() as mine, serve() as others:
        _subscribe(desk, mine.url + "/hook")
        _subscribe(desk, others.url, "run.succeeded")
        _subscribe(desk, others.url, tenant="other")
        _notify(desk)
    (received,) = mine.received
    message = Webhook(SECRET).verify(received.body.decode(), dict(received.headers))
    assert (message["type"], message["data"]["reason"]) == ("run.failed", "corrupt")
    assert others.received == []


def test_a_retry_goes_only_to_those_not_reached_with_the_same_id(desk: Desk) -> None:
    """reapit#10219, documenso#3204: webhook retries unsigned, and without a stable id."""
    answers = iter([503, 200])
    with serve() as good, serve(lambda _received: Reply(next(answers))) as bad:
        _subscribe(desk, good.url)
        _subscribe(desk, bad.url)
        with pytest.raises(Transient) as caught:
            _notify(desk)
        assert caught.value.reason == "webhook-unreached"
        _notify(desk)
        _notify(desk)
    assert len(good.received) == 1
    first, second = bad.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == good.received[0].headers["webhook-id"]
    assert first.body == second.body
    Webhook(SECRET).verify(second.body.decode(), dict(second.headers))
    assert desk.rows("SELECT attempts, status_code, error FROM webhook_deliveries ORDER BY attempts") == [
        (1, 200, None),
        (2, 200, None),
    ]


def test_each_attempt_has_the_time_of_its_own_and_is_in_the_log(desk: Desk) -> None:
    clock = ManualClock(datetime.now(UTC))
    with serve(lambda _received: Reply(503)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending, "SYSTEM", clock)
        _subscribe(desk, server.url)
        for _ in range(2):
            with pytest.raises(Transient):
                _notify(desk)
            clock.advance(100)
    first, second = (int(received.headers["webhook-timestamp"]) for received in server.received)
    assert second == first + 100
    for received in server.received:
        Webhook(SECRET).verify(received.body.decode(), dict(received.headers))
    assert desk.rows("SELECT attempt, status_code, delivered FROM webhook_attempts ORDER BY id") == [
        (1, 503, False),
        (2, 503, False),
    ]


def test_a_receiver_may_be_away_for_most_of_a_day() -> None:
    tiers = notifier.group.policy(Settings()).tiers
    most = sum(tier.delay * (1 + JITTER) for tier in tiers)
    assert 20 * 3600 < most <= 24 * 3600
    assert [topic.name for topic in catalogue.of_group(Settings(), "notifier", ["runs"])] == [
        *(f"notifier.{tier.name}" for tier in tiers),
        "notifier.redrive",
        "notifier.dlq",
    ]


def test_another_event_is_another_message(desk: Desk) -> None:
    with serve() as server:
        _subscribe(desk, server.url)
        _notify(desk, "1")
        _notify(desk, "2")
    assert len({received.headers["webhook-id"] for received in server.received}) == 2


def test_the_longest_wait_that_was_asked_for_is_kept(desk: Desk) -> None:
    def busy(received: Received) -> Reply:
        return Reply(429, headers={"Retry-After": received.path.strip("/")})

    with serve(busy) as server:
        _subscribe(desk, server.url + "/5")
        _subscribe(desk, server.url + "/30")
        with pytest.raises(Transient) as caught:
            _notify(desk)
    assert caught.value.retry_after == 30.0


def test_a_receiver_that_is_gone_is_not_asked_again(desk: Desk) -> None:
    with serve(lambda _received: Reply(410)) as server:
        _subscribe(desk, server.url)
        _notify(desk, "1")
        _notify(desk, "2")
    assert len(server.received) == 1
    assert desk.rows("SELECT disabled_at IS NOT NULL FROM webhooks") == [(True,)]


def test_a_private_receiver_is_refused_and_holds_up_nobody(desk: Desk) -> None:
    desk.settings = desk.settings.model_copy(
        update={"webhooks": desk.settings.webhooks.model_copy(update={"allow_private_targets": False})}
    )
    with serve() as server:
        _subscribe(desk, server.url.replace("http://", "https://"))
        _notify(desk)
    assert server.received == []
    ((delivered, error),) = desk.rows("SELECT delivered_at, error FROM webhook_deliveries")
    assert delivered is None
    assert "not a public address" in error
