"""The reader of each format, and what is done with every document after it. Imports all that readers need."""

from dataclasses import replace
from typing import IO

from offsetzero.consumers.groups.documents import formats, languages, markup, pdf, plain, word
from offsetzero.consumers.groups.documents.pages import Extracted, Reader


def _with_language(reader: Reader) -> Reader:
    def read(file: IO[bytes]) -> Extracted:
        found = reader(file)
        return replace(found, language=languages.detect([page.text for page in found.pages]))

    return read


READERS: dict[str, Reader] = {
    format_.content_type: _with_language(reader)
    for format_, reader in (
        (formats.PDF, pdf.read),
        (formats.DOCX, word.read),
        (formats.HTML, markup.read_html),
        (formats.MARKDOWN, markup.read_markdown),
        (formats.TEXT, plain.read),
    )
}
"""By content type."""
