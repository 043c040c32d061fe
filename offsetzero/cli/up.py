"""`offsetzero up`: all parts on this machine, until Ctrl-C."""

import contextlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from offsetzero import endpoints
from offsetzero.cli import hints
from offsetzero.cli.screen import Screen
from offsetzero.embedded import disk, ports
from offsetzero.embedded.stack import Stack, inherited
from offsetzero.errors import OffsetzeroError
from offsetzero.settings import PREFIX, Settings, load

TENANT = "demo"


def up(
    port: Annotated[int | None, typer.Option(help="Port of the API, 0 for a free one; OFFSETZERO_API__PORT.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder of all data; OFFSETZERO_HOME.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as one JSON line when ready.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over: remove all data of the folder first.")] = False,
) -> None:
    """Run Kafka, PostgreSQL, API, relay, scheduler, sweeper and groups on this machine until Ctrl-C.

    Data stay in the folder and are there again at the next start. Other commands, in other terminals, find the
    servers by themselves. Servers that the environment names are used instead of embedded ones.
    """
    own = inherited()
    if home is not None:
        own[PREFIX + "HOME"] = os.environ[PREFIX + "HOME"] = str(home.absolute())
    settings = load()  # mistakes are told before anything starts
    end_on_signals()
    from rich.console import Console

    wanted = settings.api.port if port is None else port
    if not endpoints.lock_file(settings.home).exists():  # else the folder may be in use, which says more
        ports.require(wanted, "api", ports.API_REMEDY)  # before a folder is made for nothing
    screen = Screen(Console(stderr=True) if as_json else Console())
    stack = Stack(
        settings.home,
        screen,
        environment=own,
        api_port=wanted,
        fresh=fresh,
    )
    try:
        with disk.told(stack.home):
            run(stack, screen, as_json=as_json)
    finally:
        stack.close()


def run(stack: Stack, screen: Screen, *, as_json: bool) -> None:
    """Start the stack, show its addresses, keep it until a signal, and stop it."""
    log_to_file(stack.home)
    try:
        with screen:
            config = stack.start()
        stack.write_endpoints()
        _show(stack, config, screen, as_json=as_json)
        while True:
            stack.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        screen.console.print("\nStopping (again to end everything at once) …")
    except (OffsetzeroError, OSError):
        stop(stack)
        raise
    stop(stack)


def stop(stack: Stack) -> None:
    """Stop the stack in order; a further signal ends everything at once."""
    try:
        stack.stop()
    except KeyboardInterrupt:
        stack.kill()
        sys.exit(130)


def log_to_file(home: Path) -> None:
    """Keep this process's own log lines (librdkafka's, too) in a file: the screen shows what a person needs."""
    folder = home / "logs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handler = logging.FileHandler(folder / "up.log", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)


def end_on_signals() -> None:
    """SIGTERM and SIGHUP (the terminal was closed) end the process as Ctrl-C does."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)


def demo_key(config: Settings) -> str:
    """An API key of the tenant `demo`: the one of the last start when the database still knows it, else a new one."""
    import psycopg

    from offsetzero.store import tenants
    from offsetzero.store.script import run as run_script

    path = config.home / "demo-key"
    with psycopg.connect(config.database_url.get_secret_value()) as connection:
        with contextlib.suppress(OSError):
            key = path.read_text().strip()
            if run_script(connection, tenants.tenant_of(key)) == TENANT:
                return key
        key = tenants.create_key(connection, TENANT)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(key + "\n")
    return key


def _show(stack: Stack, config: Settings, screen: Screen, *, as_json: bool) -> None:
    key = demo_key(config)
    addresses: dict[str, Any] = {
        "api": stack.api_url,
        "api_description": f"{stack.api_url}/openapi.json",
        "api_key": key,
        "kafka": config.kafka.bootstrap_servers,
        "database": config.database_url.get_secret_value(),
        "metrics": {name: f"http://127.0.0.1:{item.port}/metrics" for name, item in stack.processes.items()},
        "home": str(stack.home),
    }
    if as_json:
        print(json.dumps(addresses), flush=True)
        return
    from rich.text import Text

    rows = {
        "API": f"{stack.api_url}   (its description: {addresses['api_description']})",
        "Key": f"{key}   (tenant {TENANT})",
        "Kafka": addresses["kafka"],
        "PostgreSQL": addresses["database"],
        "Data, logs": str(stack.home) + _elsewhere(stack),
    }
    lines = [Text.assemble("\n", (f"{name:<12}", "bold"), value) for name, value in rows.items()]
    lines.append(Text("\n\nTry, in another terminal:"))
    for purpose, commands in hints.commands(stack.api_url, key, stack.home):
        lines.append(Text.assemble("\n\n", purpose, *(f"\n  {command}" for command in commands)))
    lines.append(Text("\n\nRunning until Ctrl-C."))
    screen.console.print(Text.assemble(*lines), highlight=False, soft_wrap=True)  # whole lines, to be copied


def _elsewhere(stack: Stack) -> str:
    """Where PostgreSQL's data are, when they are not in the folder."""
    postgres = stack.postgres
    return f"   (PostgreSQL's: {postgres.home})" if postgres and postgres.home != postgres.folder else ""
