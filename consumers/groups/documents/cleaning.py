"""Make text as a PDF or a file gives it into text that can be stored, found and read.

Known faults of the readers (measured, design section 4a): pdfium puts U+FFFE where it saw a hyphen at the end
of a line, and control characters in the text; pypdf leaves NULs, ligatures and presentation forms.
"""

import re
import unicodedata
from collections.abc import Sequence

# Controls except tab and line feed, surrogates, noncharacters, private use (nothing can show it, and search
# marks its hits with two of them), invisible joints and the marks of writing direction. ZWNJ and ZWJ stay:
# Persian and the scripts of India need them.
_DROPPED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u00ad\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u2069\ufeff\ue000-\uf8ff\U000f0000-\U0010ffff]"
)
_LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SPACES = re.compile(r"[^\S\n]+")
_BLANK_LINES = re.compile(r"\n{3,}")
_HYPHEN_AT_END = re.compile(r"(?<=\w)(?P<hyphen>\ufffe|\u00ad\n|[-\u2010]\n) ?(?=\w)")
# Bounded, and only from the start of a word: `\w+-` alone takes minutes for one word of a million letters.
_COMPOUND = re.compile(r"(?<!\w)(\w{1,50})[-\u2010](?=(\w{1,50}))")
_LETTERS_BEFORE = re.compile(r"\w{1,50}\Z")
_LETTERS_AFTER = re.compile(r"\w{1,50}")


def clean(pages: Sequence[str]) -> list[str]:
    """Clean the pages of one document.

    NFKC, Unix line ends, no control characters, words joined that were broken at the end of a line. A hyphen
    at the end of a line stays when the document writes the word with it elsewhere (`well-known`).

    Args:
        pages: raw text of each page; the whole document at once, because it shows which hyphens belong.
    """
    lines = [_lines(page) for page in pages]
    compounds = {f"{first}-{second}".lower() for page in lines for first, second in _COMPOUND.findall(page)}
    return [_tidy(_join(page, compounds)) for page in lines]


def clean_line(text: str) -> str:
    """Clean a short text, such as a search or a file name, in the same way, to one line."""
    return " ".join(clean([text])[0].split())


def _lines(page: str) -> str:
    page = unicodedata.normalize("NFKC", _LINE_END.sub("\n", page))
    return _SPACES.sub(" ", page).replace(" \n", "\n").replace("\n ", "\n")


def _join(page: str, compounds: set[str]) -> str:
    def replacement(match: re.Match[str]) -> str:
        before = _LETTERS_BEFORE.search(page, max(0, match.start() - 50), match.start())
        after = _LETTERS_AFTER.match(page, match.end())
        if before is None or after is None:
            return match.group()
        written_with_hyphen = f"{before.group()}-{after.group()}".lower() in compounds
        # Only lower case after the hyphen continues a word: `Anglo-\nSaxon` and `1999-\n2001` keep theirs.
        return "" if after.group()[0].islower() and not written_with_hyphen else "-"

    return _HYPHEN_AT_END.sub(replacement, page)


def _tidy(page: str) -> str:
    return _BLANK_LINES.sub("\n\n", _SPACES.sub(" ", _DROPPED.sub("", page))).strip()
