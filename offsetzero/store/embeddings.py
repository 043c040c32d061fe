"""Vectors that were paid for (table `embeddings`): kept by text and model, whatever becomes of events and generations.

A document has rows of its own also where another one of its tenant has the same text, so that erasing it is one
DELETE and takes nothing from others.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from offsetzero.store import documents
from offsetzero.store.script import Script


@dataclass(frozen=True, slots=True)
class Model:
    """A model that makes vectors, and how many numbers each has: those of two models cannot be compared."""

    name: str
    dimensions: int

    def __str__(self) -> str:
        return f"{self.name!r} ({self.dimensions} dimensions)"


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of a document, by their hashes, for a model."""

    document_id: UUID
    tenant_id: str
    model: Model
    hashes: Sequence[bytes]

    @property
    def _key(self) -> tuple[UUID, str, int]:
        return self.document_id, self.model.name, self.model.dimensions


def hash_of(text: str) -> bytes:
    """What a text is known by."""
    return hashlib.sha256(text.encode()).digest()


def missing(texts: Texts) -> Script[list[bytes] | None]:
    """Those of a document's texts that no vector is kept of. In a transaction.

    What is kept of the same text in other documents of the tenant is taken over.

    Returns:
        Their hashes in the same order; None when the document was deleted.
    """
    if (yield from documents.is_deleted(texts.document_id, wait=True)):
        return None
    known, name, dimensions = texts._key, texts.model.name, texts.model.dimensions
    yield (
        "INSERT INTO embeddings (document_id, model, dimensions, hash, tenant_id, vector)"
        " SELECT %s, %s, %s, t.hash, %s, e.vector FROM unnest(%s::bytea[]) AS t (hash)"
        " CROSS JOIN LATERAL (SELECT e.vector FROM embeddings e WHERE e.hash = t.hash AND e.tenant_id = %s"
        " AND e.model = %s AND e.dimensions = %s AND e.document_id <> %s LIMIT 1) e"
        " WHERE NOT EXISTS (SELECT FROM embeddings o WHERE o.document_id = %s AND o.model = %s AND o.dimensions = %s"
        " AND o.hash = t.hash) ORDER BY t.hash ON CONFLICT DO NOTHING",
        (*known, texts.tenant_id, texts.hashes, texts.tenant_id, name, dimensions, texts.document_id, *known),
    )
    rows = yield (
        "SELECT t.hash FROM unnest(%s::bytea[]) WITH ORDINALITY AS t (hash, number)"
        " WHERE NOT EXISTS (SELECT FROM embeddings e WHERE e.document_id = %s AND e.model = %s AND e.dimensions = %s"
        " AND e.hash = t.hash) ORDER BY t.number",
        (texts.hashes, *known),
    )
    return [bytes(row[0]) for row in rows]


def keep(texts: Texts, vectors: Mapping[bytes, Sequence[float]]) -> Script[bool]:
    """Keep vectors of some of a document's texts. In a transaction.

    Returns:
        False when the document was deleted: nothing of it is kept.
    """
    if (yield from documents.is_deleted(texts.document_id, wait=True)):
        return False
    hashes = sorted(vectors)
    yield (
        "INSERT INTO embeddings (document_id, model, dimensions, hash, tenant_id, vector)"
        " SELECT %s, %s, %s, t.hash, %s, t.vector::real[] FROM unnest(%s::bytea[], %s::text[]) AS t (hash, vector)"
        " ON CONFLICT DO NOTHING",
        (*texts._key, texts.tenant_id, hashes, [f"{{{_numbers(vectors[one])}}}" for one in hashes]),
    )
    return True


def forget(document_id: UUID) -> Script[None]:
    """Keep no vector of a document's texts any more."""
    yield "DELETE FROM embeddings WHERE document_id = %s", (document_id,)


def forget_model(model: Model, most: int) -> Script[int]:
    """Keep no vectors of a model any more, of so many texts at once; returns of how many."""
    rows = yield (
        "WITH gone AS (DELETE FROM embeddings WHERE ctid = ANY (ARRAY(SELECT ctid FROM embeddings WHERE model = %s"
        " AND dimensions = %s LIMIT %s)) RETURNING 1) SELECT count(*) FROM gone",
        (model.name, model.dimensions, most),
    )
    return int(rows[0][0])


def written(vector: Sequence[float]) -> str:
    """A vector as pgvector reads it."""
    return f"[{_numbers(vector)}]"


def _numbers(vector: Sequence[float]) -> str:
    return ",".join(f"{number:.9g}" for number in vector)  # nine digits tell any two floats of four bytes apart
