"""Text of PDF files: pdfium reads most, pypdf what pdfium does not; right-to-left pages come from pypdf.

pdfium returns Arabic and Hebrew in the order of the glyphs, so that no word of them can be found; pypdf
returns the order of reading.
"""

import threading
import unicodedata
from typing import IO

import pypdfium2

from offsetzero.consumers.groups.documents.cleaning import clean
from offsetzero.consumers.groups.documents.pages import MAX_CHARACTERS, Extracted, Page, extracted
from offsetzero.consumers.groups.documents.second import SecondReader
from offsetzero.retry.failures import Permanent, Poison

_PDFIUM = threading.Lock()  # pdfium is not thread-safe, not even with a document for each thread
_SIGNATURE_WITHIN = 1024  # as other readers do: bytes before the header are tolerated


def read(file: IO[bytes]) -> Extracted:
    """The text of a PDF file.

    Raises:
        Permanent: `not-a-pdf`, `password-needed`, `no-pages`.
        Poison: `corrupt`, it starts like a PDF and neither library can read it.
    """
    data = file.read()
    if b"%PDF-" not in data[: _SIGNATURE_WITHIN + 5]:
        raise Permanent("not-a-pdf", "the file says it is a PDF and is not: it has no PDF header")
    second = SecondReader(file)
    try:
        texts, count = _by_pdfium(data)
    except pypdfium2.PdfiumError as error:
        # Asked first whatever the error is: pdfium says "password" of a file with no pages, too.
        count = _count(second, error)
        texts = [None] * count
    if count == 0:
        raise Permanent("no-pages", "the PDF has no pages")
    pages, missing = _pages(texts, second, count)
    return extracted(pages, _warnings(len(texts), count, missing))


def _by_pdfium(data: bytes) -> tuple[list[str | None], int]:
    """Text of each page, None for one that cannot be read, and how many pages there are.

    The lock is given back between pages: a long document does not keep the short ones waiting.
    """
    with _PDFIUM:
        document = pypdfium2.PdfDocument(data)
        count = len(document)
    texts: list[str | None] = []
    try:
        total = 0
        for index in range(count):
            with _PDFIUM:
                texts.append(_page_by_pdfium(document, index))
            total += len(texts[-1] or "")
            if total > MAX_CHARACTERS:
                break
    finally:
        with _PDFIUM:
            document.close()
    return texts, count


def _page_by_pdfium(document: pypdfium2.PdfDocument, index: int) -> str | None:
    try:
        page = document[index]
        try:
            text_page = page.get_textpage()
            try:
                text: str = text_page.get_text_range()
            finally:
                text_page.close()
        finally:
            page.close()
    except pypdfium2.PdfiumError:
        return None
    return text


def _count(second: SecondReader, error: pypdfium2.PdfiumError) -> int:
    count = second.count()
    if count is not None:
        return count
    if second.needs_password:
        raise Permanent("password-needed", "the PDF is encrypted and opens only with a password") from error
    raise Poison("corrupt", f"neither pdfium nor pypdf can open the PDF: {str(error).rstrip('.')}") from error


def _pages(texts: list[str | None], second: SecondReader, count: int) -> tuple[list[Page], list[int]]:
    """Pages in order, and the numbers of those that neither library could read."""
    nothing = not any(text and text.strip() for text in texts)
    raw: list[str | None] = []
    readers = []
    for index, text in enumerate(texts):
        reader = "pdfium"
        if text is None or nothing or _right_to_left(text):
            # pypdf leaves out pages that are missing in the file: then its numbers are not pdfium's.
            other = second.page(index) if second.count() == count else None
            if other is not None:
                text, reader = other, "pypdf"
        raw.append(text)
        readers.append(reader if text is not None else "none")
    missing = [index + 1 for index, text in enumerate(raw) if text is None]
    if len(missing) == len(raw):
        raise Poison("corrupt", f"none of the {len(raw)} pages can be read")
    cleaned = clean([text or "" for text in raw])
    numbered = zip(cleaned, readers, strict=True)
    return [Page(number, text, reader) for number, (text, reader) in enumerate(numbered, 1)], missing


def _warnings(read_pages: int, count: int, missing: list[int]) -> list[str]:
    warnings = []
    if read_pages < count:
        warnings.append(f"only the first {read_pages} of {count} pages were read")
    if missing:
        shown = ", ".join(str(number) for number in missing[:20]) + (", …" if len(missing) > 20 else "")
        warnings.append(f"{len(missing)} of {count} pages could not be read: {shown}")
    return warnings


def _right_to_left(text: str) -> bool:
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)
