"""Difficult documents of other projects have the right outcome each, where a folder of them lies beside this one.

They are third parties' and not part of this repository; the unit tests have small files of the same kinds.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk
from running_api import running

from offsetzero.consumers.groups.documents import formats
from offsetzero.retry.failures import Failure, FailureClass
from offsetzero.settings import Settings

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY.parent / "shared" / "cases" / "documents"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the files are not on this machine ({FOLDER})")

PERMANENT = FailureClass.PERMANENT
FAILURES = {
    "qpdf__extend-c-api-bad.pdf": (PERMANENT, "not-a-pdf"),
    "qpdf__empty.pdf": (PERMANENT, "no-pages"),
    "pypdf__libreoffice-writer-password.pdf": (PERMANENT, "password-needed"),
    "tika__protected_normal_case.docx": (PERMANENT, "password-needed"),
}
# Pages, and a search that finds the file with what the snippet then shows.
TEXTS = {
    "qpdf__issue-202.pdf": (10, "Maron", "Robert <mark>Maron</mark>"),
    "pypdf__r6-empty-password.pdf": (1, "encryption", "pdf <mark>encryption</mark> test"),
    "tika__testPDF_bad_page_303226.pdf": (19, "registrants", "<mark>registrant"),
    "sample__habibi.pdf": (1, "حَبيبي", "<mark>حَبيبي</mark> habibi"),
    "pdfjs__tracemonkey.pdf": (14, "compile", "<mark>compile"),
    "tika__NullHeader.docx": (1, "Yemen", "<mark>Yemen</mark>"),
    "tika__testHTML_charset_utf16le.html": (1, "sample", "Title This is a <mark>sample</mark> text"),
    "tika__testArabicMisleadingCharset.html": (1, "قرية", "<mark>قرية</mark>"),
    "tika__testTXT_win-1252.txt": (1, "windows", "“<mark>windows</mark>” encoding"),
}
NO_TEXT = "tika__testOCR.pdf"
EMPTY = "qpdffuzz__70245.fuzz.pdf"


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(Settings(home=tmp_path, database_url=database_url))
    yield made
    made.pool.close()


def _index(desk: Desk, name: str) -> list[str]:
    found = formats.find("", name)
    assert found is not None
    return desk.index(desk.document((FOLDER / name).read_bytes(), name, found.content_type))


def test_every_file_has_its_test() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*FAILURES, *TEXTS, NO_TEXT, EMPTY}


@pytest.mark.parametrize("name", FAILURES)
def test_what_cannot_be_read_says_why(desk: Desk, name: str) -> None:
    with pytest.raises(Failure) as caught:
        _index(desk, name)
    assert (caught.value.failure_class, caught.value.reason) == FAILURES[name]
    assert desk.rows("SELECT 1 FROM chunks") == []


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_found_and_shown_in_the_right_characters(desk: Desk, name: str) -> None:
    pages, query, snippet = TEXTS[name]
    assert _index(desk, name) == []
    assert desk.rows("SELECT pages FROM indexed_documents") == [(pages,)]
    (hit,) = desk.search(query)
    assert hit.name == name
    assert snippet in hit.snippet


def test_a_word_that_a_line_breaks_is_found(desk: Desk) -> None:
    """By the pages where the text says `com-` at the end of a line, not by others that have the word whole."""
    _index(desk, "pdfjs__tracemonkey.pdf")
    assert desk.rows("SELECT 1 FROM chunks WHERE text ~ 'com[-\u00ad\ufffe]\\n?pil'") == []
    (everything,) = desk.rows("SELECT string_agg(text, ' ') FROM chunks")
    assert "\ufffe" not in everything[0]


def test_an_image_succeeds_with_a_warning(desk: Desk) -> None:
    assert [warning for warning in _index(desk, NO_TEXT) if "no text" in warning]
    assert desk.rows("SELECT 1 FROM chunks") == []


def test_an_empty_file_is_refused_at_upload(database_url: str, tmp_path: Path) -> None:
    with running(Settings(home=tmp_path, database_url=database_url)) as api:
        files = {"file": (EMPTY, (FOLDER / EMPTY).read_bytes(), "application/pdf")}
        answer = api.client.post("/documents", files=files)
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:offsetzero:problem:empty-file")
        assert api.nothing_happened()
