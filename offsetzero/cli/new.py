"""`offsetzero new`: a file to begin with, and its test, which passes as it is."""

import datetime
import difflib
import enum
import keyword
import re
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

if TYPE_CHECKING:
    from offsetzero.schemas.event import Event

app = typer.Typer(no_args_is_help=True, help="Files to begin with: a consumer group and its test.")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}", re.ASCII)
_GROUP = '''"""The group {name}: `offsetzero groups run {name}:{name}` runs it, at first from offset zero."""

from psycopg import Connection

{imports}

{name} = ConsumerGroup("{name}")


@{name}.setup
def tables(connection: Connection) -> None:
    """Make what the handlers write to, before the first record."""
    connection.execute("CREATE TABLE IF NOT EXISTS {name}_events (event_id text, type text, key text)")
{handlers}'''
_HANDLER = '''

@{name}.handler({event})
def on_{function}(event: {event}, ctx: Context) -> None:
    """In one transaction with the row that marks the event as handled: it has its effect once, whatever comes twice."""
    row = ctx.meta.id, ctx.meta.type, event.key
    ctx.connection.execute("INSERT INTO {name}_events VALUES (%s, %s, %s)", row)
'''
_TEST = '''"""The handlers of {name}, called as the group does, with a connection that remembers what it was told."""

import logging
from unittest.mock import Mock

import pytest
from {name} import {name}

{imports}
from offsetzero.consumers.context import Given, Source
from offsetzero.schemas.metadata import Metadata
from offsetzero.settings import Settings

EVENTS = [
{events}]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.event_type)
def test_an_event_becomes_a_row(event: Event) -> None:
    meta, source = Metadata(id="1", source="/test", type=event.event_type), Source("topic", 0, 0, None, 0)
    ctx = Context(Given(meta, source, 1, "0" * 32, Mock(logging.Logger)), Settings(), None)
    ctx.connection = Mock()
    {name}.routes[event.event_type].handler(event, ctx)
    statement, row = ctx.connection.execute.call_args.args
    assert statement.startswith("INSERT INTO {name}_events")
    assert row == ("1", event.event_type, event.key)
'''


@app.callback()
def _root() -> None:
    """Files to begin with."""


@app.command("group")
def new_group(
    name: Annotated[str, typer.Argument(help="The group's name, and that of its file: a-z, 0-9 and _.")],
    on: Annotated[list[str], typer.Option("--on", metavar="TYPE", help="An event type; may be given again.")],
    module: Annotated[str | None, typer.Option("--module", help="Python module of your own events.")] = None,
    folder: Annotated[Path, typer.Option("--folder", help="Where to write.")] = Path(),
) -> None:
    """Write a consumer group, NAME.py, and its test, test_NAME.py; what is there already is never overwritten.

    Example: offsetzero new group audit --on document.uploaded
    """
    from offsetzero.errors import ConfigurationError

    problems: list[str] = []
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        problems.append(f"{name}: it is to be a Python module: a letter, then a-z, 0-9 and _, no name of Python's own")
    events = _events(list(dict.fromkeys(on)), module, problems)
    files = {folder / f"{name}.py": _group_file(name, events), folder / f"test_{name}.py": _test_file(name, events)}
    problems += [f"{path} is there already; it was not touched" for path in files if path.exists()]
    if not folder.is_dir():
        problems.append(f"--folder {folder}: there is no such folder")
    if problems:
        raise ConfigurationError(problems)
    for path, text in files.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        print(f"wrote {path}")
    print(f"Next: pytest {folder / f'test_{name}.py'}; then offsetzero groups run {name}:{name}")


def _events(types: list[str], module: str | None, problems: list[str]) -> "list[type[Event]]":
    from offsetzero.imports import import_module
    from offsetzero.schemas import codec  # noqa: F401  # makes the built-in event types known
    from offsetzero.schemas.event import event_types

    if module is not None:
        import_module(module)
    known = event_types()
    for one in types:
        if one not in known:
            near = difflib.get_close_matches(one, known, n=3) or sorted(known)
            problems.append(
                f"--on {one}: no event type here has that name; near it: {', '.join(near)}"
                + ("" if module else ". Name the module of your own with --module")
            )
    return [known[one] for one in types if one in known]


def _group_file(name: str, events: "list[type[Event]]") -> str:
    handlers = "".join(
        _HANDLER.format(name=name, event=one.__name__, function=re.sub(r"\W", "_", one.event_type)) for one in events
    )
    return _GROUP.format(name=name, imports=_imports(["ConsumerGroup", "Context"], events), handlers=handlers)


def _test_file(name: str, events: "list[type[Event]]") -> str:
    shown = "".join(f"    {_sample(one)},\n" for one in events)
    return _TEST.format(name=name, imports=_imports(["Context", "Event"], events), events=shown)


def _imports(names: list[str], events: "list[type[Event]]") -> str:
    import offsetzero

    own = {one.__name__ for one in events if one.__name__ in offsetzero.__all__}
    lines = [f"from offsetzero import {', '.join(sorted({*names, *own}))}"]
    lines += sorted(f"from {one.__module__} import {one.__name__}" for one in events if one.__name__ not in own)
    return "\n".join(lines)


def _sample(event: "type[Event]") -> str:
    """An expression that makes an event of a type, or, where no simple values are valid, one that checks nothing."""
    from pydantic import ValidationError

    values: dict[str, Any] = {}
    for field, about in event.model_fields.items():
        if about.is_required():
            values[field] = _value(about.annotation)
    for text in ("a", "0" * 64, "a@example.org", "https://example.org"):
        given = {field: text if value == "a" else value for field, value in values.items()}
        try:
            event.model_validate(given)
        except ValidationError:
            continue
        fields = "".join(f"            {field!r}: {value!r},\n" for field, value in given.items())
        return f"{event.__name__}.model_validate(\n        {{\n{fields}        }}\n    )".replace("'", '"')
    return f"{event.__name__}.model_construct(**{dict.fromkeys(values, 'a')!r})"


def _value(annotation: Any) -> Any:
    simple = {
        uuid.UUID: "0190d5a4-0000-7000-8000-000000000001",
        datetime.datetime: "2026-01-31T12:00:00Z",
        int: 1,
        float: 1.0,
        bool: True,
        bytes: b"a",
    }
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return next(iter(annotation)).value
    return simple.get(annotation, "a")
