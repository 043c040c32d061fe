"""The language of a text, by the name that PostgreSQL has for it.

In the indexer's process and not in the readers': the model takes 84 MB, which a fork for each document would pay for,
and at most six thousand characters of clean text endanger nothing.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from offsetzero.store.languages import SIMPLE

# By what py3langid calls the languages. One stemmer serves Bosnian, Croatian and Serbian, as Snowball means it;
# Malay and Indonesian are told apart by nobody.
_BY_CODE = {
    "ar": "arabic",
    "hy": "armenian",
    "eu": "basque",
    "ca": "catalan",
    "da": "danish",
    "nl": "dutch",
    "en": "english",
    "fi": "finnish",
    "fr": "french",
    "de": "german",
    "el": "greek",
    "hi": "hindi",
    "hu": "hungarian",
    "id": "indonesian",
    "ms": "indonesian",
    "ga": "irish",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "no": "norwegian",
    "nb": "norwegian",
    "nn": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "hr": "serbian",
    "bs": "serbian",
    "es": "spanish",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}

_SAMPLE = 2_000  # characters from each of three places: more decides nothing, and takes time
_LIKELY = 0.5  # of the probability; lists of names and numbers stay below
_NO_LETTERS = re.compile(r"[\d_]+")
_IDENTIFIER = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect(pages: Sequence[str]) -> str:
    """The language of a document; `SIMPLE` when no language is likely, and for one without a stemmer.

    Args:
        pages: its clean text. The start, the middle and the end are looked at: title pages are often in another
            language.
    """
    likely: defaultdict[str, float] = defaultdict(float)
    for code, probability in _IDENTIFIER.rank(_sample([page for page in pages if page])):
        likely[_BY_CODE.get(code, SIMPLE)] += probability
    best = max(likely, key=lambda language: likely[language])
    return best if likely[best] >= _LIKELY else SIMPLE


def _sample(pages: Sequence[str]) -> str:
    if len(pages) == 1:
        text = pages[0]
        pieces = [text[start:] for start in sorted({0, len(text) // 2, max(0, len(text) - _SAMPLE)})]
    else:
        pieces = [pages[place] for place in sorted({0, len(pages) // 2, len(pages) - 1})] if pages else []
    return _NO_LETTERS.sub(" ", " ".join(piece[:_SAMPLE] for piece in pieces))
