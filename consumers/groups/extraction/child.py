"""The process that reads one document: enters the sandbox, reads, says what it found, ends."""

import os
from collections.abc import Mapping
from typing import NoReturn

from offsetzero.consumers.groups.documents.pages import Reader
from offsetzero.consumers.groups.extraction import results, sandbox
from offsetzero.consumers.groups.extraction.sandbox import Limits, Network
from offsetzero.retry import traces
from offsetzero.retry.failures import Bug, Failure, Permanent

_MAX_SAID = 500  # characters of an unexpected error's message
_MAX_STACK = 10_000  # characters of the end of its stack


def run(
    file: int,
    output: int,
    content_type: str,
    readers: Mapping[str, Reader],
    limits: Limits,
    network: Network,
    owner: int,
) -> NoReturn:
    """Read a document and end. Called in a process forked for it, which has nothing else open.

    Args:
        file: descriptor of the document, at its start.
        output: descriptor that the answer is written to.
        content_type: which reader to use.
        readers: by content type.
        limits: of this document.
        network: what keeps this process off the network.
        owner: the process that forked this one.
    """
    status = 1
    try:
        sandbox.enter(limits, network, owner)
        _write(output, _answer(file, content_type, readers))
        status = 0
    finally:
        os._exit(status)


def _answer(file: int, content_type: str, readers: Mapping[str, Reader]) -> bytes:
    try:
        reader = readers.get(content_type)
        if reader is None:
            raise Permanent("unsupported-type", f"no reader for {content_type[:100]!r}")
        with os.fdopen(file, "rb", closefd=False) as opened:
            return results.of_text(reader(opened))
    except MemoryError:
        return results.TOO_MUCH_MEMORY
    except Failure as failure:
        return results.of_failure(failure)
    except Exception as error:  # a fault of ours, told with its stack
        said = f"{type(error).__name__}: {error}"[:_MAX_SAID]
        bug = Bug(type(error).__name__, "an unexpected error; operators see it in the log", internal=said)
        return results.of_failure(bug, traces.stack(error)[-_MAX_STACK:])


def _write(output: int, answer: bytes) -> None:
    left = memoryview(answer)
    while left:
        left = left[os.write(output, left) :]
