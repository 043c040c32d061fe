"""Text of HTML and Markdown: by resiliparse, with the title, in the encoding that the bytes bear out."""

import codecs
from typing import IO

from markdown_it import MarkdownIt
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import detect_encoding
from resiliparse.parse.html import HTMLTree

from offsetzero.consumers.groups.documents import plain
from offsetzero.consumers.groups.documents.cleaning import clean
from offsetzero.consumers.groups.documents.pages import MAX_CHARACTERS, Extracted, Page, extracted
from offsetzero.retry.failures import Permanent

MAX_HTML = 4 * MAX_CHARACTERS
"""Bytes of an HTML file that are read."""
MAX_MARKDOWN = 1_000_000
"""Characters of Markdown that are laid out (five seconds); a longer file is read as the text that it is."""

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_OTHER_FORMATS = (b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x89PNG", b"\xff\xd8\xff\xe0", b"GIF8", b"\x1f\x8b")


def read_html(file: IO[bytes]) -> Extracted:
    """The text of an HTML file, as one page: its title, then what a browser would show.

    Raises:
        Permanent: `not-html`, the content is in another format.
    """
    data = file.read(MAX_HTML + 1)
    if data.startswith(_OTHER_FORMATS):
        raise Permanent("not-html", "the file says it is HTML and is in another format")
    warnings = [] if len(data) <= MAX_HTML else [f"only the first {MAX_HTML:,} bytes were read"]
    text, encoding = decode_html(data[:MAX_HTML])
    return extracted([Page(1, clean([_text(text)])[0], f"resiliparse, {encoding}")], warnings)


def read_markdown(file: IO[bytes]) -> Extracted:
    """The text of a Markdown file (CommonMark with tables), as one page, without its marks.

    Raises:
        Permanent: `not-text`.
    """
    text, encoding, warnings = plain.decode(file)
    reader = encoding
    if len(text) <= MAX_MARKDOWN:
        text = _text(MarkdownIt("commonmark").enable("table").render(text))
        reader = f"markdown-it, {encoding}"
    return extracted([Page(1, clean([text])[0], reader)], warnings)


def decode_html(data: bytes) -> tuple[str, str]:
    """Decode HTML: text and encoding.

    A byte order mark decides (as in the HTML standard), then UTF-8 where the bytes are valid in it and not all
    ASCII, then what the file declares if the bytes are valid in that, then what uchardet finds. Files that
    declare another encoding than theirs are common (Tika's testArabicMisleadingCharset.html).
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace"), encoding
    declared = detect_encoding(data, from_html_meta=True) or "utf-8"
    for encoding in (declared,) if data.isascii() else ("utf-8", declared):
        try:
            return codecs.getincrementaldecoder(encoding)("strict").decode(data), encoding
        except (UnicodeDecodeError, LookupError):
            continue
    found = detect_encoding(data) or "windows-1252"
    try:
        return data.decode(found, "replace"), found
    except LookupError:
        return data.decode("windows-1252", "replace"), "windows-1252"


def _text(source: str) -> str:
    tree = HTMLTree.parse(source)
    title = " ".join((tree.title or "").split())
    body = extract_plain_text(tree, preserve_formatting=True, list_bullets=False)
    return f"{title}\n\n{body}" if title else body
