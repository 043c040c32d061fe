"""`offsetzero groups`: run a consumer group, see members, offsets and lag."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Run a group, and see members, offsets and lag.")

EXIT_UNFINISHED = 4
"""Handlers did not end within the drain time; their records will be read again."""


@app.command("run")
def run_group(
    name: Annotated[str, typer.Argument(help="indexer, summariser, notifier, or package.module:attribute")],
) -> None:
    """Run one member of a consumer group until SIGTERM or Ctrl-C.

    It then finishes what it has begun, commits and leaves: exit status 0, or 4 when a handler did not end within
    OFFSETZERO_GROUPS__DRAIN_SECONDS. A second signal ends it at once. Start more processes to share the partitions.
    """
    from offsetzero import logs, metrics, settings
    from offsetzero.consumers import registry
    from offsetzero.consumers.runtime import GroupRuntime

    config = settings.load(needs=frozenset({"kafka", "database"}))
    group = registry.load(name)
    logs.configure(process=group.name, level=config.log_level)
    runtime = GroupRuntime(group, config)
    _stop_on_signals(runtime.stop)
    port = metrics.serve(config.metrics_port, config.metrics_host)
    logs.get(__name__).info("metrics served", url=f"http://{config.metrics_host}:{port}/metrics")
    if runtime.run():
        sys.stderr.flush()
        os._exit(EXIT_UNFINISHED)  # their threads cannot be ended in another way


def _stop_on_signals(stop: Callable[[], None]) -> None:
    asked = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
