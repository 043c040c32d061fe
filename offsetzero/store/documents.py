"""What tenants uploaded. One tenant has a file once: its SHA-256 tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from offsetzero.store.lanes import Lane, Why
from offsetzero.store.run_states import RunStatus
from offsetzero.store.script import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A stored document."""

    id: UUID
    tenant_id: str
    name: str
    content_type: str
    uri: str
    size_bytes: int
    sha256: str
    version: int
    uploaded_at: datetime


@dataclass(frozen=True, slots=True)
class Intake:
    """Where a document and its newest run stand.

    Attributes:
        chosen: the lane of a run that was begun in this transaction, and why.
    """

    document_id: UUID
    run_id: UUID
    status: RunStatus
    chosen: tuple[Lane, Why] | None = None

    @property
    def ended_badly(self) -> bool:
        """Whether the run was of no use: the same content may have another."""
        return self.status in (RunStatus.FAILED, RunStatus.CANCELLED)


_COLUMNS = "id, tenant_id, name, content_type, uri, size_bytes, sha256, version, uploaded_at"


def find(tenant_id: str, document_id: UUID) -> Script[Document | None]:
    """A tenant's document; None when there is none, when it is another's, and when it was deleted."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM documents WHERE id = %s AND tenant_id = %s AND deleted_at IS NULL",  # noqa: S608
        (document_id, tenant_id),
    )
    return _document(rows[0]) if rows else None


def find_intake(tenant_id: str, sha256: str) -> Script[Intake | None]:
    """As `find_intakes`, of one."""
    (found,) = yield from find_intakes([(tenant_id, sha256)])
    return found


def find_intakes(contents: Sequence[tuple[str, str]]) -> Script[list[Intake | None]]:
    """The document of a tenant with a content, and its newest run; of many tenants and SHA-256.

    Newest by the database's clock: run ids come from the clocks of several machines.
    """
    rows = yield (
        "SELECT one.place, d.id, r.id, r.status FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY "
        "AS one (tenant_id, sha256, place) JOIN documents d ON d.tenant_id = one.tenant_id AND d.sha256 = one.sha256 "
        "AND d.deleted_at IS NULL CROSS JOIN LATERAL (SELECT id, status FROM runs WHERE document_id = d.id "
        "ORDER BY created_at DESC, id DESC LIMIT 1) AS r",
        ([tenant_id for tenant_id, _ in contents], [sha256 for _, sha256 in contents]),
    )
    found = {place: Intake(document_id, run_id, RunStatus(status)) for place, document_id, run_id, status in rows}
    return [found.get(place) for place in range(1, len(contents) + 1)]


def lock(tenant_id: str, document_id: UUID) -> Script[bool]:
    """Hold a document until the transaction ends, against uploads of the same content and its deletion.

    Returns:
        False when there is none any more.
    """
    rows = yield (
        "SELECT 1 FROM documents WHERE id = %s AND tenant_id = %s AND deleted_at IS NULL FOR NO KEY UPDATE",
        (document_id, tenant_id),
    )
    return bool(rows)


def renew(document: Document) -> Script[Document]:
    """Describe a locked document as its newest upload does, with the next version."""
    rows = yield (
        "UPDATE documents SET name = %s, content_type = %s, uri = %s, uploaded_at = %s, version = version + 1 "  # noqa: S608
        f"WHERE id = %s RETURNING {_COLUMNS}",
        (document.name, document.content_type, document.uri, document.uploaded_at, document.id),
    )
    return _document(rows[0])


def delete(tenant_id: str, document_id: UUID, deleted_at: datetime) -> Script[Document | None]:
    """Mark a document as deleted, and forget its name.

    Returns:
        It, with its new version; None when there was none.
    """
    rows = yield (
        "UPDATE documents SET deleted_at = %s, version = version + 1, name = '' "  # noqa: S608
        f"WHERE id = %s AND tenant_id = %s AND deleted_at IS NULL RETURNING {_COLUMNS}",
        (deleted_at, document_id, tenant_id),
    )
    return _document(rows[0]) if rows else None


def tenant_of(document_id: UUID) -> Script[str | None]:
    """Whose document it is, or was; None when it never was here."""
    rows = yield "SELECT tenant_id FROM documents WHERE id = %s", (document_id,)
    return str(rows[0][0]) if rows else None


def living(tenant_id: str, limit: int) -> Script[list[UUID]]:
    """Some of a tenant's documents that are not deleted; none when none is left."""
    rows = yield "SELECT id FROM documents WHERE tenant_id = %s AND deleted_at IS NULL LIMIT %s", (tenant_id, limit)
    return [row[0] for row in rows]


