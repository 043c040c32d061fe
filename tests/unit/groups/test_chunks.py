"""Chunks are bounded, lose nothing, and stay on their page."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from offsetzero.consumers.groups.documents.chunks import OVERLAP, SIZE, split
from offsetzero.consumers.groups.documents.pages import Page

# Every letter occurs once, so that a piece has one place only.
separators = st.sampled_from([" ", "\n", "\n\n", ". "])
tokens = st.lists(st.tuples(st.one_of(st.integers(1, 20), st.integers(1, 3000)), separators), max_size=200)


def _text(shape: list[tuple[int, str]]) -> str:
    letters = (chr(0x4E00 + number) for number in range(20_000))
    return "".join("".join(islice(letters, length)) + separator for length, separator in shape)


@given(st.lists(tokens.map(_text), max_size=3))
def test_chunks_are_bounded_and_lose_no_character(given_texts: list[str]) -> None:
    pages = [Page(number, text, "test") for number, text in enumerate(given_texts, 1)]
    chunks = split(pages)
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert all(0 < len(chunk.text) <= SIZE for chunk in chunks)
    for page in pages:
        _covers(page.text, [chunk.text for chunk in chunks if chunk.page == page.number])


def _covers(text: str, pieces: list[str]) -> None:
    """Each piece starts where the one before ended, or a little earlier."""
    end = 0
    for piece in pieces:
        at = text.find(piece)
        assert end - OVERLAP <= at, "two chunks share more than they should"
        assert text[end:at].strip() == "", "text between two chunks is lost"
        end = max(end, at + len(piece))
    assert text[end:].strip() == ""


def test_a_phrase_across_a_border_is_in_one_chunk() -> None:
    text = " ".join(f"word{number}" for number in range(2000))
    chunks = [chunk.text for chunk in split([Page(1, text, "test")])]
    for number in range(1999):
        assert any(f"word{number} word{number + 1}" in chunk for chunk in chunks)


def test_a_chunk_ends_at_a_sentence_where_there_is_one() -> None:
    text = "This is a sentence of some words. " * 200
    assert all(chunk.text.endswith(".") for chunk in split([Page(1, text, "test")]))


def test_pages_without_text_have_no_chunks() -> None:
    assert split([Page(1, "", "test"), Page(2, "  ", "test")]) == []
