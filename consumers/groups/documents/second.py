"""The second PDF library behind pdfium: pypdf, opened at its first use and bounded in time."""

import logging
import time
from collections.abc import Callable
from typing import IO, TypeVar

from pypdf import PdfReader
from pypdf.errors import FileNotDecryptedError

T = TypeVar("T")

# pypdf tells of every oddity it meets: ten thousand lines for one broken file.
logging.getLogger("pypdf").setLevel(logging.CRITICAL + 1)

SECONDS = 30.0
"""For all its work on one file, looked at between pages: it is pure Python, slow on hostile files."""


class SecondReader:
    """pypdf on one file. Whatever it raises means that it cannot read the file or the page.

    Args:
        file: the file; it is read from its start.
        monotonic: seconds, from any start.
    """

    def __init__(self, file: IO[bytes], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._monotonic = monotonic
        self._left = SECONDS
        self._reader: PdfReader | None = None
        self._unusable = False
        self.needs_password = False

    def count(self) -> int | None:
        """How many pages there are; None when pypdf cannot open the file."""
        return self._bounded(lambda: len(self._open().pages))

    def page(self, index: int) -> str | None:
        """Text of a page, counted from 0; None when pypdf cannot read it."""
        return self._bounded(lambda: self._open().pages[index].extract_text())

    def _open(self) -> PdfReader:
        if self._reader is None:
            self._reader = PdfReader(self._file, strict=False)
        return self._reader

    def _bounded(self, work: Callable[[], T]) -> T | None:
        if self._unusable or self._left <= 0:
            return None
        started = self._monotonic()
        try:
            return work()
        except FileNotDecryptedError:
            self.needs_password = self._unusable = True
        except MemoryError:
            raise  # says that this file needs too much, not that it is broken
        except Exception:  # a broken file makes it stumble over anything, RecursionError included
            self._unusable = self._reader is None
        finally:
            self._left -= self._monotonic() - started
        return None
