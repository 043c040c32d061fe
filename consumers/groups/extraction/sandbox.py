"""What a reader's process may take and do: limits of the kernel, put on by the process itself before it reads."""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from offsetzero.consumers.groups.extraction import seccomp

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
OPEN_FILES = 64
"""Descriptors that a reader may have."""


class Network(StrEnum):
    """What keeps readers off the network."""

    SECCOMP = "seccomp"
    NAMESPACE = "namespace"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one document may take.

    Attributes:
        memory: bytes of address space beyond what the process has when it begins.
        cpu_seconds: of computing.
        wall_seconds: from start to end.
        output: bytes of the result.
    """

    memory: int
    cpu_seconds: int
    wall_seconds: float
    output: int


def protect_owner(ways: Sequence[Network]) -> Network:
    """For the process that starts readers: orphans of a reader come to it, and readers get no network.

    Args:
        ways: to keep readers off the network; the first that this machine allows is taken.

    Returns:
        What keeps its children off the network.
    """
    if sys.platform != "linux":
        return Network.NOTHING
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    works = {Network.SECCOMP: _seccomp_works, Network.NAMESPACE: _unshare_network}
    return next((way for way in ways if works[way]()), Network.NOTHING)


def enter(limits: Limits, network: Network, owner: int) -> None:
    """For the reader's process, first of all: put on every limit. There is no way back.

    Args:
        limits: of the document.
        network: what `protect_owner` returned.
        owner: process id of the one that started this one; with its death this one ends.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:  # it died before the line above
            os._exit(1)
        with contextlib.suppress(OSError):  # where memory runs out, the kernel ends this process, not its group's
            Path("/proc/self/oom_score_adj").write_text("1000")
    cpu = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + limits.cpu_seconds
    _limit(resource.RLIMIT_CPU, cpu, cpu + 1)
    _limit(resource.RLIMIT_AS, _address_space() + limits.memory)
    _limit(resource.RLIMIT_FSIZE, 0)  # no reader writes a file
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    if os.geteuid() != 0:  # root is exempt, and a limit of its own would mean nothing
        _limit(resource.RLIMIT_NPROC, 0)
    if network is Network.SECCOMP:
        filter_ = seccomp.program(seccomp.this_machine(), os.getpid())
        if filter_ is None or not seccomp.install(filter_):
            os._exit(1)


def _seccomp_works() -> bool:
    """Whether this kernel takes the filter: tried in a child, because it cannot be taken off."""
    pid = os.fork()
    if pid == 0:
        filter_ = seccomp.program(seccomp.this_machine(), os.getpid())
        os._exit(0 if filter_ is not None and seccomp.install(filter_) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _unshare_network() -> bool:
    """Go into a network of one's own with nothing in it: as root, or where the kernel lets anybody."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.unshare(_CLONE_NEWNET) == 0 or libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0)


def _address_space() -> int:
    """Bytes of address space of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 1024**3
    return pages * resource.getpagesize()


def _limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit, never above what holds already; systems that do not know it (macOS: RLIMIT_AS) are let be."""
    most = resource.getrlimit(kind)[1]
    wanted = soft if hard is None else hard
    top = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (min(soft, top), top))


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), zero, zero, zero)
