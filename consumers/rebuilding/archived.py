"""What only the archive has of a group's sources: read into a generation before its members read the log."""

from collections.abc import Iterable, Sequence

import psycopg

from offsetzero.consumers.replaying.spans import Span
from offsetzero.generation import Generation
from offsetzero.history.archive import Archive
from offsetzero.history.missing import gaps
from offsetzero.settings import Settings
from offsetzero.store import positions
from offsetzero.store.positions import Position
from offsetzero.store.script import run
from offsetzero.topics import retained


def find(
    settings: Settings, connection: psycopg.Connection, generation: Generation, topics: Iterable[str]
) -> list[Span]:
    """The offsets that a generation has not read, and the log has no more, of partitions of which the archive has any.

    A new generation does without what neither of them has, which was said before it was begun. One that has read the
    log before and was overtaken by its retention does not: then nothing is found, and its members say what is gone.

    Args:
        settings: name the cluster and the object store.
        connection: to the database; in autocommit.
        generation: of the group.
        topics: its sources.

    Raises:
        TopicError: a topic is missing, or the cluster does not answer.
        HistoryError: a manifest cannot be read.
    """
    at = run(connection, positions.of_generation(generation))
    found = []
    for topic in topics:
        archive: Archive | None = None
        for number, one in sorted(retained.bounds(settings, topic).items()):
            begun = at.get((topic, number))
            first = begun.offset if begun is not None else 0
            if first >= one.low:
                continue
            archive = archive or Archive(settings, topic)
            kept = [(it.first, it.end) for it in archive.segments(number)]
            holes = gaps(one.low, kept, first)
            if holes and (begun is not None or holes == [(0, one.low)]):
                continue
            found.append(Span(topic, number, archive.topic_id, first, one.low, None, one.low))
    return found


def have_read(connection: psycopg.Connection, generation: Generation, spans: Sequence[Span]) -> None:
    """Note that a generation, which has no members, is behind these."""
    reached = {span.place: Position(span.topic_id, span.end) for span in spans}
    run(connection, positions.replace(generation, reached))
