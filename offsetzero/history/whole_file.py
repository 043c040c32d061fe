"""A file that is there only when it is whole."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from offsetzero.errors import HistoryError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when the block ends well, and is gone when it does not.

    Raises:
        HistoryError: it cannot be written, or another process writes it.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HistoryError(f"{path}: another export to it is under way") from None
            try:
                file.truncate(0)
                yield file
                file.flush()
                os.fsync(file.fileno())
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror or error}; nothing was left behind") from error
