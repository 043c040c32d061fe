"""What readers would lose with another generation: events that one has applied, and the other has not, or not yet."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg

from offsetzero.clock import SYSTEM
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.replaying.looking import glance_at
from offsetzero.consumers.working.calls import Call
from offsetzero.errors import DecodeError, RebuildRefused
from offsetzero.generation import Generation
from offsetzero.retry import dead_letters
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.headers import Origin
from offsetzero.settings import Settings
from offsetzero.store import losses, positions, processed
from offsetzero.store.database import limit
from offsetzero.store.losses import Copy, Losses, Lost
from offsetzero.store.script import run
from offsetzero.topics import cluster, retained
from offsetzero.topics.catalogue import DLQ, REDRIVE
from offsetzero.topics.reading import LogRecord, RecordsDeleted, TopicReader

MAX_NAMED = 1_000
"""Events that are named; the others are only counted."""


class TooSlow(RebuildRefused):
    """It could not be told in the time that was given."""


class Comparison:
    """Compares one generation with another, in a first look that may take long and in others that do not.

    What waits in retry topics is kept in a table that is gone with the connection: each copy is read once, and memory
    does not grow with their number.

    Args:
        settings: name the cluster.
        connection: to the database; in autocommit.
        old: the generation that is read.
        new: the one that is to be; it has read all that `old` has.
        tiers: the names of its retry tiers.
    """

    def __init__(
        self, settings: Settings, connection: psycopg.Connection, old: Generation, new: Generation, tiers: Iterable[str]
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._old = old
        self._new = new
        self._topics = [f"{new.name}.{tier}" for tier in [*tiers, REDRIVE]]
        self._next = {place: one.offset for place, one in run(connection, positions.of_generation(new)).items()}
        run(connection, losses.begin())

    def look(self, seconds: float | None = None) -> Losses:
        """The events that `old` has applied and that wait, are dead or have failed in `new`, as it is now.

        Also those that `new` has applied as they were, and operators have edited or discarded since.

        Args:
            seconds: how long it may take.

        Raises:
            TooSlow: it takes longer.
            TopicError: the cluster refuses, or does not answer.
        """
        deadline = SYSTEM.monotonic() + seconds if seconds is not None else None
        existing = cluster.partitions(self._settings)
        with TopicReader(self._settings) as reader:
            for topic in self._topics:
                while topic in existing and not self._read(reader, topic, deadline):
                    pass
        try:
            with self._connection.transaction():
                if deadline is not None:
                    run(self._connection, limit(self._left(deadline)))
                return run(self._connection, losses.find(self._old, self._new, MAX_NAMED))
        except psycopg.errors.QueryCanceled as error:
            raise self._too_slow() from error

    def _read(self, reader: TopicReader, topic: str, deadline: float | None) -> bool:
        """Note what has come to a retry topic; False when some of it was trimmed meanwhile, which is done by then."""
        spans = {}
        for number, one in retained.bounds(self._settings, topic).items():
            spans[number] = max(one.low, self._next.get((topic, number), 0)), one.end
        with suppress(RecordsDeleted):
            for batch in reader.read(topic, spans):
                run(self._connection, losses.note([self._copy(topic, one) for one in batch]))
                self._next |= {(topic, one.partition): one.offset + 1 for one in batch}
                if deadline is not None:
                    self._left(deadline)
            self._next |= {(topic, number): end for number, (_, end) in spans.items()}
            return True
        return False

    def _copy(self, topic: str, one: LogRecord) -> Copy:
        call = _call(self._new, topic, one)
        key = call.key.replace("\0", "\\x00") if call.key is not None else None
        _, source, event_id, redrive_no, _ = call.identity
        return Copy(topic, one.partition, one.offset, source, event_id, redrive_no, key, call.hop.due_ms)

    def _left(self, deadline: float) -> float:
        if (left := deadline - SYSTEM.monotonic()) <= 0:
            raise self._too_slow()
        return left

    def _too_slow(self) -> TooSlow:
        return TooSlow(
            f"group {self._new.group}: what waits or has failed in generation {self._new.number} could not be compared"
            f" with generation {self._old.number} in time; nothing was switched"
        )


def with_keys(settings: Settings, generation: Generation, events: Sequence[Lost]) -> list[Lost]:
    """The same events, those that are dead with the keys of their dead letters, where these are in the log.

    Raises:
        TopicError: the cluster refuses, or does not answer.
    """
    wanted = {(one.source, one.event_id) for one in events if one.state == processed.Outcome.DEAD_LETTERED}
    keys: dict[tuple[str, str], str] = {}
    if wanted and f"{generation.name}.{DLQ}" in cluster.partitions(settings):
        for letter in dead_letters.read(settings, generation.name):
            if letter.meta is None or letter.key is None:
                continue
            event = processed.short(letter.meta.source), processed.short(letter.meta.id)
            if event in wanted:
                keys[event] = letter.key.decode(errors="replace")
                if len(keys) == len(wanted):
                    break
    return [replace(one, key=keys.get((one.source, one.event_id), one.key)) for one in events]


def _call(generation: Generation, topic: str, one: LogRecord) -> Call:
    stay = OwnedPartition(topic, "", one.partition)
    record = Record(stay, one.offset, one.key, one.value, one.headers, one.timestamp_ms)
    here = Origin("", topic, one.partition, one.offset)
    try:
        hop = retry_headers.read(one.headers, here, one.timestamp_ms)
    except DecodeError:  # somebody else has written it
        hop = None
    return Call(record, generation.group, glance_at(record), hop, generation.number)
