"""The reader pools of this process: started at the first document, ended with the process."""

import atexit
import threading

from offsetzero.consumers.groups.extraction.pool import ReaderPool
from offsetzero.settings import DocumentSettings

_lock = threading.Lock()
_pools: dict[DocumentSettings, ReaderPool] = {}


def pool(settings: DocumentSettings) -> ReaderPool:
    """The pool for these limits; groups in one process share it."""
    with _lock:
        found = _pools.get(settings)
        if found is None:
            found = ReaderPool(settings)
            found.start()
            _pools[settings] = found
        return found


@atexit.register
def close() -> None:
    """End all pools of this process and wait until they have ended."""
    with _lock:
        pools = list(_pools.values())
        _pools.clear()
    for each in pools:
        each.close()
