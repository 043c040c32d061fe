"""The re-index of a schedule: another run of each document, a page at a time.

Each page is a transaction that also says how far it has come: killed anywhere, the next scheduler goes on behind the
last page, and each document has one run for a fire time. All of it asks for the lane for backfill, so that what is
uploaded meanwhile does not wait behind it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from offsetzero.producers import runs
from offsetzero.producers.schedules.firing import span_of
from offsetzero.schemas.ids import uuid7_of
from offsetzero.settings import Settings
from offsetzero.store import documents, fires
from offsetzero.store.documents import Intake
from offsetzero.store.fires import Page
from offsetzero.store.script import Script

PAGE = 100
"""Documents of one transaction: they are held until it ends, for some tenths of a second."""


class Turned(NamedTuple):
    """A page of a re-index. `documents` is how many it had: none when the next one is held by somebody, or `over`."""

    fire_at: datetime
    documents: int
    over: bool
    begun: Sequence[Intake] = ()


def turn(page: Page, settings: Settings) -> Script[Turned]:
    """Begin the runs of the next page of a re-index, in the transaction that has taken it (`fires.take_page`).

    It waits for no document: behind one that an upload or a deletion holds, it comes again.
    """
    found = yield from documents.living_after(page.after, page.tenant_id, page.fire_at, PAGE)
    if not found:
        yield from fires.end(page.fire_id)
        return Turned(page.fire_at, 0, True)
    free = yield from documents.lock_free(found)
    begun, last = list[Intake](), page.after
    for document_id in found:
        document = free.get(document_id)
        if document is not None:
            event_id = uuid7_of(page.fire_at, page.fire_id.bytes, document_id.bytes)
            span = span_of(page.fire_id).next()
            again = runs.begin_again(document, settings, event_id=event_id, bulk=True, span=span)
            begun.append((yield from again))
        elif (yield from documents.is_living(document_id)):
            break
        last = document_id
    if last is not None and last != page.after:
        yield from fires.turn_page(page.fire_id, len(begun), last)
    return Turned(page.fire_at, len(begun), False, begun)
