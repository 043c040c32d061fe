"""`offsetzero api`, `relay`, `scheduler`, `sweeper` and `migrate`: the processes that are no consumer groups."""

import resource
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Annotated, Any, Protocol

import typer

from offsetzero import logs, metrics
from offsetzero.cli import collector
from offsetzero.embedded import ports
from offsetzero.settings import Settings, load

SILENT_MS = 25_000  # a client that takes nothing for so long is dead; with a comment each 15 s it is found within 45 s

_FILES = 65_536  # open files of the API: the usual limit, 1,024, is below what one tenant's streams may be


def api(
    host: Annotated[str | None, typer.Option(help="Address to bind; OFFSETZERO_API__HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for a free one; OFFSETZERO_API__PORT.")] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(help="Python module of your own events, for schedules of them; may be given several times."),
    ] = None,
) -> None:
    """Serve HTTP: documents, runs, search, webhook subscriptions, schedules, /healthz, /readyz, /metrics."""
    from offsetzero.imports import import_module

    for name in module or ():
        import_module(name)
    settings = load(needs=frozenset({"database"}))
    logs.configure(process="api", form=settings.log_format, level=settings.log_level)
    listener = listen(host or settings.api.host, settings.api.port if port is None else port)
    from offsetzero.api.app import create_app
    from offsetzero.api.server import Server

    take_files(settings.api.streams)
    bound: Any = listener.getsockname()
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn ends in order, then raises the signal again for us: to end as asked is no failure.
        signal.signal(number, lambda _number, _frame: sys.exit(0))
    logs.get(__name__).info("api listens", host=bound[0], port=bound[1])
    app = create_app(settings)
    collector.spare()
    Server(app).run(sockets=[listener])


def relay(
    module: Annotated[
        list[str] | None,
        typer.Option(help="Python module of your own events, for rows of plain SQL; may be given several times."),
    ] = None,
) -> None:
    """Publish outbox rows until SIGTERM or Ctrl-C; as many may run as you like, they share the keys.

    Serves /metrics, /healthz and /readyz.
    """
    from offsetzero.imports import import_module

    for name in module or ():
        import_module(name)
    settings = load(needs=frozenset({"database", "kafka"}))
    stop = _told(settings, "relay")
    from offsetzero.producers.relay import Relay

    _work(Relay(settings), settings, stop)


def scheduler() -> None:
    """Do what is due by schedules until SIGTERM or Ctrl-C; as many may run as you like, each fire time has one effect.

    Serves /metrics, /healthz and /readyz.
    """
    settings = load(needs=frozenset({"database"}))
    stop = _told(settings, "scheduler")
    from offsetzero.producers.schedules.scheduler import Scheduler

    _work(Scheduler(settings), settings, stop)


def sweeper() -> None:
    """Have steps of runs begun again whose process is gone, or does not end them, until SIGTERM or Ctrl-C.

    As many may run as you like: one acts at a time. Serves /metrics, /healthz and /readyz.
    """
    settings = load(needs=frozenset({"database", "kafka"}))
    stop = _told(settings, "sweeper")
    from offsetzero.consumers.sweeping.sweeper import Sweeper

    _work(Sweeper(settings), settings, stop)


class _Process(Protocol):
    def health(self) -> tuple[bool, dict[str, Any]]: ...

    def run(self, stop: threading.Event) -> None: ...


def _told(settings: Settings, name: str) -> threading.Event:
    """Set up the logs of a process, before it imports what it is; what SIGTERM and Ctrl-C set from then on."""
    logs.configure(process=name, form=settings.log_format, level=settings.log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def _work(process: _Process, settings: Settings, stop: threading.Event) -> None:
    """Serve its pages, and have it work until it is told to stop."""
    serve_metrics(settings, dict.fromkeys(("/healthz", "/readyz"), process.health))
    process.run(stop)


def serve_metrics(settings: Settings, pages: Mapping[str, metrics.Page]) -> None:
    """Serve this process's metrics, `/healthz` and `/readyz`, and log where.

    Args:
        settings: name the address.
        pages: what is served besides the metrics, by path.

    Raises:
        ServerError: the port cannot be bound.
    """
    host, port = settings.metrics_host, settings.metrics_port
    try:
        port = metrics.serve(port, host, pages)
    except OSError as error:
        remedy = "choose another with OFFSETZERO_METRICS_PORT (0 takes a free one)"
        raise ports.unusable(port, "metrics", remedy, host, error) from error
    logs.get(__name__).info("metrics served", url=f"http://{host}:{port}/metrics")


def migrate() -> None:
    """Apply the migrations that the database lacks."""
    settings = load(needs=frozenset({"database"}))
    from offsetzero.store.migrate import upgrade

    upgrade(settings.database_url.get_secret_value())
    typer.echo("The database is up to date.")


def take_files(streams: int) -> None:
    """Raise the limit of open files as far as this process may, for each connection is one; say when that is little.

    Args:
        streams: that a tenant may have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most <= streams:
        logs.get(__name__).warning(
            "fewer files may be open than a tenant may have streams", files=most, streams=streams
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket of the API, so that a taken port is a clear error before anything is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections have it from here. Who acknowledges nothing is gone; who sends nothing is asked whether it is there:
    # a machine that lost power in the middle of an upload would be waited for without end.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {"TCP_USER_TIMEOUT": SILENT_MS, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5}.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # now, so that whoever reads the line "api listens" is not refused
    except OSError as error:
        listener.close()
        raise ports.unusable(port, "api", ports.API_REMEDY, host, error) from error
    return listener
