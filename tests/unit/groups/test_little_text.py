"""Little plain text is read without a process of its own, and gives what one would give."""

import tempfile
from collections.abc import Iterator

import pytest

from offsetzero.consumers.groups.documents import formats, load
from offsetzero.consumers.groups.documents.pages import Extracted
from offsetzero.consumers.groups.extraction import ReaderPool, shared
from offsetzero.retry.failures import Failure
from offsetzero.settings import DocumentSettings

SETTINGS = DocumentSettings(workers=1)
TEXTS = [
    b"",
    "Gr\u00fc\u00dfe aus K\u00f6ln\fzweite Seite".encode(),
    "Gr\u00fc\u00dfe".encode("windows-1252"),
    "\ufdfa broken-\nwords \u0000 and \U0001f600".encode("utf-16"),
    b"\xff\xfe\x00\xd8lone",
    b"PK\x03\x04",
    bytes(range(256)),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[ReaderPool]:
    with ReaderPool(SETTINGS) as pool:
        yield pool


def outcome(pool: ReaderPool | None, content: bytes) -> Extracted | tuple[str, str]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        try:
            if pool is None:
                return load.read(SETTINGS, formats.TEXT.content_type, file)
            return pool.read(formats.TEXT.content_type, file)
        except Failure as failure:
            return failure.reason, failure.detail


@pytest.mark.parametrize("content", TEXTS)
def test_it_is_what_a_process_would_have_read(pool: ReaderPool, content: bytes) -> None:
    assert outcome(None, content) == outcome(pool, content)
    assert SETTINGS not in shared._pools, "no process was started"


def test_larger_text_and_other_formats_have_a_process() -> None:
    asked: list[str] = []

    class Pool:
        def read(self, content_type: str, _file: object) -> Extracted:
            asked.append(content_type)
            return Extracted([])

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file:
        patch.setattr(shared, "pool", lambda _settings: Pool())
        file.write(b"x" * (load.LITTLE + 1))
        load.read(SETTINGS, formats.TEXT.content_type, file)
        file.truncate(10)
        load.read(SETTINGS, formats.HTML.content_type, file)
        load.read(SETTINGS, formats.TEXT.content_type, file)
    assert asked == ["text/plain", "text/html"]
