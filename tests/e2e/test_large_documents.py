"""Large and odd documents end in bounded time and memory, and fail alone.

The limits stated here are several times what an idle machine of 2025 needs, because CI is not idle.
"""

import io
import os
import random
import resource
import string
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import office
import pdfs
import pytest
from desk import Desk

from offsetzero.retry.failures import Poison
from offsetzero.settings import Settings
from support import within

MIB = 1024 * 1024
pytestmark = pytest.mark.timed
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(Settings(home=tmp_path, database_url=database_url))
    yield made
    made.pool.close()


class Grown:
    """How many bytes of memory this process grew by within a `with` block, at its peak."""

    def __enter__(self) -> "Grown":
        self.bytes = 0
        self._start = self._resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.bytes = max(self.bytes, self._resident() - self._start)

    @staticmethod
    def _resident() -> int:
        pages = int(Path(f"/proc/{os.getpid()}/statm").read_text().split()[1])
        return pages * resource.getpagesize()


def _words(count: int) -> list[str]:
    dice = random.Random(1)
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(dice.choices(string.ascii_lowercase, k=dice.randint(4, 9))))
    words = sorted(found)
    dice.shuffle(words)
    return words


def test_300_pages_take_30_seconds_and_100_mib_at_most(desk: Desk) -> None:
    text = "Every page of this long report says the same about budgets. " * 40
    data = pdfs.pdf(*[f"Page {number}. {text}" for number in range(1, 300)], "The last page has a treasure.")
    started = time.monotonic()
    with Grown() as grown:
        assert desk.index(desk.document(data)) == []
        desk.summarise(desk.document(data))
    within(30, time.monotonic() - started, "300 pages")
    assert grown.bytes < 100 * MIB
    (hit,) = desk.search("treasures")
    assert hit.page == 300
    assert desk.rows("SELECT pages FROM indexed_documents") == [(300,)]


@pytest.mark.parametrize("kind", ["txt", "docx"])
def test_250_000_distinct_words_take_60_seconds_and_200_mib_at_most(desk: Desk, kind: str) -> None:
    """PostgreSQL refuses a tsvector over 1 MiB: one of the whole document would be larger."""
    words = _words(250_000)
    text = " ".join(words)
    if kind == "txt":
        document = desk.document(text.encode(), "many.txt", "text/plain")
    else:
        paragraphs = [" ".join(words[start : start + 100]) for start in range(0, len(words), 100)]
        document = desk.document(office.docx(*paragraphs), "many.docx", DOCX)
    started = time.monotonic()
    with Grown() as grown:
        assert desk.index(document) == []
        desk.summarise(document)
    within(60, time.monotonic() - started, "it")
    assert grown.bytes < 200 * MIB
    for word in (words[0], words[125_000], words[-1]):
        assert [hit.name for hit in desk.search(f'"{word}"')] == [f"many.{kind}"]


def test_a_word_too_long_for_the_index_fails_nothing(desk: Desk) -> None:
    """PostgreSQL indexes no word over 2,047 bytes."""
    text = "before " + "x" * 1_700 + " between " + "\U0001d517" * 1_500 + " after"
    desk.index(desk.document(text.encode(), "long.txt", "text/plain"))
    assert len(desk.search("before")) == len(desk.search("after")) == 1


def _zip_bomb() -> bytes:
    """900 MiB of spaces."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("word/document.xml", "w") as part,
    ):
        part.write(b"<a>")
        for _ in range(900):
            part.write(b" " * MIB)
        part.write(b"</a>")
    return file.getvalue()


def _nested() -> bytes:
    return office.zip_of(word__document_xml=b"<a>" * 3_000_000)


@pytest.mark.parametrize(
    ("name", "kind", "make", "reasons"),
    [
        ("bomb.docx", DOCX, _zip_bomb, {"too-much-memory"}),
        ("nested.docx", DOCX, _nested, {"corrupt", "too-much-memory", "reader-crashed"}),
    ],
    ids=["zip bomb", "nested XML"],
)
def test_a_bomb_fails_alone(desk: Desk, name: str, kind: str, make: Callable[[], bytes], reasons: set[str]) -> None:
    good, bad = desk.document(pdfs.pdf("A good document."), "good.pdf"), desk.document(make(), name, kind)
    started = time.monotonic()
    with Grown() as grown, pytest.raises(Poison) as caught:
        desk.index(bad)
    assert caught.value.reason in reasons
    within(60, time.monotonic() - started, "it")
    assert grown.bytes < 100 * MIB
    desk.index(good)
    assert len(desk.search("good")) == 1


def _outcome(desk: Desk, data: bytes, name: str, kind: str) -> str:
    """The reason of the failure, or `read`."""
    try:
        desk.index(desk.document(data, name, kind))
    except Poison as poison:
        return poison.reason
    return "read"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("<div>" * 500_000, "html"),
        ("<p>&nbsp;" * 500_000, "html"),
        ("<table>" * 200_000, "html"),
        ("<!--" * 500_000, "html"),
        ("<a b='" + "x" * 5_000_000, "html"),
        ("> " * 300_000, "markdown"),
        ("[" * 300_000, "markdown"),
        ("* a\n" * 100_000, "markdown"),
        ("`" * 500_000, "markdown"),
        ("|a" * 300_000, "markdown"),
    ],
    ids=["deep", "flat", "tables", "comments", "attribute", "quotes", "brackets", "list", "ticks", "cells"],
)
def test_odd_markup_takes_100_seconds_at_most(desk: Desk, source: str, kind: str) -> None:
    started = time.monotonic()
    outcome = _outcome(desk, source.encode(), f"odd.{kind}", f"text/{kind}")
    within(100, time.monotonic() - started, "it")
    assert outcome in {"read", "too-slow", "too-much-memory", "reader-crashed"}
