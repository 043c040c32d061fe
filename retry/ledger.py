"""Projects dead-letter topics into the ledger of the database (design section 7).

The rows of a record and the position behind it are one transaction, under a lock on the position: whoever projects,
and however often, a record is in the ledger once. Nothing that a record holds can make it fail.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec

from offsetzero.retry.dead_letters import DeadLetter, LetterReader
from offsetzero.retry.dead_letters import groups as groups_with_dead_letters
from offsetzero.settings import Settings
from offsetzero.store import dead_letter_records
from offsetzero.store.database import Connection
from offsetzero.store.dead_letters import Entry
from offsetzero.store.processed import RAW_SOURCE, short
from offsetzero.store.script import Script, run
from offsetzero.store.sentences import storable
from offsetzero.topics import offsets
from offsetzero.topics.admin import client
from offsetzero.topics.catalogue import DLQ
from offsetzero.topics.names import Names

BATCH = 5_000
MAX_TEXT = 1_000
MAX_FINGERPRINT = 64  # ours have 16
MAX_KEY = 800  # with three bytes for each, the most that `_stored` makes of a byte, 2,400: a B-tree takes 2,700
_MAX_MS = 253_402_300_799_000  # the last second of the year 9999


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """A group's dead-letter topic as it is now: its id, and the number of its partitions."""

    group: str
    id: str
    partitions: int

    @property
    def name(self) -> str:
        """Our name of it."""
        return f"{self.group}.{DLQ}"


def topics(settings: Settings, groups: Sequence[str] | None = None) -> dict[str, DeadLetterTopic]:
    """The dead-letter topics of these groups, or of all that have one, by group.

    Raises:
        TopicError: the cluster does not answer.
    """
    wanted = groups_with_dead_letters(settings) if groups is None else groups
    found = offsets.describe(client(settings), Names(settings.kafka.namespace), [f"{group}.{DLQ}" for group in wanted])
    return {
        group: DeadLetterTopic(group, found[name].id, found[name].partitions)
        for group in wanted
        if (name := f"{group}.{DLQ}") in found
    }


def ends(
    settings: Settings, of: Iterable[DeadLetterTopic], *, first: bool = False
) -> dict[tuple[DeadLetterTopic, int], int]:
    """The end of each partition, or the first offset that the log still has there.

    Raises:
        TopicError: the cluster does not answer.
    """
    spec = OffsetSpec.earliest() if first else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {(topic.name, number): topic for topic in of for number in range(topic.partitions)}
    committed = IsolationLevel.READ_COMMITTED
    found = offsets.ends(client(settings), Names(settings.kafka.namespace), places, spec, isolation=committed)
    return {(places[place], place[1]): offset for place, offset in found.items()}


def project(connection: Connection, topic: DeadLetterTopic, letters: Sequence[DeadLetter]) -> int:
    """Write records of one topic, those of a partition in order, into the ledger; in a transaction of its own.

    Returns:
        How many were new.
    """
    if not letters:
        return 0
    with connection.transaction():
        return run(connection, _project(topic, letters))


def catch_up(
    settings: Settings, connection: Connection, of: Mapping[str, DeadLetterTopic]
) -> Iterator[tuple[int, int]]:
    """Bring the ledger to where dead-letter topics end now, whether or not somebody else does so, too.

    Args:
        settings: name the cluster.
        connection: in autocommit mode.
        of: the topics, by group.

    Yields:
        How many records were read, and how many there were to read, after each batch.

    Raises:
        TopicError: the cluster does not answer.
    """
    behind = _behind(connection, of.values(), ends(settings, of.values()))
    total = sum(end - position for position, end in behind.values())
    done = 0
    if not behind:
        return
    with LetterReader(settings) as reader:
        for topic in of.values():
            spans = {number: span for (one, number), span in behind.items() if one == topic}
            letters = reader.read(topic.group, spans)
            while batch := list(islice(letters, BATCH)):
                if topics(settings, [topic.group]).get(topic.group) != topic:
                    break  # deleted meanwhile, and perhaps made again: another topic, for the next time
                project(connection, topic, batch)
                done += len(batch)
                yield done, max(done, total)


