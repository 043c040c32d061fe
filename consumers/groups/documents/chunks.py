"""Cut the pages of a document into chunks for the full-text index.

A chunk never crosses a page, so that a hit can name its page. Its size is bounded, and with it the size of
its tsvector: PostgreSQL refuses one over 1 MB.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offsetzero.consumers.groups.documents.pages import Page

SIZE = 1_800
"""Most characters of a chunk: a screenful, small enough for a snippet to tell where the hit is."""
OVERLAP = 200
"""Characters that two neighbours share, so that a phrase across their border is found."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of one page; `number` counts from 0 over the document."""

    number: int
    page: int
    text: str


def split(pages: Sequence[Page]) -> list[Chunk]:
    """The chunks of a document in order; none for pages without text."""
    pieces = [(page.number, piece) for page in pages for piece in _pieces(page.text)]
    return [Chunk(number, page, text) for number, (page, text) in enumerate(pieces)]


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + SIZE
        if end >= len(text):
            last = text[start:].strip()
            if last:
                yield last
            return
        end = border(text, start + SIZE // 2, end)
        piece = text[start:end].strip()
        if piece:
            yield piece
        start = _word_start(text, end - OVERLAP, end)


def border(text: str, low: int, high: int) -> int:
    """The best place to cut in (low, high]: after a paragraph, a line, a sentence, a word; else at `high`."""
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, low, high)
        if found >= 0:
            return found + len(mark)
    return high


def _word_start(text: str, low: int, high: int) -> int:
    found = max(text.find(" ", low, high), text.find("\n", low, high))
    return found + 1 if found >= 0 else high
