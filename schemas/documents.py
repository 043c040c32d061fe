"""Events of documents: the key is the document id."""

from datetime import datetime
from uuid import UUID

from offsetzero.schemas.event import Event


class DocumentUploaded(Event, type="document.uploaded", key="document_id"):
    """A document was stored and waits to be worked on. Its content is at `uri` (claim check).

    What an event says stays in the log for ever, so it says nothing personal. `name` is empty since contract v2: people
    put themselves into names of files. It is in the table `documents` and in `GET /documents/{id}`, until it is erased.
    """

    document_id: UUID
    tenant_id: str
    run_id: UUID
    name: str = ""
    content_type: str
    uri: str
    size_bytes: int
    sha256: str
    uploaded_at: datetime


class DocumentDeleted(Event, type="document.deleted", key="document_id"):
    """A document was removed and must vanish from every projection."""

    document_id: UUID
    tenant_id: str
    deleted_at: datetime