def living_after(after: UUID | None, tenant_id: str | None, uploaded_until: datetime, limit: int) -> Script[list[UUID]]:
    """Documents that are not deleted, of a tenant or of all, in the order of their ids.

    Args:
        after: the last one that the caller knows; None for the first.
        tenant_id: None means all.
        uploaded_until: not those that were uploaded later.
        limit: how many at most.
    """
    rows = yield (
        "SELECT id FROM documents WHERE deleted_at IS NULL AND (%s::uuid IS NULL OR id > %s) "  # noqa: S608
        f"{'' if tenant_id is None else 'AND tenant_id = %s '}AND uploaded_at <= %s ORDER BY id LIMIT %s",
        (after, after, *(() if tenant_id is None else (tenant_id,)), uploaded_until, limit),
    )
    return [row[0] for row in rows]


def lock_free(document_ids: list[UUID]) -> Script[dict[UUID, Document]]:
    """Hold those documents that nobody holds and that are not deleted, as `lock` does; waits for none."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM documents WHERE id = ANY (%s) AND deleted_at IS NULL ORDER BY id "  # noqa: S608
        "FOR NO KEY UPDATE SKIP LOCKED",
        (document_ids,),
    )
    return {row[0]: _document(row) for row in rows}


def is_living(document_id: UUID) -> Script[bool]:
    """Whether there is such a document, and it is not deleted."""
    rows = yield "SELECT 1 FROM documents WHERE id = %s AND deleted_at IS NULL", (document_id,)
    return bool(rows)


def amount(tenant_id: str) -> Script[tuple[int, int]]:
    """How many documents a tenant has, and their bytes."""
    rows = yield (
        "SELECT count(*), coalesce(sum(size_bytes), 0)::bigint FROM documents "
        "WHERE tenant_id = %s AND deleted_at IS NULL",
        (tenant_id,),
    )
    return int(rows[0][0]), int(rows[0][1])


def find_deleted(tenant_id: str, document_id: UUID) -> Script[Document | None]:
    """A tenant's document that was deleted, and holds it until the transaction ends; None when there is none."""
    rows = yield (
        f"SELECT {_COLUMNS} FROM documents WHERE id = %s AND tenant_id = %s AND deleted_at IS NOT NULL "  # noqa: S608
        "FOR NO KEY UPDATE",
        (document_id, tenant_id),
    )
    return _document(rows[0]) if rows else None


def is_deleted(document_id: UUID, *, wait: bool = False) -> Script[bool]:
    """Whether a document was deleted; False for one that never was here.

    Args:
        wait: for a deletion that is under way.
    """
    rows = yield (
        f"SELECT deleted_at IS NOT NULL FROM documents WHERE id = %s{' FOR SHARE' if wait else ''}",  # noqa: S608
        (document_id,),
    )
    return bool(rows and rows[0][0])


def name(document_id: UUID) -> Script[str | None]:
    """What a document is called; None for one that never was here. Empty once it is erased."""
    rows = yield "SELECT name FROM documents WHERE id = %s", (document_id,)
    return str(rows[0][0]) if rows else None


def _document(row: tuple[object, ...]) -> Document:
    return Document(**dict(zip(_COLUMNS.split(", "), row, strict=True)))  # type: ignore[arg-type]
