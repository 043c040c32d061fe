"""The text of an uploaded document: fetch its object, read it by its type."""

import tempfile
from pathlib import Path

from offsetzero.consumers.context import Context
from offsetzero.consumers.groups.documents import pdf, plain
from offsetzero.consumers.groups.documents.pages import Extracted
from offsetzero.retry.failures import Permanent
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.store import documents
from offsetzero.store.objects import ObjectMissing, Objects
from offsetzero.store.script import run

READERS = {"application/pdf": pdf.read, "text/plain": plain.read}

DELETED = "the document was deleted before it could be worked on"


def load(event: DocumentUploaded, ctx: Context) -> Extracted | None:
    """Extract the text of a document, page by page.

    Returns:
        None when the document was deleted: there is nothing to do.

    Raises:
        Permanent: `unsupported-type`, `object-missing`, and what the readers raise.
        Poison: `corrupt`.
    """
    with ctx.pool.connection() as connection:
        if run(connection, documents.is_deleted(event.document_id)):
            return None
    reader = READERS.get(event.content_type)
    if reader is None:
        raise Permanent("unsupported-type", f"no reader for {event.content_type[:100]!r}")
    with tempfile.TemporaryDirectory(prefix="offsetzero-") as folder:
        path = Path(folder) / "content"
        try:
            Objects(ctx.settings.objects).download(event.uri, path)
        except ObjectMissing as error:
            raise Permanent("object-missing", str(error)) from error
        return reader(path)
