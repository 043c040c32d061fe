"""What the database knows of a document besides its ids: erased; and the audit of operators who erase (`erasures`).

Why some rows stay, and which: docs/decisions/erasure-leaves-ids.md.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from offsetzero.store import answers, chunk_results, embeddings, index, summaries
from offsetzero.store.dead_letter_status import HELD_BY
from offsetzero.store.script import Script

DONE = "done"


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure by an operator. `ended` is None while it is under way, or was interrupted."""

    id: UUID
    tenant_id: str
    document_id: UUID | None
    who: str
    why: str
    documents: int
    at: datetime
    ended_at: datetime | None
    ended: str | None


@dataclass(frozen=True, slots=True)
class Held:
    """A key that waits for an operator: what comes behind its dead letter, the deletion too, is not handled."""

    group: str
    partition: int
    place: int


def erase(document_id: UUID, tenant_id: str) -> Script[int]:
    """Erase what there is of a document that is marked as deleted; again does no harm. In the caller's transaction.

    Its text in every generation of the index, the vectors of it, its summary, what models have answered of it, what was
    said of its runs, its dead letters in the ledger and what operators have edited of them. Rows are taken in the order
    in which groups take them: no deadlock.

    Returns:
        How many answers of models were kept.
    """
    yield from index.remove_everywhere(document_id, tenant_id)
    yield from embeddings.forget(document_id)
    yield from summaries.remove(document_id, tenant_id)
    results = yield from chunk_results.remove(document_id)
    rows = yield "SELECT id FROM runs WHERE document_id = %s ORDER BY id FOR NO KEY UPDATE", (document_id,)
    runs = [row[0] for row in rows]
    yield "DELETE FROM run_events WHERE run_id = ANY (%s)", (runs,)  # each is a copy of what was said then
    yield from answers.forget(runs)
    yield (
        "UPDATE run_steps SET detail = NULL, warning = NULL WHERE run_id = ANY (%s) "
        "AND (detail IS NOT NULL OR warning IS NOT NULL)",
        (runs,),
    )
    yield from _letters([str(document_id), *map(str, runs)])
    return results


def _letters(keys: list[str]) -> Script[None]:
    """The dead letters of keys. Those of a deletion stay: a group has not erased yet."""
    yield (
        "DELETE FROM dead_letter_edits e USING dead_letters l WHERE l.key = ANY (%s) AND e.topic_id = l.topic_id "
        "AND e.partition = l.partition AND e.place = l.place",
        (keys,),
    )
    yield (
        "DELETE FROM dead_letters l WHERE l.key = ANY (%s) AND l.event_type IS DISTINCT FROM 'document.deleted' "  # noqa: S608
        f"AND NOT EXISTS (SELECT FROM holds h WHERE {HELD_BY}) "
        "AND NOT EXISTS (SELECT FROM dead_letter_decisions d WHERE d.topic_id = l.topic_id "
        "AND d.partition = l.partition AND d.place = l.place AND d.done_at IS NULL)",
        (keys,),
    )
    yield (
        "UPDATE dead_letters SET detail = '' WHERE key = ANY (%s) AND event_type IS DISTINCT FROM 'document.deleted'",
        (keys,),
    )


def held(document_id: UUID) -> Script[list[Held]]:
    """The groups in which the deletion of a document waits for an operator, with the dead letter it waits for."""
    rows = yield (
        f"SELECT l.group_name, l.partition, l.place FROM dead_letters l JOIN holds h ON {HELD_BY} "  # noqa: S608
        "WHERE l.key = %s ORDER BY 1, 2, 3",
        (str(document_id),),
    )
    return [Held(*row) for row in rows]


def begin(
    erasure_id: UUID, tenant_id: str, document_id: UUID | None, who: str, why: str, documents: int
) -> Script[None]:
    """Write that an operator begins."""
    yield (
        "INSERT INTO erasures (id, tenant_id, document_id, who, why, documents) VALUES (%s, %s, %s, %s, %s, %s)",
        (erasure_id, tenant_id, document_id, who, why, documents),
    )


def end(erasure_id: UUID, how: str = DONE) -> Script[None]:
    """Write that it has ended, and how."""
    yield "UPDATE erasures SET ended_at = clock_timestamp(), ended = %s WHERE id = %s", (how, erasure_id)


def history() -> Script[list[Erasure]]:
    """All of them, oldest first."""
    rows = yield (
        "SELECT id, tenant_id, document_id, who, why, documents, at, ended_at, ended FROM erasures ORDER BY at, id",
        (),
    )
    return [Erasure(*row) for row in rows]
