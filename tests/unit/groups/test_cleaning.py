"""Text of readers is made fit to be stored, found and read."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.consumers.groups.documents.cleaning import clean, clean_line


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("com-\npile", "compile"),
        ("com-\r\npile", "compile"),
        ("com\ufffepile", "compile"),
        ("com\u00adpile", "compile"),
        ("com\u00ad\npile", "compile"),
        ("Anglo-\nSaxon", "Anglo-Saxon"),
        ("1999-\n2001", "1999-2001"),
        ("a well-known thing, well-\nknown", "a well-known thing, well-known"),
        ("state-of-the-art and of-\nthe", "state-of-the-art and of-the"),
        ("a - b", "a - b"),
        ("list:\n- one\n- two", "list:\n- one\n- two"),
    ],
)
def test_a_word_broken_at_the_end_of_a_line_is_joined(raw: str, wanted: str) -> None:
    """pdfjs tracemonkey.pdf: "compile" is found where a line breaks inside it."""
    assert clean([raw]) == [wanted]


def test_a_compound_written_on_another_page_keeps_its_hyphen() -> None:
    assert clean(["a type-safe language", "it is type-\nsafe"])[1] == "it is type-safe"


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("\ufb01nance", "finance"),  # a ligature, as pypdf leaves it
        ("\ufea3\ufe92\ufef4\ufe90", "\u062d\u0628\u064a\u0628"),  # Arabic presentation forms
        ("nul\0 bell\x07 c1\x85next", "nul bell c1\nnext"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("\u202bright\u202c \ufeffmark\u200b", "right mark"),
        ("private \ue000use", "private use"),
        ("a  b\t c \n\n\n\n d", "a b c\n\nd"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # ZWNJ is part of Persian words
    ],
)
def test_what_cannot_be_stored_or_found_is_removed(raw: str, wanted: str) -> None:
    assert clean([raw]) == [wanted]


@given(st.lists(st.text(st.characters()), max_size=4))
def test_any_text_becomes_storable(pages: list[str]) -> None:
    cleaned = clean(pages)
    assert len(cleaned) == len(pages)
    for page in cleaned:
        page.encode("utf-8")  # no surrogates
        assert not any(unicodedata.category(character) in ("Cc", "Cs", "Co") for character in page.replace("\n", ""))
        assert "\ufffe" not in page


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2_000_000,
        "x-" * 1_000_000,
        "-" * 2_000_000,
        " " * 2_000_000,
        "\n" * 2_000_000,
        "x-\n" * 700_000,
        "x\ufffe" * 900_000,
    ],
    ids=["word", "compounds", "hyphens", "spaces", "lines", "broken lines", "joints"],
)
def test_no_text_takes_more_than_moments(text: str) -> None:
    """A pattern that looks back and forth takes hours for one odd file."""
    started = time.thread_time()
    clean([text])
    assert time.thread_time() - started < 15


def test_a_line_is_one_line() -> None:
    assert clean_line(" a\n\tb\0c ") == "a bc"
