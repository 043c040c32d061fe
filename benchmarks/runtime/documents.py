"""A log of many documents for the row `rebuild`: uploads, uploads again, deletions, events twice; and what it comes to.

Of every 20 events 14 upload new documents; four upload one of the 20 before again, one deletes one, and one is the
first of the 20 before once more, with the same id, when its document has been uploaded again. Ids are of UUID version
7, in order but for their random end.
"""

import multiprocessing
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import topic
from confluent_kafka import KafkaError

from offsetzero.producers.records import build
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.schemas.event import Event

ROUND = 20
NEW = 14
AGAIN = range(NEW, 18)
DELETED, TWICE = 18, 19
TENANTS = 50
MOST_BYTES = 1_000_000
TELL_SECONDS = 10.0
NOTE_EVERY = 1_000
_MARK = UUID("01234567-89ab-7cde-8f01-23456789abcd")
_FIRST_MS = 1_767_225_600_000  # 1 January 2026
_MIX = 0x9E3779B97F4A7C15


class Documents:
    """The events. Number n is the same in every run; `size_bytes` follows from it."""

    def __init__(self) -> None:
        dice, codec = random.Random(topic.SEED), Codec()  # noqa: S311 - the same events in each run
        self._uploads = [_made(codec, _upload(dice, number)) for number in range(TENANTS)]
        self._deletions = [_made(codec, _deletion(number)) for number in range(TENANTS)]

    def record(self, number: int) -> topic.Record:
        """The record of an event."""
        number = meant(number)
        document, sequence, deletes = place(number)
        key = _uuid7(document * 3, document).encode()
        value, headers = (self._deletions if deletes else self._uploads)[document % TENANTS]
        if not deletes:
            value = value.replace(topic.MARK, topic.varint(size(number)))
        return (
            key.decode(),
            value.replace(_TEXT, key),
            [
                ("ce_id", _uuid7(number, number + 1).encode()),
                ("ce_sequence", b"%d" % sequence),
                ("ce_subject", key),
                *headers,
            ],
        )


def meant(number: int) -> int:
    """The event that this one is, which may be one before it once more."""
    return number - ROUND - TWICE if number % ROUND == TWICE and number >= ROUND else number


def place(number: int) -> tuple[int, int, bool]:
    """Of which document an event is, with which sequence, and whether it deletes it."""
    turn, at = divmod(number, ROUND)
    if at < NEW or not turn:
        return turn * ROUND + at, 1, False
    if at == DELETED:
        return (turn - 1) * ROUND + len(AGAIN), 2, True
    return (turn - 1) * ROUND + at - NEW, 2, False


def size(number: int) -> int:
    """How large the document is in an event."""
    return number * 7_919 % MOST_BYTES


def fold(count: int) -> tuple[int, int, int, int]:
    """What so many events come to.

    Returns:
        Different events, documents, deleted documents among them, and the bytes of the others.
    """
    events = count - sum(1 for number in range(TWICE, count, ROUND) if number >= ROUND)
    rows: dict[int, tuple[int, bool, int]] = {}
    deleted = total = documents = 0
    for number in range(count):
        document, sequence, deletes = place(meant(number))
        before = rows.get(document)
        if before is not None and before[0] >= sequence:
            continue
        if before is None:
            documents += 1
        else:
            total -= before[2]
        grown = 0 if deletes else size(number)
        deleted += deletes
        total += grown
        rows[document] = sequence, deletes, grown
        if at_end_of_round(number):
            rows = {one: row for one, row in rows.items() if one >= number - 3 * ROUND}
    return events, documents, deleted, total


def at_end_of_round(number: int) -> bool:
    """Whether the next event is of the next round; what came two rounds before it does not come again."""
    return number % ROUND == ROUND - 1


def fill(bootstrap: str, name: str, partitions: int, count: int, tell: Callable[[int], object] | None = None) -> None:
    """Make a topic with so many of the events, and an empty one for its bulk lane.

    One process for each core writes every so many-th document: the events of each are in their order.

    Args:
        tell: called every ten seconds with how many have been written.

    Raises:
        RuntimeError: the broker did not take them all.
    """
    topic.create(bootstrap, name, partitions)
    topic.create(bootstrap, f"{name}.bulk", partitions)
    spawn, parts = multiprocessing.get_context("spawn"), os.cpu_count() or 1
    written = spawn.Array("q", parts)
    writers = [
        spawn.Process(target=_write, args=(bootstrap, name, count, part, parts, written)) for part in range(parts)
    ]
    for writer in writers:
        writer.start()
    try:
        for writer in writers:
            while writer.is_alive():
                writer.join(TELL_SECONDS)
                if writer.is_alive() and tell is not None:
                    tell(sum(written))
    finally:
        for writer in writers:
            writer.kill()  # one that has ended does not mind
    if sum(written) != count:
        raise RuntimeError(f"{sum(written):,} of {count:,} events were written: {[one.exitcode for one in writers]}")


def _write(bootstrap: str, name: str, count: int, part: int, parts: int, written: Any) -> None:
    """Write the events of every so many-th document, and note how many have been."""
    made, done = Documents(), 0
    refused: list[KafkaError] = []
    client = topic.producer(bootstrap, only_errors=True)
    for number in range(count):
        if place(meant(number))[0] % parts != part:
            continue
        topic.produce(client, name, made.record(number), refused)
        done += 1
        if not done % NOTE_EVERY:
            written[part] = done
    topic.flush(client, refused)
    written[part] = done


def _made(codec: Codec, event: Event) -> tuple[bytes, list[tuple[str, Any]]]:
    record = build(codec, event, {"source": "/bench"})
    assert record.value is not None
    left_out = {"ce_id", "ce_subject", "ce_sequence"}
    return record.value, [(name, value) for name, value in record.headers if name not in left_out]


def _upload(dice: random.Random, number: int) -> DocumentUploaded:
    return DocumentUploaded(
        document_id=_MARK,
        tenant_id=f"tenant-{number:03}",
        run_id=UUID(int=dice.getrandbits(128), version=4),
        name=f"quarterly report {dice.randrange(10**6):06}.pdf",
        content_type="application/pdf",
        uri=f"s3://documents-eu-central-1/{_MARK}/{dice.getrandbits(96):024x}",
        size_bytes=topic.NUMBER_MARK,
        sha256=f"{dice.getrandbits(256):064x}",
        uploaded_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number),
    )


def _deletion(number: int) -> DocumentDeleted:
    return DocumentDeleted(
        document_id=_MARK,
        tenant_id=f"tenant-{number:03}",
        deleted_at=datetime(2026, 2, 1, tzinfo=UTC) + timedelta(seconds=number),
    )


def _uuid7(moment: int, seed: int) -> str:
    time, rest = f"{_FIRST_MS + moment:012x}", f"{seed * _MIX & (1 << 64) - 1:016x}"
    return f"{time[:8]}-{time[8:]}-7{rest[:3]}-8{rest[3:6]}-{rest[6:]}ab"


_TEXT = str(_MARK).encode()
