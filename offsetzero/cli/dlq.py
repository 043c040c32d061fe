"""`offsetzero dlq`: dead letters with their reasons and original bytes."""

import json
import math
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from offsetzero.retry.dead_letters import DeadLetter
    from offsetzero.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Dead letters with their reasons and original bytes: list, show.")


@app.command("list")
def list_dead_letters(
    groups: Annotated[list[str] | None, typer.Argument(help="Groups; by default all that have dead letters.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List the dead letters of groups, oldest first."""
    from offsetzero import settings
    from offsetzero.retry import dead_letters

    config = settings.load(needs=frozenset({"kafka"}))
    names = groups or dead_letters.groups(config)
    letters = [letter for name in names for letter in dead_letters.read(config, name)]
    letters.sort(key=lambda letter: (letter.failed_at_ms, letter.group, letter.partition, letter.offset))
    if as_json:
        print(json.dumps([_summary(letter) for letter in letters], indent=2))
        return
    from offsetzero.cli import rows

    if not letters:
        print(f"No dead letters in {', '.join(names) or 'any group'}.")
        return
    columns = ("failed_at", "group", "place", "failure", "reason", "event_type", "event_id", "attempt", "detail")
    summaries = [_summary(letter) for letter in letters]
    shown = [[str(row[name]) if row[name] not in (None, "") else "-" for name in columns] for row in summaries]
    rows.show(columns, shown, first=5, cut_last=True)
    print("Show one: offsetzero dlq show GROUP PLACE", file=sys.stderr)


@app.command("show")
def show(
    group: Annotated[str, typer.Argument(help="The group.")],
    which: Annotated[str, typer.Argument(metavar="PLACE|EVENT_ID", help="PARTITION/OFFSET as listed, or an event id.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show one dead letter: why it failed, its stack, its headers and its payload as far as it can be read."""
    from offsetzero import settings
    from offsetzero.errors import TopicError
    from offsetzero.retry import dead_letters

    config = settings.load(needs=frozenset({"kafka"}))
    for letter in dead_letters.read(config, group):
        if which in (_place(letter), letter.meta.id if letter.meta else None):
            break
    else:
        raise TopicError(f"group {group}: no dead letter {which}; see `offsetzero dlq list {group}`")
    payload, unreadable = _payload(config, letter)
    whole = {
        **_summary(letter),
        "key": _text(letter.key),
        "origin": f"{letter.hop.origin.topic}/{letter.hop.origin.partition}@{letter.hop.origin.offset}",
        "headers": {name: _text(value) for name, value in letter.headers},
        "payload": payload,
        "payload_unreadable": unreadable,
        "payload_hex": letter.value.hex() if letter.value is not None else None,
        "stack": letter.stack or None,
    }
    if as_json:
        print(json.dumps(plain(whole), indent=2))
        return
    for name, value in whole.items():
        if value is None or (name == "payload_hex" and payload is not None):
            continue
        print(f"{name}: {_lines(value)}")


def plain(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, bytes as text with what is none escaped, all else by its name."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, StrEnum) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    return _text(value) if isinstance(value, bytes) else str(value)


def _lines(value: Any) -> str:
    """A value as text: data as JSON, whose strings are escaped; a stack in its lines."""
    from offsetzero.cli.rows import printable

    if isinstance(value, Mapping | list):
        return json.dumps(plain(value), indent=2, ensure_ascii=False)
    return "\n".join(printable(line) for line in str(value).splitlines())


def _place(letter: "DeadLetter") -> str:
    return f"{letter.partition}/{letter.offset}"


def _summary(letter: "DeadLetter") -> dict[str, Any]:
    return {
        "group": letter.group,
        "place": _place(letter),
        "failed_at": datetime.fromtimestamp(letter.failed_at_ms / 1000, UTC).isoformat(timespec="seconds"),
        "event_type": letter.meta.type if letter.meta else None,
        "event_id": letter.meta.id if letter.meta else None,
        "run_id": letter.meta.run_id if letter.meta else None,
        "failure": letter.failure,
        "reason": letter.reason,
        "detail": letter.detail,
        "fingerprint": letter.fingerprint,
        "attempt": letter.hop.attempt,
    }


def _payload(config: "Settings", letter: "DeadLetter") -> tuple[Any, str | None]:
    from offsetzero.errors import SchemaError, SchemasUnavailable
    from offsetzero.schemas.codec import Codec
    from offsetzero.topics.schema_log import SchemaLog

    if letter.value is None:
        return None, None
    schemas = SchemaLog(config)
    try:
        return Codec(schemas.find).decode_fields(letter.value), None
    except (SchemaError, SchemasUnavailable) as error:
        return None, str(error)
    finally:
        schemas.close()


def _text(value: bytes | None) -> str | None:
    return value.decode(errors="backslashreplace") if value is not None else None
