"""Each kind of group calls a provider that is down at first: its events wait, have their effect, cost no attempt."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from kafka.conftest import uploaded
from kafka.test_group_database import database_away
from local_http import Received, Reply, serve

from offsetzero import BatchContext, ConsumerGroup, Context, DocumentUploaded, ProviderWaits, Publisher
from offsetzero.retry import dead_letters
from offsetzero.settings import Settings
from offsetzero.topics import lag
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[Any]]
COUNT = 40


class Seen:
    """What the handlers of a group did, and where they call."""

    def __init__(self) -> None:
        self.url = ""
        self.attempts: dict[UUID, int] = {}
        self.entered = 0
        self.client = httpx.Client()

    def call(self) -> None:
        self.client.post(self.url).raise_for_status()

    def note(self, event: DocumentUploaded, ctx: Context) -> None:
        self.attempts[event.document_id] = ctx.attempt


def with_async(seen: Seen) -> ConsumerGroup:
    group = ConsumerGroup("kinds")

    @group.prepare(DocumentUploaded)
    async def ask(event: DocumentUploaded, ctx: Context) -> None:
        async with ctx.provider("llm"):
            await asyncio.to_thread(seen.call)

    @group.handler(DocumentUploaded)
    async def note(event: DocumentUploaded, ctx: Context) -> None:
        seen.note(event, ctx)

    return group


def with_batches(seen: Seen) -> ConsumerGroup:
    group = ConsumerGroup("kinds")

    @group.batch(DocumentUploaded, size=10)
    def note(events: list[DocumentUploaded], ctx: BatchContext) -> None:
        with ctx.provider("llm"):
            seen.call()
        for event, one in zip(events, ctx.contexts, strict=True):
            seen.note(event, one)

    return group


def one_by_one(**options: Any) -> Callable[[Seen], ConsumerGroup]:
    def make(seen: Seen) -> ConsumerGroup:
        group = ConsumerGroup("kinds", **options)

        @group.handler(DocumentUploaded)
        def note(event: DocumentUploaded, ctx: Context) -> None:
            with ctx.provider("llm"):
                seen.call()
            seen.note(event, ctx)

        return group

    return make


KINDS = {
    "async": with_async,
    "batch": with_batches,
    "in the handler": one_by_one(),
    "without a database": one_by_one(database=False),
    "transactional": one_by_one(transactional=True),
}


def appended(settings: Settings) -> int:
    return sum(one.high for one in lag.group_offsets(settings, "kinds") if "retry" in one.topic) + len(
        list(dead_letters.read(settings, "kinds"))
    )


def behind(settings: Settings) -> int:
    return sum(one.lag for one in lag.group_offsets(settings, "kinds", ["documents", "documents.bulk"]))


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_for_a_provider_is_done_when_it_is_back(settings: Settings, running: Running, kind: str) -> None:
    well, seen = threading.Event(), Seen()
    quick = settings.model_copy(update={"providers": settings.providers.model_copy(update={"probe_seconds": 0.3})})
    with serve(lambda _received: Reply(200 if well.is_set() else 401)) as server, Publisher(settings) as publisher:
        seen.url = server.url
        group = KINDS[kind](seen)
        with running(group, quick) as member:
            for _ in range(COUNT):
                publisher.publish(uploaded())
            publisher.flush(10)
            wait_until(lambda: len(server.received) >= 3, what="probes")
            shown = member.runtime.health
            wait_until(lambda: shown().body["providers"]["llm"]["cause"] == "provider-401", what="what it says of it")
            assert shown().alive
            assert seen.attempts == {}
            well.set()
            wait_until(lambda: len(seen.attempts) == COUNT, 60, what="all effects")
            wait_until(lambda: behind(settings) == 0, what="lag 0")
    assert set(seen.attempts.values()) == {1}
    assert appended(settings) == 0


def test_a_handler_may_do_without_the_provider(settings: Settings, running: Running) -> None:
    seen = Seen()
    group = ConsumerGroup("kinds")

    @group.prepare(DocumentUploaded)
    def ask(event: DocumentUploaded, ctx: Context) -> None:
        with contextlib.suppress(ProviderWaits), ctx.provider("llm"):
            seen.call()

    group.handler(DocumentUploaded)(seen.note)
    with serve(lambda _received: Reply(401)) as server, Publisher(settings) as publisher, running(group):
        seen.url = server.url
        for _ in range(COUNT):
            publisher.publish(uploaded())
        wait_until(lambda: len(seen.attempts) == COUNT, what="all effects")
        assert len(server.received) <= 20
    assert appended(settings) == 0


def test_calls_that_run_while_the_database_is_away_are_not_lost(
    settings: Settings, running: Running, postgres_url: str
) -> None:
    """Their results are kept, their permits are free again, and nothing is called meanwhile."""
    url = settings.database_url.get_secret_value()
    go_on, seen = threading.Event(), Seen()
    group = ConsumerGroup("kinds")

    @group.prepare(DocumentUploaded)
    def ask(event: DocumentUploaded, ctx: Context) -> None:
        with ctx.provider("llm"):
            seen.call()

    group.handler(DocumentUploaded)(seen.note)

    def answer(_received: Received) -> Reply:
        go_on.wait(30)
        return Reply()

    with serve(answer) as server, Publisher(settings) as publisher, running(group):
        seen.url = server.url
        for _ in range(COUNT):
            publisher.publish(uploaded())
        wait_until(lambda: len(server.received) == 16, what="calls that run")
        with database_away(postgres_url, url.rpartition("/")[2]):
            go_on.set()
            with pytest.raises(AssertionError):
                wait_until(lambda: len(server.received) > 16, 3, what="a call that nobody has allowed")
        wait_until(lambda: len(seen.attempts) == COUNT, 60, what="all effects")
        with psycopg.connect(url, autocommit=True) as connection:
            wait_until(
                lambda: connection.execute("SELECT state->'permits' FROM providers").fetchone() == ({},),
                30,
                what="that all permits are free",
            )
        assert len(server.received) == COUNT, "what was called is not called again"
    assert set(seen.attempts.values()) == {1}
    assert appended(settings) == 0
