"""The summariser that needs no model."""

import itertools
import socket
import time

import pdfs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.consumers.groups.summaries import local


def _text(pages: list[str]) -> str:
    return "\n\n".join("\n".join(pdfs.make._lines(page)) for page in pages)


def test_a_summary_is_sentences_of_the_text_in_their_order() -> None:
    text = _text(pdfs.make.POLICY)
    summary = local.summarise(text)
    flat = " ".join(text.split())
    assert summary.model == local.MODEL
    assert 80 < len(summary.text) < 1000
    sentences = [sentence.strip() for sentence in summary.text.replace(". ", ".\n").split("\n")]
    places = [flat.index(sentence) for sentence in sentences]
    assert places == sorted(places)


def test_headings_are_not_glued_to_sentences() -> None:
    assert "Reimbursement Expenses" not in local.summarise(_text(pdfs.make.POLICY), sentences=50).text


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("This is the text of a document that was written for people", "en"),
        ("Das ist der Text, den wir nicht für die anderen geschrieben haben", "de"),
        ("Ceci est un texte que nous avons écrit pour les autres", "fr"),
        ("", "en"),
    ],
)
def test_the_language_is_that_of_the_stop_words(text: str, language: str) -> None:
    assert local._language(text) == language


@pytest.mark.parametrize("text", ["", " \n ", "?!"])
def test_nothing_to_summarise_is_no_error(text: str) -> None:
    assert len(local.summarise(text).text) <= 2


@given(st.text(max_size=300))
def test_any_text_can_be_summarised(text: str) -> None:
    local.summarise(text)


@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, "a. " * 300_000, "word " * 200_000, " ".join(f"word{n} is here." for n in range(100_000))],
    ids=["one word", "tiny sentences", "one sentence", "a book"],
)
def test_a_large_text_takes_bounded_time(text: str) -> None:
    started = time.thread_time()
    summary = local.summarise(text)
    assert time.thread_time() - started < 10
    assert len(summary.text) < 5_000


def test_many_words_that_occur_twice_take_bounded_time() -> None:
    """sumy looks every word up in a tuple of them: quadratic in a long text."""
    words = ["".join(letters) for letters in itertools.product("abcdefghijklmnop", repeat=4)][:18_000]
    sentences = [" ".join(words[start : start + 12]) + "." for start in range(0, len(words), 12)]
    started = time.thread_time()
    local.summarise(" ".join(sentence.capitalize() for sentence in sentences * 2))
    assert time.thread_time() - started < 3


def test_no_download_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("it wants the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert local.summarise(_text(pdfs.make.HANDBOOK)).text
