"""`offsetzero demo`: the whole path, once, on real servers that are gone afterwards."""

import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from offsetzero.cli import demo_against
from offsetzero.cli.demo_view import Runs, show
from offsetzero.cli.receiver import Receiver
from offsetzero.cli.scenario import Scenario
from offsetzero.cli.screen import Screen
from offsetzero.cli.up import demo_key, end_on_signals, log_to_file, stop
from offsetzero.embedded.postgres import UNSAFE_BUT_FAST, remove_data
from offsetzero.embedded.stack import Stack
from offsetzero.errors import OffsetzeroError
from offsetzero.settings import PREFIX

_PREFIX = "offsetzero-demo-"
_ANNOUNCED = "kept"
"""A file in each folder that somebody was told of: later demos leave it alone."""


def demo(
    documents: Annotated[
        Path | None, typer.Option(help="Folder with policy.pdf, corrupt.pdf and handbook.pdf.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folder and its logs.")] = False,
    against: Annotated[
        str | None, typer.Option(metavar="URL", help="Use the running pipeline whose API this is; start nothing.")
    ] = None,
    receive_at: Annotated[
        str, typer.Option(metavar="ADDRESS", help="With --against: where to listen for webhooks.")
    ] = "127.0.0.1",
    receive_as: Annotated[
        str | None, typer.Option(metavar="HOST", help="With --against: that address as the notifier knows it.")
    ] = None,
) -> None:
    """See three documents go through Kafka to search, summary and webhook.

    Starts real servers in a temporary folder, uploads a policy, a handbook and a corrupt file, follows their runs,
    and checks what must have happened. The exit status is 0 only when all of it did. Settings in the environment
    are not used. It takes ten seconds or so; the first time a minute or two, when Kafka's jars are fetched.

    All servers are stopped at the end. The folder is removed, too, unless --keep is given, a check fails or Ctrl-C
    interrupts: then its name is printed, and it stays until you remove it.

    With --against they are: OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS and OFFSETZERO_DATABASE_URL name the pipeline's
    servers (or an `offsetzero up` runs), and its API and notifier must allow private webhook targets. The demo is a
    tenant of its own there; its documents, its webhook and its key are removed at the end, its dead letters stay.
    """
    started = time.monotonic()
    folder = documents or Path(__file__).resolve().parents[2] / "examples" / "documents"
    if not (folder / "policy.pdf").exists():
        raise OffsetzeroError(f"the example documents are not in {folder}; name their folder with --documents")
    end_on_signals()
    console = Console()
    try:
        if against is not None:
            good = demo_against.run(against, folder, Receiver(receive_at, receive_as), console)
        else:
            good = _on_own_servers(folder, console, started, keep=keep)
    except KeyboardInterrupt:
        console.print("\nStopped.")
        sys.exit(130)
    sys.exit(0 if good else 1)


def _on_own_servers(folder: Path, console: Console, started: float, *, keep: bool) -> bool:
    _remove_leftovers()
    home = Path(tempfile.mkdtemp(prefix=_PREFIX))
    home.chmod(0o711)  # PostgreSQL's account must pass
    good = False
    try:
        good = _run(home, folder, console, started)
    finally:
        if keep or (not good and (home / "logs").exists()):
            (home / _ANNOUNCED).touch()
            console.print(f"Data and logs are in {home} until you remove them.", soft_wrap=True, highlight=False)
        else:
            _remove(home)
    return good


def _run(home: Path, folder: Path, console: Console, started: float) -> bool:
    screen = Screen(console)
    stack = Stack(home, screen, environment=_environment(), api_port=0, database=UNSAFE_BUT_FAST, supervise=False)
    log_to_file(home)
    try:
        with Receiver() as receiver:
            with screen:
                settings = stack.start()
            ready = time.monotonic() - started
            console.print(f"\nAll parts are ready after {ready:.1f} s. Uploading three documents …\n")
            scenario = Scenario(stack.api_url, demo_key(settings), folder, receiver, settings)
            with Runs(console, scenario.outcome) as runs:
                outcome = scenario.run(runs.changed, stack.check)
        good = show(console, outcome)
    finally:
        stop(stack)
        stack.close()
    console.print(f"Finished in {time.monotonic() - started:.1f} s; all servers are stopped.")
    return good


def _environment() -> dict[str, str]:
    return {
        PREFIX + "RETRY__DELAYS": json.dumps({"retry-1m": 1.0, "retry-10m": 2.0}),  # a minute is long in a demo
        PREFIX + "WEBHOOKS__ALLOW_PRIVATE_TARGETS": "true",  # the receiver is on this machine
    }


def _remove(home: Path) -> None:
    remove_data(home / "postgres")
    shutil.rmtree(home, ignore_errors=True)


def _remove_leftovers() -> None:
    """Remove the folders of demos that were killed: nobody was told of them, and nobody has locked them any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.geteuid():  # a name anybody could have chosen
                continue
            if (folder / _ANNOUNCED).exists():
                continue
            with (folder / "up.lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
