"""Text of plain text files: UTF-8, UTF-16 and UTF-32 by their byte order mark, else windows-1252."""

import codecs
from typing import IO

from offsetzero.consumers.groups.documents.cleaning import clean
from offsetzero.consumers.groups.documents.pages import MAX_CHARACTERS, Extracted, Page, extracted
from offsetzero.retry.failures import Permanent

_BYTE_ORDER_MARKS = (  # UTF-32 first: its mark starts with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OTHER_FORMATS = (
    b"%PDF-",
    b"PK\x03\x04",
    b"\xd0\xcf\x11\xe0",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"\x1f\x8b",
)
_TEXT_CONTROLS = frozenset(b"\t\n\v\f\r\x1b")
_MOST_CONTROLS = 0.05  # share of control bytes above which a file is no text in any of these encodings
_SAMPLE = 65_536


def read(file: IO[bytes]) -> Extracted:
    """The text of a plain text file; form feeds separate pages.

    Raises:
        Permanent: `not-text`, the content is something else.
    """
    text, encoding, warnings = decode(file)
    pages = [Page(number, page, encoding) for number, page in enumerate(clean(text.split("\f")), 1)]
    return extracted(pages, warnings)


def decode(file: IO[bytes]) -> tuple[str, str, list[str]]:
    """Decode a text file: its text, the encoding, and warnings.

    What is not valid UTF-8 and has no mark is windows-1252: guessing by frequencies takes such files for
    Hebrew or Cyrillic (Tika's testTXT_win-1252.txt).

    Raises:
        Permanent: `not-text`.
    """
    limit = 4 * MAX_CHARACTERS  # bytes: no encoding here takes more for a character
    data = file.read(limit + 1)
    text, encoding = _decode(data[:limit], complete=len(data) <= limit)
    return text, encoding, [] if len(data) <= limit else [f"only the first {limit:,} bytes were read"]


def _decode(data: bytes, *, complete: bool) -> tuple[str, str]:
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    if encoding is not None:
        return codecs.getincrementaldecoder(encoding)("replace").decode(data, final=complete), encoding
    if data.startswith(_OTHER_FORMATS):
        raise Permanent("not-text", "the file says it is plain text and is in another format")
    sample = data[:_SAMPLE]
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in sample)
    if controls > _MOST_CONTROLS * len(sample):
        raise Permanent(
            "not-text",
            "the file says it is plain text and is binary, or UTF-16 without its mark: save it as UTF-8",
        )
    try:
        return codecs.getincrementaldecoder("utf-8")("strict").decode(data, final=complete), "utf-8"
    except UnicodeDecodeError:
        # The five bytes that windows-1252 leaves open become U+FFFD.
        return data.decode("windows-1252", "replace"), "windows-1252"
