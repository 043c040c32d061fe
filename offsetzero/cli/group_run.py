"""`offsetzero groups run`: one member of a consumer group, until it is told to end."""

import os
import signal
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer

from offsetzero.cli import collector

if TYPE_CHECKING:
    from offsetzero.consumers.following import FollowingMember
    from offsetzero.consumers.group import ConsumerGroup
    from offsetzero.consumers.groups.ledger import LedgerMember
    from offsetzero.consumers.groups.usage.member import UsageMember
    from offsetzero.consumers.runtime import GroupRuntime
    from offsetzero.settings import Settings

    Shown: TypeAlias = AbstractContextManager[None]
    Member: TypeAlias = GroupRuntime | FollowingMember | LedgerMember | UsageMember

EXIT_UNFINISHED = 4
"""Handlers did not end within the drain time; their records will be read again."""


def run_group(
    name: Annotated[
        str,
        typer.Argument(
            help="indexer, summariser, notifier, catalogue, ledger, usage, or module:attribute; NAME.gN: its N-th one"
        ),
    ],
    generation: Annotated[
        int | None,
        typer.Option("--generation", min=1, help="Of a projection: which one; by default the one that is read."),
    ] = None,
) -> None:
    """Run one member of a consumer group until SIGTERM or Ctrl-C.

    It then finishes what it has begun, commits and leaves: exit status 0, or 4 when a handler did not end within
    OFFSETZERO_GROUPS__DRAIN_SECONDS. A second signal ends it at once. Start more processes to share the partitions.
    Serves /metrics, /healthz and /readyz. In a terminal a bar shows how it catches up with the log; elsewhere the log
    tells so.
    """
    from offsetzero import logs, settings
    from offsetzero.cli.app import report
    from offsetzero.cli.serve import serve_metrics
    from offsetzero.consumers import registry
    from offsetzero.consumers.groups import ledger, usage
    from offsetzero.errors import ConfigurationError

    name, generation = _generation(name, generation)
    group = registry.load(name) if name not in (ledger.NAME, usage.NAME) else None  # which have loops of their own
    needs_database = group.database if group else name == ledger.NAME
    config = settings.load(needs=frozenset({"kafka", "database"} if needs_database else {"kafka"}))
    logs.configure(process=group.name if group else name, form=config.log_format, level=config.log_level)
    if group is None and generation is not None:
        raise ConfigurationError(f"group {name}: it is no projection, so it has no generations")
    runtime, pages, shown = _member(name, group, config, generation)
    collector.spare()
    _stop_on_signals(runtime, config.groups.drain_seconds)
    serve_metrics(config, {"/healthz": lambda: _alive(runtime), "/readyz": lambda: _ready(runtime), **pages})
    try:
        with shown:
            left = runtime.run()
    except Exception as error:
        if not report(error):
            traceback.print_exc()
        _end(1)
    _end(EXIT_UNFINISHED if left else 0)


def _generation(name: str, number: int | None) -> tuple[str, int | None]:
    """A group's name, and which of its generations is meant: other commands call it NAME.gN, this one may, too.

    Raises:
        ConfigurationError: two are.
    """
    from offsetzero.errors import ConfigurationError
    from offsetzero.generation import Generation

    named = Generation.named(name)
    if named.group == name:
        return name, number
    if number not in (None, named.number):
        raise ConfigurationError(f"{name} is generation {named.number}, and --generation says {number}: leave one out")
    return named.group, named.number


def _member(
    name: str, group: "ConsumerGroup | None", config: "Settings", generation: int | None
) -> "tuple[Member, dict[str, Any], Shown]":
    """The member, what it serves besides what all do, and what is shown while it runs."""
    if group is not None:
        from offsetzero.cli import catching_up
        from offsetzero.consumers.following import FollowingMember
        from offsetzero.consumers.runtime import GroupRuntime

        def make() -> GroupRuntime:
            return GroupRuntime(group, config, generation=generation)

        runtime = make() if generation is not None or group.projection is None else FollowingMember(make)
        return runtime, {}, catching_up.shown(runtime, runtime.name)
    from offsetzero.consumers.groups import ledger

    if name == ledger.NAME:
        return ledger.LedgerMember(config), {}, nullcontext()
    from offsetzero.consumers.groups.usage.member import UsageMember

    member = UsageMember(config)
    return member, {"/usage/": member.of_tenant}, nullcontext()


def _alive(runtime: "Member") -> tuple[bool, dict[str, Any]]:
    health = runtime.health()
    return health.alive, health.body


def _ready(runtime: "Member") -> tuple[bool, dict[str, Any]]:
    health = runtime.health()
    return health.ready, health.body


def _end(status: int) -> NoReturn:
    """End now: the interpreter would wait for threads of handlers that never return, given up ones among them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _stop_on_signals(runtime: "Member", drain_seconds: float) -> None:
    asked = False

    def say(text: str) -> None:  # not through a file object, which the signal may have interrupted
        count = runtime.running()
        handlers = "1 handler runs" if count == 1 else f"{count} handlers run"
        os.write(2, text.format(handlers=handlers).encode())

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            say("ending at once: {handlers}; their records will be read again\n")
            os._exit(128 + number)
        asked = True
        runtime.stop()
        say(f"stopping: {{handlers}}, at most {drain_seconds:g} s; again to end at once\n")

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
