"""Texts for PostgreSQL's parser, and back again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.store import wording

# What cleaning leaves: no control characters but tab and line feed, no surrogates, no private use.
clean_text = st.text(st.characters(exclude_categories=["Cc", "Cs", "Co"], include_characters="\n\t<>/\\"))


@given(clean_text)
def test_nothing_is_lost(text: str) -> None:
    assert wording.decode(wording.encode(text)) == text


@given(clean_text, st.integers(0, 50), st.integers(0, 50))
def test_a_part_of_it_is_readable(text: str, start: int, length: int) -> None:
    """A snippet is cut anywhere; what is cut through is left out."""
    part = wording.decode(wording.encode(text)[start : start + length])
    assert not set(part) & {chr(number) for number in range(32)} - {"\n", "\t"}


@pytest.mark.parametrize("text", ["plain words, 3.5 and a-b", "Grüße naïve", "हिन्दी", "حَبيبي", "Ünïcödé", "x²"])
def test_letters_accents_and_ascii_marks_stay(text: str) -> None:
    assert wording.encode(text).isprintable()
    assert [c for c in wording.encode(text) if c.isalpha()] == [c for c in text if c.isalpha()]


@pytest.mark.parametrize("mark", "“”«»–…€。、<>/\\")
def test_a_mark_is_no_letter_whatever_the_locale(mark: str) -> None:
    encoded = wording.encode(f"one{mark}two")
    assert all(ord(character) < 128 for character in encoded)
    assert not any(character.isprintable() for character in encoded[3:-3])
