"""Texts as PostgreSQL's parser finds their words, whatever the locale of the database, and back again.

In a database with the locale C the parser takes every character beyond ASCII for a letter: “quoted” is found only
with its quotation marks. In any, 東京は日本の首都です is one word, `and/or` is the name of a file, and `<String>` is
a tag that is left out. So marks are written as control characters, which are blanks everywhere, and letters of
languages that write no spaces are set apart: each is a word, and a word of theirs is a phrase.
"""

import re
import unicodedata

# Scripts without spaces: Thai and Lao, Myanmar, Khmer, kana, Han with its extensions.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_CHANGED = re.compile(f"[<>/\\\\]|[{_UNSPACED}]|[^\\w\\s\x00-\x7f]")
_UNSPACED_LETTER = re.compile(f"[{_UNSPACED}]")
_START, _STOP, _APART = "\x01", "\x02", "\x03"
_FIRST_DIGIT = 0x0E  # of sixteen control characters that nothing else uses here
_WRITTEN = re.compile(f"{_START}([\x0e-\x1d]+){_STOP}")
_LEFT_OVER = re.compile("[\x01-\x08\x0e-\x1f]")  # of a mark that a snippet was cut in


def encode(text: str) -> str:
    """A clean text, or a search, for PostgreSQL's parser."""
    return _CHANGED.sub(_encoded, text)


def decode(text: str) -> str:
    """What `encode` was given, also for a part of what it returned."""
    return _LEFT_OVER.sub("", _WRITTEN.sub(_decoded, text))


def _encoded(match: re.Match[str]) -> str:
    character = match.group()
    if unicodedata.category(character)[0] in "LMN":  # an accent is part of its word
        return f"{_APART}{character}{_APART}" if _UNSPACED_LETTER.match(character) else character
    digits = "".join(chr(_FIRST_DIGIT + int(digit, 16)) for digit in f"{ord(character):x}")
    return f"{_START}{digits}{_STOP}"


def _decoded(match: re.Match[str]) -> str:
    digits = "".join(f"{ord(digit) - _FIRST_DIGIT:x}" for digit in match.group(1))
    return chr(int(digits, 16))
