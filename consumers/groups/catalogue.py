"""The group `catalogue`: the newest state of each document, which `GET /catalogue` reads."""

from collections.abc import Iterable
from uuid import UUID

from offsetzero.consumers.context import BatchContext, Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.projection import Projection
from offsetzero.retry.failures import Poison
from offsetzero.schemas.documents import DocumentDeleted, DocumentUploaded
from offsetzero.store import catalogue
from offsetzero.store.catalogue import Entry
from offsetzero.store.script import run

MAX_NAME = 255
"""Characters of a name that are kept."""

CONCURRENCY = 4  # batches at once of one process: more wait for the interpreter, and for each other's log writes
BATCH = 1_000  # events of one: a rebuild shares the statements of a transaction between more of them

group = ConsumerGroup(
    "catalogue", concurrency=CONCURRENCY, projection=Projection(catalogue.TABLES, indexes=catalogue.INDEXES)
)


@group.batch(DocumentUploaded, DocumentDeleted, size=BATCH)
def note(events: list[DocumentUploaded | DocumentDeleted], ctx: BatchContext) -> None:
    """Write what the newest event of each document says, all in one statement."""
    entries = newest(_entry(event, one) for event, one in zip(events, ctx.contexts, strict=True))
    if tied := run(ctx.connection, catalogue.put(entries)):
        raise _tied(tied[0])


def newest(entries: Iterable[Entry]) -> list[Entry]:
    """Of each document the newest one, by the rule of `catalogue.put`.

    Raises:
        Poison: it cannot be told which of two is.
    """
    found: dict[UUID, Entry] = {}
    for entry in entries:
        known = found.setdefault(entry.document_id, entry)
        if known is not entry and _is_newer(entry, known):
            found[entry.document_id] = entry
    return list(found.values())


def _is_newer(entry: Entry, known: Entry) -> bool:
    ranks = [(one.deleted_at is not None, one.sequence) for one in (entry, known)]
    if ranks[0] != ranks[1]:
        return ranks[0] > ranks[1]
    if (entry.topic_id, entry.partition) != (known.topic_id, known.partition):
        raise _tied(entry.document_id)
    return entry.place > known.place


def _tied(document_id: UUID) -> Poison:
    return Poison(
        "not-comparable",
        f"document {document_id}: two events of different partitions have the same version (ce_sequence), or none:"
        " nobody can say which is newer; publish with `sequence`",
    )


def _entry(event: DocumentUploaded | DocumentDeleted, ctx: Context) -> Entry:
    at, sequence = ctx.record, ctx.sequence or 0
    who = event.document_id, event.tenant_id, sequence, at.topic_id, at.partition, at.offset
    if type(event) is DocumentDeleted:  # it has been looked at; `isinstance` takes ten times as long
        return Entry(*who, "", "", 0, None, event.deleted_at)
    assert type(event) is DocumentUploaded  # noqa: S101 - there is no third kind
    name = event.name.replace("\0", "")[:MAX_NAME]
    return Entry(*who, name, event.content_type, event.size_bytes, event.uploaded_at, None)
