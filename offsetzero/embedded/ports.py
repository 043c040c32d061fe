"""TCP ports of this machine's loopback interface."""

import errno
import os
import socket

from offsetzero.errors import ServerError

HOST = "127.0.0.1"
API_REMEDY = "choose another with --port or OFFSETZERO_API__PORT (0 takes a free one)"


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed server's old connections do not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free(count: int = 1) -> list[int]:
    """Different ports that are free now; another process may take one before it is used."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def prefer(port: int | None) -> int:
    """The port, if it is given and free; else a free one."""
    return port if port and is_free(port) else free()[0]


def require(port: int, what: str, remedy: str, host: str = HOST) -> int:
    """The port, or a free one for 0.

    Raises:
        ServerError: another process has it.
    """
    if port == 0:
        return free()[0]
    if not is_free(port, host):
        raise unusable(port, what, remedy, host, OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
    return port


def unusable(port: int, what: str, remedy: str, host: str, error: OSError) -> ServerError:
    """What to say of a port that cannot be bound: the same wherever that is found out."""
    taken = "is taken by another process" if error.errno == errno.EADDRINUSE else "cannot be used"
    return ServerError(f"{what}: port {port} on {host} {taken} ({error.strerror}); {remedy}")


def accepts(port: int) -> bool:
    """Whether something listens on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) == 0
