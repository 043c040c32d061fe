"""How a reader's process ended, and the failure that this is for its document."""

import signal
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from offsetzero.consumers.groups.extraction.sandbox import Limits
from offsetzero.retry.failures import Failure, Poison, Transient

_MUCH = 0.5  # of the memory limit: native code that gets no more crashes in ways of its own


class Stop(StrEnum):
    """Why the process was stopped, if it was."""

    NOT = "not"
    TIME = "time"
    OUTPUT = "output"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a process.

    Attributes:
        stop: why its owner stopped it.
        status: exit status, negative for a signal.
        cpu_seconds: that it used.
        memory: bytes, the most that it had at once beyond what it began with.
    """

    stop: Stop
    status: int
    cpu_seconds: float = 0.0
    memory: int = 0

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "Ending":
        """From what `as_data` gave."""
        return cls(Stop(data["stop"]), data["status"], data["cpu_seconds"], data["memory"])


def failure(ending: Ending, limits: Limits) -> Failure | None:
    """The failure that an end is; None when the process ended well, so that its answer counts."""
    if ending.stop is Stop.TIME:
        used = f"{ending.cpu_seconds:.0f} s of it computing"
        return Poison("too-slow", f"the document was not read within {limits.wall_seconds:g} s, {used}")
    if ending.stop is Stop.OUTPUT:
        return Poison("too-much-text", f"reading gave more than {limits.output} bytes")
    if ending.stop is Stop.MEMORY:
        return too_much_memory(limits)
    if ending.status == 0:
        return None
    if ending.status == -signal.SIGXCPU:
        return Poison("too-slow", f"reading took more than {limits.cpu_seconds} s of computing")
    if ending.status == -signal.SIGSYS:
        return Poison("reader-forbidden", "its reader tried to open a connection or to start a process")
    if ending.status == -signal.SIGKILL:  # not by its owner: the kernel out of memory, or an operator
        return Transient(
            "reader-killed", "the reader's process was killed from outside (is the machine out of memory?)"
        )
    if ending.memory > _MUCH * limits.memory:
        return too_much_memory(limits)
    return Poison("reader-crashed", f"its reader crashed: {_named(ending.status)}")


def too_much_memory(limits: Limits) -> Failure:
    """The failure of a document that needs more memory than it may take."""
    return Poison("too-much-memory", f"reading needs more than {limits.memory // 1024**2} MiB of memory")


def _named(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
