"""The reader of each format. Imports all that readers need, and no more: forks of it are copied for each document."""

from offsetzero.consumers.groups.documents import formats, markup, pdf, plain, word
from offsetzero.consumers.groups.documents.pages import Reader

READERS: dict[str, Reader] = {
    formats.PDF.content_type: pdf.read,
    formats.DOCX.content_type: word.read,
    formats.HTML.content_type: markup.read_html,
    formats.MARKDOWN.content_type: markup.read_markdown,
    formats.TEXT.content_type: plain.read,
}
"""By content type."""
