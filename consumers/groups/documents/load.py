"""The text of an uploaded document: fetch its object, have it read in a process of its own unless it is little text."""

import os
import tempfile
from typing import IO
from uuid import UUID

from offsetzero.consumers.context import Context
from offsetzero.consumers.groups.documents import formats, plain
from offsetzero.consumers.groups.documents.pages import Extracted
from offsetzero.consumers.groups.extraction import results, shared
from offsetzero.retry.failures import Permanent
from offsetzero.schemas.documents import DocumentUploaded
from offsetzero.settings import DocumentSettings
from offsetzero.store import documents
from offsetzero.store.objects import ObjectMissing, Objects, ObjectTooLarge
from offsetzero.store.script import run

LITTLE = 64 * 1024
"""Bytes of plain text that are read here: milliseconds, by codecs and expressions of Python whose time is bounded."""
DELETED = "the document was deleted before it could be worked on"


def load(event: DocumentUploaded, ctx: Context) -> Extracted | None:
    """Extract the text of a document, page by page.

    Returns:
        None when the document was erased: there is nothing to do.

    Raises:
        Permanent: `unsupported-type`, `object-missing`, `too-large`, and what the readers raise.
        Poison: `corrupt`, and what a document does to its reader; see `ReaderPool.read`.
        Transient: the reader was lost for reasons outside the document.
    """
    with ctx.pool.connection() as connection:
        if run(connection, documents.is_deleted(event.document_id)):
            return None
    found = formats.find(event.content_type, event.name)
    if found is None:
        raise Permanent("unsupported-type", f"no reader for {event.content_type[:100]!r}")
    # Without a name in the file system: nothing is left of it, however this process ends.
    with tempfile.TemporaryFile(prefix="offsetzero-") as file:
        try:
            _fetch(event, ctx, file)
        except ObjectMissing as error:
            with ctx.pool.connection() as connection:
                if run(connection, documents.is_deleted(event.document_id, wait=True)):
                    return None  # it is erased right now, the object first
            raise Permanent("object-missing", str(error)) from error
        return read(ctx.settings.documents, found.content_type, file)


def read(settings: DocumentSettings, content_type: str, file: IO[bytes]) -> Extracted:
    """Read a document: in a process of its own, unless it is little text.

    Args:
        settings: of the processes.
        content_type: which reader to use.
        file: an open file of the system.

    Raises:
        Failure: as `load`.
    """
    file.flush()
    if content_type == formats.TEXT.content_type and os.fstat(file.fileno()).st_size <= LITTLE:
        file.seek(0)
        return results.checked(plain.read(file))
    return shared.pool(settings).read(content_type, file)


def document_of(key: str | None) -> UUID | None:
    """The document whose key a record has; None for a key that is no id of one."""
    try:
        return UUID(key) if key else None
    except ValueError:
        return None


def _fetch(event: DocumentUploaded, ctx: Context, file: IO[bytes]) -> None:
    try:
        Objects(ctx.settings.objects).download(event.uri, file, ctx.settings.api.max_upload_bytes)
    except ObjectTooLarge as error:
        raise Permanent("too-large", str(error)) from error
