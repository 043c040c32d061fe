"""Looks at a machine from outside: accounts, processes, sockets, permissions."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException

from offsetzero.embedded import accounts
from offsetzero.embedded.kafka import Kafka
from support import wait_until

ORDINARY = 65_534
"""The user `nobody` of most systems."""
NAMELESS = 59_900
"""A user id without an entry anywhere."""


def as_ordinary(command: list[str], user: int = ORDINARY) -> list[str]:
    """The command as a user who is not root."""
    if os.geteuid() != 0:
        return command
    drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    if not accounts.reachable(Path(sys.executable).resolve()):  # a Python below /root: may be read, not written
        drop += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [*drop, "--", *command]


def give(folder: Path, user: int = ORDINARY) -> None:
    """Make a tree the ordinary user's."""
    if os.geteuid() == 0:
        accounts.give(folder, user)


def autogroup(pid: int) -> int | None:
    """How nice the session of a process is; None where sessions are no groups (sched(7))."""
    try:
        return int(Path(f"/proc/{pid}/autogroup").read_text().rpartition(" ")[2])
    except (OSError, ValueError):
        return None


def processes_of(home: Path, name: str = "") -> list[int]:
    """Processes that have the folder in their arguments or environment, but this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes()
            text = arguments + (folder / "environ").read_bytes()
        except OSError:  # ended meanwhile
            continue
        if os.fsencode(home) in text and name.encode() in arguments and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def program(pid: int) -> str:
    """The name of the program that a process runs."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def offsetzero_up(home: Path, *more: str, ordinary: bool = False) -> "subprocess.CompletedProcess[str]":
    """Run `up` where it cannot start."""
    command = [sys.executable, "-m", "offsetzero", "up", "--port", "0", "--home", str(home), *more]
    return subprocess.run(
        as_ordinary(command) if ordinary else command,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": "/nowhere"} if ordinary else None,
        cwd="/",
        timeout=60,
        check=False,
    )


class Steps:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def step(self, name: str, state: str, detail: str = "") -> None:
        self.told.append((name, state, detail))

    def jars(self, done: int, total: int) -> None:
        pass


@contextmanager
def small_disk(*options: str) -> Iterator[Path]:
    """A disk of its own, mounted as long as it is used; root only."""
    with tempfile.TemporaryDirectory(prefix="oz-disk-") as folder:
        Path(folder).chmod(0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(("mode=755", *options)), "none", folder], check=True)
        try:
            yield Path(folder)
        finally:
            # a killed server's guard may still be ending
            unmount = ["umount", folder]
            wait_until(lambda: subprocess.run(unmount, capture_output=True, check=False).returncode == 0)


def can_mount() -> bool:
    """Whether a disk can be mounted here."""
    if os.geteuid() != 0:
        return False
    try:
        with small_disk("size=1m"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def listening(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Address and port of every TCP socket that listens and every UDP socket, of these processes."""
    open_sockets = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            target = str(entry.readlink()) if entry.is_symlink() else ""
            if target.startswith("socket:["):
                open_sockets.add(target[8:-1])
    found = set()
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in open_sockets and (name.startswith("udp") or fields[3] == "0A"):
                found.add(_address(fields[1]))
    return found


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.partition(":")
    words = [int(host[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(host), 8)]
    packed = b"".join(words)
    if packed[:12] == b"\0" * 10 + b"\xff\xff":
        packed = packed[12:]
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed), int(port, 16)


def permissions(folders: Iterable[Path]) -> dict[Path, tuple[int, int, int]]:
    """Mode, owner and group of folders and all above them; of trees that are named, everything below as well."""
    paths: set[Path] = set()
    for folder in folders:
        paths |= {folder, *folder.parents, *folder.rglob("*")}
    return {path: (stat.st_mode, stat.st_uid, stat.st_gid) for path in paths if (stat := path.lstat())}


def changed(before: dict[Path, tuple[int, int, int]]) -> dict[Path, object]:
    """What `permissions` gave then and gives now, where the two differ."""
    now = {path: (stat.st_mode, stat.st_uid, stat.st_gid) for path in before if (stat := path.lstat())}
    return {path: (was, now[path]) for path, was in before.items() if now[path] != was}


def first_record(server: Kafka, topic: str) -> bytes | None:
    """The first record of a topic, as a group of KIP-848 reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])

        def poll() -> bytes | None:
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                raise KafkaException(message.error())
            return message.value() if message is not None else None

        return wait_until(poll, what="the first record")
    finally:
        consumer.close()
