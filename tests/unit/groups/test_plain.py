"""Plain text in the encodings that people have."""

from io import BytesIO

import pytest

from offsetzero.consumers.groups.documents import pages, plain
from offsetzero.retry.failures import Permanent

TEXT = "Grüße – “naïve” €5"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (TEXT.encode(), "utf-8"),
        (TEXT.encode("utf-8-sig"), "utf-8-sig"),
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), "utf-16"),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), "utf-16"),
        (b"\xff\xfe\0\0" + TEXT.encode("utf-32-le"), "utf-32"),
        (TEXT.encode("windows-1252"), "windows-1252"),
    ],
)
def test_the_encoding_is_found(data: bytes, encoding: str) -> None:
    """tika testTXT_win-1252.txt and its kin: the right characters, not replacement marks."""
    found = plain.read(BytesIO(data))
    assert (found.text, found.pages[0].reader) == (TEXT, encoding)


@pytest.mark.parametrize(
    "data", [b"%PDF-1.7 not text", b"PK\x03\x04 a zip", bytes(range(256)) * 20, TEXT.encode("utf-16-le")]
)
def test_another_format_is_refused_for_good(data: bytes) -> None:
    with pytest.raises(Permanent) as caught:
        plain.read(BytesIO(data))
    assert caught.value.reason == "not-text"


def test_a_stray_nul_does_not_make_a_text_binary() -> None:
    assert plain.read(BytesIO(b"one \0 odd byte in a long enough text")).text == ("one odd byte in a long enough text")


def test_form_feeds_separate_pages() -> None:
    found = plain.read(BytesIO(b"first\fsecond"))
    assert [(page.number, page.text) for page in found.pages] == [(1, "first"), (2, "second")]


@pytest.mark.parametrize("data", [b"", b" \n\t ", b"--- *** ---"])
def test_no_words_is_a_warning(data: bytes) -> None:
    assert plain.read(BytesIO(data)).warnings == [pages.NO_TEXT]


def test_a_huge_text_is_cut_between_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_CHARACTERS", 25)  # 100 bytes: in the middle of the 34th euro sign
    found = plain.read(BytesIO(("€" * 60).encode()))
    assert found.pages[0].reader == "utf-8"
    assert found.text == "€" * 33
    assert found.warnings[0] == "only the first 100 bytes were read"
