"""Erase a document: what the API's DELETE does, and `offsetzero erase`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from offsetzero.clock import SYSTEM, Clock
from offsetzero.producers import outbox
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.settings import Settings
from offsetzero.store import documents, erasure, lanes
from offsetzero.store.database import Connection
from offsetzero.store.documents import Document
from offsetzero.store.lanes import Lane
from offsetzero.store.objects import Objects
from offsetzero.store.script import Script, run

PAGE = 500
GRACE = timedelta(hours=1)


def key_of(tenant_id: str, document_id: UUID) -> str:
    """Where the content of a document is in the object store."""
    return f"documents/{tenant_id}/{document_id}"


@dataclass(frozen=True, slots=True)
class Erased:
    """A document that is erased, and how many answers of models were kept of it."""

    document: Document
    results: int


def erase(
    tenant_id: str, document_id: UUID, at: datetime, *, source: str, again: bool = False
) -> Script[Erased | None]:
    """Mark a document as deleted, tell all groups so, and erase what the database knows of it.

    The caller removes the object before it commits: an erasure that is interrupted anywhere did not take place, and
    is begun again. The row of the document is held meanwhile against uploads of the same content.

    Args:
        tenant_id: whose it is.
        document_id: which.
        at: now.
        source: `ce_source` of the event.
        again: also one that was deleted before.

    Returns:
        What was erased; None when there is no such document.
    """
    document = yield from documents.delete(tenant_id, document_id, at)
    if document is not None:
        event = DocumentDeleted(document_id=document_id, tenant_id=tenant_id, deleted_at=at)
        # That of its upload, however long ago: groups that nobody waits for may not have handled it yet.
        bulk = (yield from lanes.of_last(document_id)) is Lane.BULK
        yield from outbox.record(event, source=source, sequence=document.version, bulk=bulk)
    elif again:
        document = yield from documents.find_deleted(tenant_id, document_id)
    if document is None:
        return None
    return Erased(document, (yield from erasure.erase(document_id, tenant_id)))


class Eraser:
    """Erases documents one by one, each in a transaction of its own with its object; for commands. It blocks.

    Args:
        connection: in autocommit mode.
        settings: name the object store, and `ce_source` of the events.

    Attributes:
        results: answers of models that were kept of the documents erased so far.
    """

    def __init__(self, connection: Connection, settings: Settings, clock: Clock = SYSTEM) -> None:
        self._connection = connection
        self._source = settings.source
        self._objects = Objects(settings.objects)
        self._clock = clock
        self.results = 0

    def document(self, tenant_id: str, document_id: UUID) -> bool:
        """Erase a document, also one that was deleted before; False when there is none.

        Raises:
            ObjectMissing: its content is in another object store than the settings name; nothing was erased.
            obstore.exceptions.BaseError: the object store does not remove it; nothing was erased.
        """
        with self._connection.transaction():
            script = erase(tenant_id, document_id, self._clock.now(), source=self._source, again=True)
            found = run(self._connection, script)
            if found is not None:
                self._objects.remove(self._objects.key(found.document.uri))
        self.results += found.results if found is not None else 0
        return found is not None

    def tenant(self, tenant_id: str) -> Iterator[UUID]:
        """Erase all documents of a tenant; yields each when it is done. Interrupted, the same call does the rest.

        Raises:
            ObjectMissing, obstore.exceptions.BaseError: as `document`.
        """
        while found := run(self._connection, documents.living(tenant_id, PAGE)):
            for document_id in found:
                self.document(tenant_id, document_id)
                yield document_id

    def leftovers(self, tenant_id: str, *, remove: bool) -> int:
        """The objects of a tenant that belong to no document: of uploads that were killed before they were recorded.

        Args:
            tenant_id: whose.
            remove: whether to remove them, or only to count. What is younger than an hour may still be recorded.
        """
        count, before = 0, self._clock.now() - GRACE
        for key in self._objects.keys(f"documents/{tenant_id}", before=before):
            try:
                document_id = UUID(key.rpartition("/")[2])
            except ValueError:
                continue  # not one of ours
            if not run(self._connection, documents.is_living(document_id)):
                count += 1
                if remove:
                    self._objects.remove(key)
        return count
