"""Each kind of PDF has its own outcome (design section 4a)."""

from io import BytesIO
from typing import Any

import pdfs
import pypdfium2
import pytest
from pypdf import PageObject

from offsetzero.consumers.groups.documents import pages, pdf
from offsetzero.consumers.groups.documents.second import SECONDS, SecondReader
from offsetzero.retry.failures import Failure, Permanent, Poison


def test_text_comes_page_by_page() -> None:
    found = pdf.read(BytesIO(pdfs.pdf("The first page.", "The second page.")))
    assert [(page.number, page.text, page.reader) for page in found.pages] == [
        (1, "The first page.", "pdfium"),
        (2, "The second page.", "pdfium"),
    ]
    assert found.warnings == []


def test_a_word_that_the_page_hyphenates_is_whole() -> None:
    assert "We will compile this program." in pdf.read(BytesIO(pdfs.hyphenated("com", "pile"))).text


@pytest.mark.parametrize("word", ["שלום", "مرحبا"])
def test_right_to_left_text_is_in_the_order_of_reading(word: str) -> None:
    """sample-files habibi.pdf: pdfium gives the word reversed, so that no search finds it."""
    data = pdfs.right_to_left(word, after="hello")
    with pypdfium2.PdfDocument(data) as document:
        assert word not in document[0].get_textpage().get_text_range(), "this file no longer shows the fault"
    assert word in pdf.read(BytesIO(data)).text


def test_an_empty_user_password_is_no_obstacle() -> None:
    assert pdf.read(BytesIO(pdfs.encrypted("", "Open to all."))).text == "Open to all."


def test_no_text_is_a_warning_not_a_failure() -> None:
    found = pdf.read(BytesIO(pdfs.without_text()))
    assert not found.has_text
    assert found.warnings == [pages.NO_TEXT]


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (pdfs.encrypted("secret", "Hidden."), Permanent, "password-needed"),
        (pdfs.pdf(), Permanent, "no-pages"),
        (b"not a pdf at all", Permanent, "not-a-pdf"),
        (b"", Permanent, "not-a-pdf"),
        (pdfs.corrupt(), Poison, "corrupt"),
        (b"%PDF-1.7\n" + bytes(range(256)) * 40, Poison, "corrupt"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, kind: type[Failure], reason: str) -> None:
    with pytest.raises(kind) as caught:
        pdf.read(BytesIO(data))
    assert caught.value.reason == reason
    assert caught.value.detail


@pytest.mark.parametrize(
    "damage",
    [
        (b"6 0 R 8 0 R", b"99 0 R 8 0 R"),  # no such object: pypdf counts one page less than pdfium
        (b"6 0 obj\n<<", b"6 0 obj\n[["),
    ],
)
def test_a_bad_page_is_named_and_the_others_are_read(damage: tuple[bytes, bytes]) -> None:
    """tika testPDF_bad_page_303226.pdf: the rest, with the bad ones named."""
    data = pdfs.pdf("The first page.", "The second page.", "The third page.")
    broken = data.replace(*damage)
    assert broken != data
    found = pdf.read(BytesIO(broken))
    assert [page.text for page in found.pages] == ["The first page.", "", "The third page."]
    assert found.warnings == ["1 of 3 pages could not be read: 2"]


def test_what_pdfium_cannot_open_is_read_by_pypdf(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_data: bytes) -> tuple[list[str | None], int]:
        raise pypdfium2.PdfiumError("Failed to load document")

    monkeypatch.setattr(pdf, "_by_pdfium", refuse)
    found = pdf.read(BytesIO(pdfs.pdf("Read in the second try.")))
    assert [(page.text, page.reader) for page in found.pages] == [("Read in the second try.", "pypdf")]


def test_a_huge_document_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pages, pdf):
        monkeypatch.setattr(module, "MAX_CHARACTERS", 30)
    found = pdf.read(BytesIO(pdfs.pdf("The first page.", "The second page.", "The third page.")))
    assert sum(len(page.text) for page in found.pages) == 30
    assert found.warnings == ["only the first 2 of 3 pages were read", "only the first 30 characters were read"]


def test_the_second_reader_stops_after_its_time() -> None:
    times = iter([0.0, 1.0, 2.0, 2.0 + SECONDS])
    second = SecondReader(BytesIO(pdfs.pdf("one", "two")), monotonic=lambda: next(times))
    assert second.count() == 2
    assert second.page(0) == "one"
    assert second.page(1) is None, "its time is over"


def test_no_memory_is_not_a_broken_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_page: object) -> str:
        raise MemoryError

    monkeypatch.setattr(PageObject, "extract_text", refuse)
    with pytest.raises(MemoryError):
        SecondReader(BytesIO(pdfs.pdf("one"))).page(0)


def test_pdfium_is_only_called_under_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """pdfium is not thread-safe: without it texts come out wrong or the process dies, now and then."""
    unlocked: list[str] = []

    def watch(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            if not pdf._PDFIUM.locked():
                unlocked.append(f"{owner.__name__}.{name}")
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    for name in ("__init__", "__len__", "__getitem__", "close"):
        watch(pypdfium2.PdfDocument, name)
    for name in ("get_textpage", "close"):
        watch(pypdfium2.PdfPage, name)
    for name in ("get_text_range", "close"):
        watch(pypdfium2.PdfTextPage, name)
    pdf.read(BytesIO(pdfs.pdf("one", "two")))
    assert unlocked == []
