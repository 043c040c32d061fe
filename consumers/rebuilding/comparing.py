"""What readers would lose with another generation: events that one has applied, and the other has not, or not yet."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psycopg

from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.replaying.looking import glance_at
from offsetzero.consumers.working.calls import Call
from offsetzero.errors import DecodeError
from offsetzero.generation import Generation
from offsetzero.retry import dead_letters
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.headers import Origin
from offsetzero.settings import Settings
from offsetzero.store import positions, processed, switches
from offsetzero.store.script import run
from offsetzero.topics import cluster, retained
from offsetzero.topics.catalogue import DLQ, REDRIVE
from offsetzero.topics.reading import LogRecord, TopicReader

WAITING = "waiting"


@dataclass(frozen=True, slots=True, order=True)
class Lost:
    """An event that is in the one generation and not in the other.

    Attributes:
        key: of its record, as text; None for one without, or where it is not known any more.
        source: of the event.
        event_id: unique with its source.
        state: there: `waiting` in a retry topic, `dead-lettered`, or `failed`.
    """

    key: str | None
    source: str
    event_id: str
    state: str

    def __str__(self) -> str:
        return f"key {self.key if self.key is not None else '-'}: event {self.event_id} of {self.source} {self.state}"


def lost(
    settings: Settings, connection: psycopg.Connection, old: Generation, new: Generation, tiers: Iterable[str]
) -> list[Lost]:
    """The events that `old` has applied and that wait, are dead or have failed in `new`.

    Args:
        settings: name the cluster.
        connection: to the database; in autocommit.
        old: the generation that is read.
        new: the one that is to be; it has read all that `old` has.
        tiers: the names of its retry tiers.

    Raises:
        TopicError: the cluster refuses, or does not answer.
    """
    waits: dict[tuple[str, str, int], str | None] = {}
    for call in _copies(settings, connection, new, tiers):
        waits[call.identity.source, call.identity.event_id, call.identity.redrive_no] = call.key
    for ended in run(connection, processed.ended(new.name, list(waits))):
        waits.pop(ended, None)
    by_event = {(source, event_id): key for (source, event_id, _), key in waits.items()}
    found = [Lost(by_event[event], *event, WAITING) for event in run(connection, switches.applied(old, list(by_event)))]
    failed = run(connection, switches.failed_only_in(new, old.number))
    keys = _keys(settings, new) if any(state == processed.Outcome.DEAD_LETTERED for *_, state in failed) else {}
    found += [Lost(keys.get((source, event_id)), source, event_id, state) for source, event_id, state in failed]
    return sorted(set(found), key=lambda one: (one.key or "", one.event_id, one.state))


def _copies(
    settings: Settings, connection: psycopg.Connection, generation: Generation, tiers: Iterable[str]
) -> Iterator[Call]:
    """What is in the retry topics of a generation behind its positions."""
    at = run(connection, positions.of_generation(generation))
    existing = cluster.partitions(settings)
    with TopicReader(settings) as reader:
        for topic in (f"{generation.name}.{tier}" for tier in [*tiers, REDRIVE]):
            if topic not in existing:
                continue
            spans = {}
            for number, one in retained.bounds(settings, topic).items():
                known = at.get((topic, number))
                spans[number] = max(one.low, known.offset if known is not None else 0), one.end
            for batch in reader.read(topic, spans):
                yield from (_call(generation, topic, one) for one in batch)


def _call(generation: Generation, topic: str, one: LogRecord) -> Call:
    stay = OwnedPartition(topic, "", one.partition)
    record = Record(stay, one.offset, one.key, one.value, one.headers, one.timestamp_ms)
    here = Origin("", topic, one.partition, one.offset)
    try:
        hop = retry_headers.read(one.headers, here, one.timestamp_ms)
    except DecodeError:  # somebody else has written it
        hop = None
    return Call(record, generation.group, glance_at(record), hop, generation.number)


def _keys(settings: Settings, generation: Generation) -> dict[tuple[str, str], str]:
    """The keys of its dead letters, by event."""
    if f"{generation.name}.{DLQ}" not in cluster.partitions(settings):
        return {}
    return {
        (processed.short(letter.meta.source), processed.short(letter.meta.id)): letter.key.decode(errors="replace")
        for letter in dead_letters.read(settings, generation.name)
        if letter.meta is not None and letter.key is not None
    }
