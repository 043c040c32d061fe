"""What a model has answered about parts of a document, kept so that nobody pays for an answer twice.

By event, hash of the question, and model; why, and until when: docs/decisions/answers-are-kept-by-event.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from offsetzero.store import documents
from offsetzero.store.script import Script

AT_ONCE = 5_000
"""Rows that are deleted by one statement."""


class Asked(NamedTuple):
    """For which event a model was asked; an event id is unique only with its source."""

    source: str
    event_id: str
    model: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model has answered, which one said it was, and the tokens; `estimated_tokens` of these were not told."""

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    estimated_tokens: int = 0


def kept(asked: Asked, hashes: Sequence[bytes]) -> Script[dict[bytes, Answer]]:
    """What is kept of these questions, by their hashes."""
    rows = yield (
        "SELECT chunk_hash, text, answered_by, input_tokens, output_tokens, estimated_tokens FROM chunk_results "
        "WHERE source = %s AND event_id = %s AND model = %s AND chunk_hash = ANY (%s)",
        (*asked, list(hashes)),
    )
    return {bytes(chunk_hash): Answer(*answer) for chunk_hash, *answer in rows}


def keep(asked: Asked, chunk_hash: bytes, document_id: UUID, answer: Answer) -> Script[bool]:
    """Keep an answer; one that is kept already stays.

    Returns:
        False when the document is erased, or is being erased: then nothing of it is kept.
    """
    if (yield from documents.is_deleted(document_id, wait=True)):
        return False
    yield (
        "INSERT INTO chunk_results (source, event_id, model, chunk_hash, document_id, text, answered_by, "
        "input_tokens, output_tokens, estimated_tokens) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
        "ON CONFLICT DO NOTHING",
        (
            *asked,
            chunk_hash,
            document_id,
            answer.text,
            answer.model,
            answer.input_tokens,
            answer.output_tokens,
            answer.estimated_tokens,
        ),
    )
    return True


def remove(document_id: UUID) -> Script[int]:
    """Delete what is kept of a document; gives how many answers that were."""
    rows = yield (
        "WITH gone AS (DELETE FROM chunk_results WHERE document_id = %s RETURNING 1) SELECT count(*) FROM gone",
        (document_id,),
    )
    return int(rows[0][0])


def prune(keep_seconds: float) -> Script[int]:
    """Delete answers that are older than so many seconds, some thousands at once; gives how many."""
    rows = yield (
        "WITH old AS (SELECT source, event_id, model, chunk_hash FROM chunk_results "
        "WHERE at < now() - make_interval(secs => %s) ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED), "
        "gone AS (DELETE FROM chunk_results c USING old WHERE (c.source, c.event_id, c.model, c.chunk_hash) = "
        "(old.source, old.event_id, old.model, old.chunk_hash) RETURNING 1) SELECT count(*) FROM gone",
        (keep_seconds, AT_ONCE),
    )
    return int(rows[0][0])
