"""Which content types and file names mean which format; every format has a reader."""

import pytest

from offsetzero.consumers.groups.documents import formats
from offsetzero.consumers.groups.documents.readers import READERS


def test_every_format_has_a_reader() -> None:
    assert set(READERS) == {format_.content_type for format_ in formats.FORMATS}


@pytest.mark.parametrize(
    ("content_type", "name", "found"),
    [
        ("application/pdf", "a.docx", formats.PDF),
        ("application/xhtml+xml", "a", formats.HTML),
        ("text/x-markdown", "a", formats.MARKDOWN),
        ("application/octet-stream", "A.DOCX", formats.DOCX),
        ("application/zip", "a.docx", formats.DOCX),
        ("", "notes.md", formats.MARKDOWN),
        ("", "page.HTM", formats.HTML),
        ("text/plain", "notes.md", formats.TEXT),
        ("application/zip", "a.zip", None),
        ("application/msword", "a.docx", None),
        ("", "docx", None),
        ("", "", None),
        ("image/png", "a.pdf", None),
    ],
)
def test_the_type_decides_unless_it_says_nothing(content_type: str, name: str, found: formats.Format | None) -> None:
    assert formats.find(content_type, name) is found
