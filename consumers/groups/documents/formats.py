"""The formats of documents that are taken in and read, by content type and file name. Imports no reader."""

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Format:
    """A format.

    Attributes:
        name: for people.
        content_type: as events carry it.
        suffixes: of file names, in lower case.
        other_types: content types that mean the same.
    """

    name: str
    content_type: str
    suffixes: tuple[str, ...]
    other_types: tuple[str, ...] = ()


PDF = Format("PDF", "application/pdf", (".pdf",), ("application/x-pdf",))
DOCX = Format("Word", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", (".docx",))
HTML = Format("HTML", "text/html", (".html", ".htm", ".xhtml"), ("application/xhtml+xml",))
MARKDOWN = Format("Markdown", "text/markdown", (".md", ".markdown"), ("text/x-markdown",))
TEXT = Format("plain text", "text/plain", (".txt", ".text"))
FORMATS = (PDF, DOCX, HTML, MARKDOWN, TEXT)

_TYPES = {kind: format_ for format_ in FORMATS for kind in (format_.content_type, *format_.other_types)}
_SUFFIXES = {suffix: format_ for format_ in FORMATS for suffix in format_.suffixes}
# What clients send when they do not know, or look only at the first bytes (a DOCX is a zip file).
_SAYS_NOTHING = frozenset(
    {"", "application/octet-stream", "binary/octet-stream", "application/zip", "application/x-zip-compressed"}
)

ACCEPTED = ", ".join(f"{format_.name} ({', '.join(format_.suffixes)})" for format_ in FORMATS)
"""The formats in words, for messages."""


def find(content_type: str, name: str = "") -> Format | None:
    """The format of a file; None when it is not one that can be read.

    Args:
        content_type: as declared, in lower case and without parameters. It decides, unless it says nothing.
        name: the file's name, asked when the type says nothing.
    """
    if content_type in _SAYS_NOTHING:
        return _SUFFIXES.get(PurePosixPath(name).suffix.lower())
    return _TYPES.get(content_type)
