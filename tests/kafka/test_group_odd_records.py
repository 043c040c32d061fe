"""Records that nobody promised: each is handled or dead-lettered with its bytes, and those behind it flow."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import psycopg
from kafka.conftest import await_dead_letters, await_effects, effects, uploaded

from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.producers.log import LogProducer
from offsetzero.producers.publisher import Publisher
from offsetzero.retry import dead_letters
from offsetzero.schemas import cloudevents
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings
from offsetzero.topics.names import Names
from support import wait_until

Running = Callable[..., contextlib.AbstractContextManager[Any]]
_ids = itertools.count()
GOOD = Codec().encode(uploaded())


def headers(**given: str) -> cloudevents.Headers:
    attributes: dict[str, Any] = {"id": str(next(_ids)), "source": "/elsewhere", "type": "document.uploaded", **given}
    return cloudevents.to_headers(Metadata(**attributes), cloudevents.AVRO)


POISON: dict[str, tuple[bytes | None, cloudevents.Headers]] = {
    "no Avro": (b"{json}", headers()),
    "empty value": (b"", headers()),
    "no headers at all": (b"plain text", []),
    "a fingerprint nobody knows": (b"\xc3\x01" + b"\x07" * 8 + b"payload", headers()),
    "cut short": (GOOD[:-3], headers()),
    "bytes behind the end": (GOOD + b"\x00", headers()),
    "an event type nobody knows": (GOOD, headers(type="document.exploded")),
    "another type's payload": (GOOD, headers(type="document.deleted")),
    "no event id": (GOOD, [h for h in headers() if h[0] != "ce_id"]),
    "an event id that is not UTF-8": (GOOD, [h for h in headers() if h[0] != "ce_id"] + [("ce_id", b"\xff\xfe")]),
    "a null event id": (GOOD, [h for h in headers() if h[0] != "ce_id"] + [("ce_id", None)]),
}
FINE: dict[str, tuple[bytes | None, bytes | None, cloudevents.Headers]] = {
    "a null key": (None, GOOD, headers(id="null-key")),
    "a key that is not UTF-8": (b"\xff\xfe", GOOD, headers(id="odd-key")),
    "null and odd header values": (b"k", GOOD, [*headers(id="odd-headers"), ("x", None), ("y", b"\xff"), ("y", b"2")]),
}


def audit_group() -> ConsumerGroup:
    audit = ConsumerGroup("audit")

    @audit.handler(DocumentUploaded)
    def note(event: DocumentUploaded, ctx: Context) -> None:
        ctx.connection.execute(
            "INSERT INTO effects (document_id, note, attempt) VALUES (%s, %s, %s)",
            (event.document_id, ctx.meta.id, ctx.attempt),
        )

    audit.handler(DocumentDeleted)(lambda event, ctx: None)
    return audit


def test_poison_is_dead_lettered_at_once_with_its_bytes_and_blocks_nobody(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    topic = Names(settings.kafka.namespace).topic("documents")
    events = {what: uploaded(name=what) for what in POISON}
    with LogProducer(settings) as producer:
        for what, event in events.items():
            value, given = POISON[what]
            producer.produce(topic, key=event.key, value=value, headers=given).result(10)
    with Publisher(settings) as publisher:
        for what, event in events.items():
            publisher.publish(event, event_id=f"behind {what}").result(10)
    with running(audit_group()):
        await_effects(database, len(POISON))
        letters = await_dead_letters(settings, "audit", len(POISON))
    by_key = {letter.key: letter for letter in letters}
    assert len(by_key) == len(letters) == len(POISON)
    for what, event in events.items():
        letter = by_key[event.key.encode()]
        assert (letter.value, letter.headers) == POISON[what], what
        assert (letter.failure, letter.hop.attempt) == ("poison", 1), what
    assert sorted(row[1] for row in effects(database)) == sorted(f"behind {what}" for what in POISON)


def test_odd_keys_and_headers_are_handled(settings: Settings, running: Running, database: psycopg.Connection) -> None:
    topic = Names(settings.kafka.namespace).topic("documents")
    with LogProducer(settings) as producer:
        for key, value, given in FINE.values():
            producer.produce(topic, key=key, value=value, headers=given).result(10)
    with running(audit_group()):
        rows = await_effects(database, len(FINE))
    assert sorted(row[1] for row in rows) == sorted(["null-key", "odd-key", "odd-headers"])
    assert list(dead_letters.read(settings, "audit")) == []


def test_tombstones_reach_their_handler_and_are_passed_over_without_one(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    """faststream#2932: `if msg:` drops them; they are events."""
    topic = Names(settings.kafka.namespace).topic("documents")
    with LogProducer(settings) as producer:
        producer.produce(topic, key=b"raw", value=None).result(10)
        producer.produce(topic, key=b"as-event", value=None, headers=headers(id="t")[:-1]).result(10)
    keen, plain = ConsumerGroup("keen"), audit_group()
    seen: list[tuple[str | None, str]] = []
    keen.handler(DocumentUploaded)(lambda event, ctx: None)
    keen.tombstone(lambda key, ctx: seen.append((key, ctx.meta.id)))
    with running(keen):
        wait_until(lambda: len(seen) == 2)
    assert sorted(key or "" for key, _ in seen) == ["as-event", "raw"]
    assert ("as-event", "t") in seen
    with Publisher(settings) as publisher:
        publisher.publish(uploaded())
    with running(plain):
        await_effects(database, 1)
    assert list(dead_letters.read(settings, "audit")) == []
    assert list(dead_letters.read(settings, "keen")) == []


def test_a_declared_type_without_a_handler_is_passed_over(
    settings: Settings, running: Running, database: psycopg.Connection
) -> None:
    event = uploaded()
    with Publisher(settings) as publisher:
        publisher.publish(DocumentDeleted(document_id=event.document_id, tenant_id="a", deleted_at=event.uploaded_at))
        publisher.publish(event)
    deaf = ConsumerGroup("deaf", topics=["documents"])
    seen: list[str] = []
    deaf.handler(DocumentUploaded)(lambda event, ctx: seen.append(ctx.meta.type))
    with running(deaf):
        wait_until(lambda: seen)
    assert seen == ["document.uploaded"]
    assert list(dead_letters.read(settings, "deaf")) == []
