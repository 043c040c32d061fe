"""What a reader returns: the pages of a document and what went wrong with some of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, TypeAlias

MAX_CHARACTERS = 5_000_000
"""Characters of a document that are worked on; the rest is left out with a warning (2,500 printed pages)."""

NO_TEXT = "the document has no text (only images?): it cannot be found by search"


@dataclass(frozen=True, slots=True)
class Page:
    """The clean text of one page. `reader` names the library that gave it."""

    number: int
    text: str
    reader: str


@dataclass(frozen=True, slots=True)
class Extracted:
    """A document's pages in order, and sentences for people about what is missing."""

    pages: list[Page]
    warnings: list[str] = field(default_factory=list)

    @property
    def has_text(self) -> bool:
        """Whether any page has a letter or a digit."""
        return any(character.isalnum() for page in self.pages for character in page.text)

    @property
    def text(self) -> str:
        """All pages as one text."""
        return "\n\n".join(page.text for page in self.pages if page.text)


Reader: TypeAlias = Callable[[IO[bytes]], Extracted]
"""Reads a file from its start. Raises `Permanent` and `Poison`; what else it raises is a fault of ours."""


def extracted(pages: list[Page], warnings: list[str]) -> Extracted:
    """Cut a document to `MAX_CHARACTERS` and add the warnings that follow from its pages."""
    kept: list[Page] = []
    left = MAX_CHARACTERS
    for page in pages:
        kept.append(Page(page.number, page.text[:left], page.reader))
        left -= len(page.text)
        if left < 0:
            warnings = [*warnings, f"only the first {MAX_CHARACTERS:,} characters were read"]
            break
    result = Extracted(kept, warnings)
    return result if result.has_text else Extracted(kept, [*warnings, NO_TEXT])
