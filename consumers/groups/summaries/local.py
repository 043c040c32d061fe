"""A summary without a model: the sentences that Luhn's method rates best, in their order.

sumy rates, sentencex finds the sentences. sumy's own tokenizer is not used: it wants a download.
"""

import re
from collections.abc import Iterable, Iterator

import sentencex
from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
from sumy.summarizers.luhn import LuhnSummarizer
from sumy.utils import get_stop_words

from offsetzero.consumers.groups.summaries.questions import split
from offsetzero.consumers.groups.summaries.summary import Summary

MODEL = "local/luhn"
SENTENCES = 4
MAX_CHARACTERS = 1_000_000
"""Characters from the start of a text that are rated (some 400 pages, three seconds)."""
BLOCK = 200_000
"""Characters that are rated at once: of a longer text the best sentences of each block are rated once more."""
MAX_SENTENCE = 400
"""Longer "sentences" are tables and lists; they are not shown."""

_LANGUAGES = {
    "en": "english",
    "de": "german",
    "fr": "french",
    "es": "spanish",
    "it": "italian",
    "pt": "portuguese",
    "pl": "polish",
    "cs": "czech",
    "sv": "swedish",
    "el": "greek",
    "uk": "ukrainian",
    "ar": "arabic",
}
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_PARAGRAPH = re.compile(r"\n\s*\n")
_FEW_WORDS = 5
_ENDS = '.!?…。؟"”»)'
_SAMPLE = 2_000  # words that decide the language


class _Tokenizer:
    """What sumy needs of a tokenizer."""

    @staticmethod
    def to_words(sentence: str) -> tuple[str, ...]:
        return tuple(_WORD.findall(sentence))


class _Luhn(LuhnSummarizer):  # type: ignore[misc]  # sumy has no types
    def _get_significant_words(self, words: Iterable[str]) -> frozenset[str]:
        # sumy looks each word up in a tuple: quadratic, minutes for a book.
        return frozenset(super()._get_significant_words(words))


def summarise(text: str, sentences: int = SENTENCES) -> Summary:
    """Summarise a clean text.

    Args:
        text: the text; only the first `MAX_CHARACTERS` are rated, which a warning says.
        sentences: the most sentences of the summary.

    Returns:
        The summary; its text is empty when there is none to summarise.
    """
    language = _language(text[: 10 * _SAMPLE])
    rater = _Luhn()
    rater.stop_words = get_stop_words(_LANGUAGES[language])
    blocks = split(text[:MAX_CHARACTERS], BLOCK)
    found = [_best(rater, _sentences(block, language), sentences) for block in blocks]
    best = found[0] if len(found) == 1 else _best(rater, [one for block in found for one in block], sentences)
    left_out = len(text) > MAX_CHARACTERS
    warnings = [f"the summary covers only the first {MAX_CHARACTERS:,} characters"] if left_out else []
    return Summary(" ".join(best), MODEL, warnings=warnings)


def _best(rater: _Luhn, found: list[str], count: int) -> list[str]:
    tokenizer = _Tokenizer()
    document = ObjectDocumentModel([Paragraph([Sentence(item, tokenizer) for item in found])])
    return [str(sentence) for sentence in rater(document, count)] if found else []


def _language(text: str) -> str:
    """The language whose stop words are most frequent; English when nothing speaks for another."""
    words = [word.lower() for word in _WORD.findall(text)[:_SAMPLE]]

    def hits(code: str) -> int:
        stop_words = get_stop_words(_LANGUAGES[code])
        return sum(word in stop_words for word in words)

    return max(_LANGUAGES, key=hits)


def _sentences(text: str, language: str) -> list[str]:
    """Sentences of running text: headings, tables and page numbers are left out where there is enough else."""
    every = []
    for paragraph in _paragraphs(text):
        every += [item.strip() for item in sentencex.segment(language, paragraph) if item.strip()]
    running = [
        item
        for item in every
        if item[-1] in _ENDS and len(item) <= MAX_SENTENCE and len(_WORD.findall(item)) >= _FEW_WORDS
    ]
    return running or [item[:MAX_SENTENCE] for item in every]


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs on one line each. Text of a PDF has no empty lines: a short line is taken for a heading."""
    for block in _PARAGRAPH.split(text):
        lines = [" ".join(line.split()) for line in block.splitlines() if line.strip()]
        short = 0.6 * max((len(line) for line in lines), default=0)
        start = 0
        for index, line in enumerate(lines):
            if len(line) < short and line[-1] not in ".,;:!?-" and lines[index + 1 : index + 2]:
                if not lines[index + 1][0].isupper():
                    continue
                yield " ".join(lines[start:index])
                yield line
                start = index + 1
        yield " ".join(lines[start:])
