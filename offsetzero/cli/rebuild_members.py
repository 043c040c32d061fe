"""The processes that fill a generation: members of its consumer group, children of the command."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from offsetzero import logs
from offsetzero.embedded.process import Child
from offsetzero.errors import ServerError
from offsetzero.generation import Generation
from offsetzero.settings import PREFIX

MAX_DEATHS = 3
"""Members that may be killed from outside (memory, for instance) before the command gives up."""
_SIGNALLED = 128  # a status above it: ended by a signal

log = logs.get(__name__)


class Members:
    """So many processes `offsetzero groups run GROUP --generation N`; a context manager, which stops them in order.

    They cannot outlive this process, however it ends.

    Args:
        target: the group, as `groups run` takes it.
        generation: which they work for.
        count: how many.
    """

    def __init__(self, target: str, generation: Generation, count: int) -> None:
        self._target = target
        self._generation = generation
        self._count = count
        self._deaths = 0
        self._children: list[Child] = []
        self._folder = Path(tempfile.mkdtemp(prefix=f"offsetzero-{generation.name}-"))

    def __enter__(self) -> Self:
        self._children = [self._start(number) for number in range(self._count)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if not isinstance(error, ServerError):  # which names the logs
            shutil.rmtree(self._folder, ignore_errors=True)

    def check(self) -> None:
        """Start those again that something has killed.

        Raises:
            ServerError: one has ended by itself, or too many were killed; with its last lines.
        """
        for number, child in enumerate(self._children):
            if (status := child.poll()) is None:
                continue
            self._deaths += 1
            if status <= _SIGNALLED or self._deaths > MAX_DEATHS:
                raise ServerError(f"{child.name} ended with status {status}; it said (in {child.log}):\n{child.tail()}")
            log.warning("member killed", member=child.name, status=status)
            self._children[number] = self._start(number)

    def stop(self) -> None:
        """Have them finish what they have begun, commit and leave."""
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.stop()
        self._children = []

    def _start(self, number: int) -> Child:
        generation = self._generation
        arguments = ["groups", "run", self._target, "--generation", str(generation.number)]
        return Child(
            f"member {number + 1} of {generation.name}",
            [sys.executable, "-m", "offsetzero", *arguments],
            log=self._folder / f"{number + 1}.log",
            env={**os.environ, PREFIX + "METRICS_PORT": "0"},
            grace=60.0,
        )
