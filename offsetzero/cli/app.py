"""The map of the command line. A command's module is imported only when that command runs."""

import importlib
import inspect
import sys
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from offsetzero.errors import ConfigurationError, OffsetzeroError


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a command is, and what the map says about it. `target` is `module:attribute` below this package."""

    target: str
    help: str
    panel: str


_START = "Start here"
_RUN = "Processes, one each"
_LOG = "The log"
_GROUPS = "Consumer groups"

_MAP = {
    "demo": _Entry(
        "demo:demo", "See the whole path of three documents (ten seconds; the first time a minute or two)", _START
    ),
    "up": _Entry("up:up", "Run Kafka, PostgreSQL and everything below on this machine until Ctrl-C", _START),
    "settings": _Entry("settings:settings", "Every setting, with its value here and what it is for", _START),
    "api": _Entry("serve:api", "HTTP: take documents, show runs, search, webhook subscriptions", _RUN),
    "relay": _Entry("serve:relay", "Publish what services wrote into the outbox table", _RUN),
    "scheduler": _Entry("serve:scheduler", "Do what is due by schedules", _RUN),
    "schedules": _Entry(
        "schedules:app", "What is done again and again: list, add, show, pause, resume, run, remove", _RUN
    ),
    "sweeper": _Entry("serve:sweeper", "Have steps of runs begun again whose process is gone", _RUN),
    "outbox": _Entry("outbox:app", "Outbox rows that cannot be published: list, show, retry, discard", _RUN),
    "migrate": _Entry("serve:migrate", "Bring the database to this version's tables", _RUN),
    "keys": _Entry("keys:app", "API keys of tenants: create, list, revoke", _RUN),
    "erase": _Entry("erase:erase", "Erase a document, or all documents of a tenant", _RUN),
    "publish": _Entry("publish:publish", "Append one event to the log", _LOG),
    "topics": _Entry("topics:app", "Declared and existing topics: plan, apply, list, describe", _LOG),
    "log": _Entry("log:app", "Records decoded, and kept: show, tail, export, import, archive", _LOG),
    "schema": _Entry("schema:app", "Contracts of the events: freeze, check", _LOG),
    "groups": _Entry("groups:app", "Run a group, and see members, offsets and lag: run, list", _GROUPS),
    "new": _Entry("new:app", "Write a group of your own, and its test", _GROUPS),
    "replay": _Entry("replay:replay", "Let a group read part of the log once more", _GROUPS),
    "rebuild": _Entry("rebuild:rebuild", "Make a projection anew beside the one that is read, and switch", _GROUPS),
    "diff": _Entry("diff:diff", "What differs between two generations of a projection", _GROUPS),
    "dlq": _Entry("dlq:app", "Dead letters: list, groups, show, export; edit, redrive, discard, audit", _GROUPS),
}
_HELP = """An event-log pipeline on Apache Kafka.

Services publish events to a log; consumer groups read it, each with its own offsets; failures go through
retry topics to a dead-letter topic; every handler is idempotent by event id.

Settings come from the environment (OFFSETZERO_…); while `offsetzero up` runs, other commands find it by themselves.
"""


class Map(TyperGroup):
    """The commands of `_MAP`: named from the table, imported to run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_MAP)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = _MAP.get(cmd_name)
        if entry is None:
            return None
        return TyperCommand(cmd_name, help=entry.help, rich_help_panel=entry.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        entry = _MAP.get(args[0])
        if entry is None:
            self.commands = {name: self.get_command(ctx, name) for name in _MAP}  # for "Did you mean …?"
            return super().resolve_command(ctx, args)
        return args[0], _load(args[0], entry), args[1:]


def _load(name: str, entry: _Entry) -> Any:
    module, _, attribute = entry.target.partition(":")
    found = getattr(importlib.import_module(f"offsetzero.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    command.name = name
    command.help = command.help or entry.help
    for one in (command, *getattr(command, "commands", {}).values()):
        one.help = _unwrapped(one.help or "")
    return command


def _unwrapped(text: str) -> str:
    """Paragraphs on one line each: the terminal breaks them where it ends, not where the source code did."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


app = typer.Typer(
    cls=Map,
    help=_unwrapped(_HELP),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(version("offsetzero"))
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the command line: what goes wrong on purpose is one message and exit status 1."""
    try:
        app(prog_name="offsetzero")
    except Exception as error:
        if not report(error):
            raise
        sys.exit(1)


def report(error: Exception) -> bool:
    """Say on standard error what went wrong; False for an error that nobody foresaw."""
    if isinstance(error, ConfigurationError):
        _say("Configuration:\n" + "\n".join(f"  {line}" for line in error.problems))
    elif isinstance(error, OffsetzeroError):
        _say(f"Error: {error}")
    elif (explanation := _explain(error)) is not None:
        _say(f"Error: {explanation}")
    else:
        return False
    return True


def _explain(error: Exception) -> str | None:
    """A sentence for a server that cannot be reached or a missing extra; None for all else, which is a bug."""
    if isinstance(error, ModuleNotFoundError) and not (error.name or "offsetzero").startswith("offsetzero"):
        return f"the package {error.name} is not installed: pip install 'offsetzero[documents,embedded]'"
    error = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's
    module = type(error).__module__.partition(".")[0]
    name = type(error).__name__
    if (module == "psycopg" and name == "OperationalError") or (module == "psycopg_pool" and name == "PoolTimeout"):
        return f"the database cannot be reached: {error}; is it running? See OFFSETZERO_DATABASE_URL"
    if module in {"confluent_kafka", "cimpl"} and name == "KafkaException":
        return f"Kafka does not answer: {error}; is it running? See OFFSETZERO_KAFKA__BOOTSTRAP_SERVERS"
    return None


def _say(text: str) -> None:
    color = "\x1b[31m" if sys.stderr.isatty() else ""
    end = "\x1b[0m" if color else ""
    head, separator, rest = text.partition(":")
    print(f"{color}{head}{separator}{end}{rest}", file=sys.stderr)