def rebuild(settings: Settings, connection: Connection, of: Mapping[str, DeadLetterTopic]) -> Iterator[tuple[int, int]]:
    """Make the rows of these topics anew, as far as the log still has their records; in the caller's transaction.

    Until that commits, readers see the rows as they were, and members of the ledger's group wait. What operators have
    decided is in tables of its own, and stays.

    Args:
        settings: name the cluster.
        connection: in a transaction.
        of: the topics, by group.

    Yields:
        As `catch_up`.

    Raises:
        TopicError: the cluster does not answer.
    """
    for (topic, number), low in sorted(ends(settings, of.values(), first=True).items(), key=lambda one: one[0][1]):
        key = topic.id, number, low
        connection.execute("DELETE FROM dead_letters WHERE topic_id = %s AND partition = %s AND place >= %s", key)
        connection.execute(
            "UPDATE dead_letter_positions SET position = %s WHERE topic_id = %s AND partition = %s",
            (low, topic.id, number),
        )
    yield from catch_up(settings, connection, of)


def _behind(
    connection: Connection, of: Iterable[DeadLetterTopic], ends: Mapping[tuple[DeadLetterTopic, int], int]
) -> dict[tuple[DeadLetterTopic, int], tuple[int, int]]:
    """The partitions that hold more than the ledger: where it is, and where they end."""
    ids = [topic.id for topic in of]
    rows = connection.execute(
        "SELECT topic_id, partition, position FROM dead_letter_positions WHERE topic_id = ANY (%s)", (ids,)
    ).fetchall()
    positions = {(topic_id, number): position for topic_id, number, position in rows}
    found = {}
    for (topic, number), end in ends.items():
        position = positions.get((topic.id, number), 0)
        if position < end:
            found[topic, number] = (position, end)
    return found


def _project(topic: DeadLetterTopic, letters: Sequence[DeadLetter]) -> Script[int]:
    at = yield from dead_letter_records.positions({(topic.id, letter.partition): topic.name for letter in letters})
    new = [entry_of(letter, topic.id) for letter in letters if letter.offset >= at[topic.id, letter.partition]]
    added = yield from dead_letter_records.add(new)
    reached = {(topic.id, entry.partition): entry.place + 1 for entry in new}
    yield from dead_letter_records.advance(reached)
    return added


def entry_of(letter: DeadLetter, topic_id: str) -> Entry:
    """What the ledger keeps of a dead letter: all texts are such as PostgreSQL takes, and not longer than people read.

    Args:
        letter: a record of a dead-letter topic.
        topic_id: of that topic.
    """
    meta, hop = letter.meta, letter.hop
    source, event_id = (short(meta.source), short(meta.id)) if meta else (RAW_SOURCE, str(hop.origin))
    return Entry(
        topic_id=topic_id,
        partition=letter.partition,
        place=letter.offset,
        group_name=letter.group,
        failed_at=datetime.fromtimestamp(min(max(letter.failed_at_ms, 0), _MAX_MS) / 1000, UTC),
        source=_stored(source),
        event_id=_stored(event_id),
        redrive_no=hop.redrive_no,
        event_type=_stored(meta.type) if meta else None,
        tenant_id=_stored(meta.tenant_id) if meta and meta.tenant_id else None,
        run_id=_uuid(meta.run_id) if meta else None,
        key=None if letter.key is None else _stored(letter.key[:MAX_KEY].decode(errors="backslashreplace"))[:MAX_KEY],
        failure=_stored(letter.failure),
        reason=_stored(letter.reason),
        detail=_stored(letter.detail),
        fingerprint=_stored(letter.fingerprint[:MAX_FINGERPRINT]),
        attempt=hop.attempt,
        origin_topic_id=_stored(hop.origin.topic_id),
        origin_topic=_stored(hop.origin.topic),
        origin_partition=hop.origin.partition,
        origin_offset=hop.origin.offset,
    )


def _stored(text: str) -> str:
    return storable(text, MAX_TEXT)


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
