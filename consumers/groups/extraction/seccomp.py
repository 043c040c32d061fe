"""A filter of system calls (Linux, seccomp): no network, no other process, for a process that only reads a file.

It needs no privilege and cannot be taken off again. A forbidden call ends the process with SIGSYS. Numbers are those
of the kernel's tables for x86-64 and arm64; see seccomp(2), and bpf(4) of BSD for the instructions.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF: LD|W|ABS, JEQ, JGE, JSET, RET
_ALLOW = 0x7FFF_0000
_KILL_PROCESS = 0x8000_0000
_NOT_IMPLEMENTED = 0x0005_0000 | errno.ENOSYS
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; the low half of the first argument
_CLONE_THREAD = 0x0001_0000
_X32 = 0x4000_0000  # x86-64 only: the same calls under other numbers
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2


@dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers of one architecture. `signals` are allowed to the process itself, `forbidden` never."""

    audit: int
    clone: int
    clone3: int
    signals: tuple[int, ...]
    forbidden: tuple[int, ...]


# pidfd_send_signal, io_uring_setup (opens sockets without socket()), io_uring_enter, io_uring_register, pidfd_open,
# pidfd_getfd: the same number everywhere.
_EVERYWHERE = (424, 425, 426, 427, 434, 438)
_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _Machine(
        audit=0xC000_003E,
        clone=56,
        clone3=435,
        signals=(62, 129, 200, 234, 297),  # kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo
        # socket, connect, accept, sendto, bind, listen, socketpair, fork, vfork, execve, ptrace, unshare, accept4,
        # setns, process_vm_readv, process_vm_writev, bpf, execveat
        forbidden=(41, 42, 43, 44, 49, 50, 53, 57, 58, 59, 101, 272, 288, 308, 310, 311, 321, 322, *_EVERYWHERE),
    ),
    "aarch64": _Machine(
        audit=0xC000_00B7,
        clone=220,
        clone3=435,
        signals=(129, 130, 131, 138, 240),
        # unshare, ptrace, socket, socketpair, bind, listen, accept, connect, sendto, execve, accept4, setns,
        # process_vm_readv, process_vm_writev, bpf, execveat
        forbidden=(97, 117, 198, 199, 200, 201, 202, 203, 206, 221, 242, 268, 270, 271, 280, 281, *_EVERYWHERE),
    ),
}


def program(machine: str, pid: int) -> bytes | None:
    """The filter for a process; None for a machine whose numbers are not known here.

    Threads stay allowed: `clone` with CLONE_THREAD; `clone3` hides its flags from a filter, so it "does not exist"
    and the C library takes `clone`.

    Args:
        machine: as `platform.machine()` says.
        pid: of the process that will be filtered: it may send signals to itself (`abort` does).
    """
    known = _MACHINES.get(machine)
    if known is None:
        return None
    parts = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_EQUAL, known.audit, yes=1),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        parts += [_instruction(_AT_LEAST, _X32, no=1), _instruction(_RETURN, _KILL_PROCESS)]
    for number in known.forbidden:
        parts += _when(number, [_instruction(_RETURN, _KILL_PROCESS)])
    parts += _when(known.clone3, [_instruction(_RETURN, _NOT_IMPLEMENTED)])
    parts += _when(known.clone, _only_if(_instruction(_ANY_BIT, _CLONE_THREAD, no=1)))
    for number in known.signals:
        parts += _when(number, _only_if(_instruction(_EQUAL, pid, no=1)))
    parts.append(_instruction(_RETURN, _ALLOW))
    return b"".join(parts)


def install(filter_: bytes) -> bool:
    """Put a filter over the calling process for good. False when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(filter_, len(filter_))
    header = struct.pack("HP", len(filter_) // 8, ctypes.addressof(code))  # struct sock_fprog
    zero, one = ctypes.c_ulong(0), ctypes.c_ulong(1)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, one, zero, zero, zero) != 0:
        return False
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    return bool(libc.prctl(_PR_SET_SECCOMP, mode, ctypes.c_char_p(header), zero, zero) == 0)


def this_machine() -> str:
    """The name of this process's architecture."""
    return platform.machine()


def _when(number: int, then: Sequence[bytes]) -> list[bytes]:
    return [_instruction(_EQUAL, number, no=len(then)), *then]


def _only_if(condition: bytes) -> list[bytes]:
    """Allow the call when the condition on its first argument holds."""
    return [
        _instruction(_LOAD, _ARGUMENT),
        condition,
        _instruction(_RETURN, _ALLOW),
        _instruction(_RETURN, _KILL_PROCESS),
    ]


def _instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)
