"""Starting over: the data of a home are removed, and nothing else that is in the folder."""

import shutil
from pathlib import Path

from offsetzero import endpoints
from offsetzero.embedded import disk, version
from offsetzero.embedded.postgres import remove_data

_FOLDERS = ("kafka", "objects", "logs")
_FILES = ("demo-key", version.FILE)


def remove(home: Path) -> None:
    """Remove what servers and processes wrote below a home, and PostgreSQL's data where they are kept elsewhere.

    The home itself and what else is in it stay: somebody may have named a folder with other files.

    Args:
        home: one that nobody uses; the caller holds its lock.

    Raises:
        ServerError: something cannot be removed.
    """
    with disk.told(home):
        remove_data(home / "postgres")
        for name in _FOLDERS:
            if (home / name).exists():
                shutil.rmtree(home / name)
        for path in (endpoints.file(home), *(home / name for name in _FILES)):
            path.unlink(missing_ok=True)
