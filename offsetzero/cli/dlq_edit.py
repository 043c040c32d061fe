"""`offsetzero dlq edit`: another payload for a dead letter, checked before it is stored."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from offsetzero.cli import group_names
from offsetzero.cli.dlq_desk import One, Who, Why


def edit(
    group: group_names.Name,
    which: One,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Change a field; the value is JSON or text."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Take the whole payload, as JSON, from a file; - is standard input.")
    ] = None,
    module: Annotated[
        list[str] | None, typer.Option("--module", help="A module that declares the event's type, of your own.")
    ] = None,
    why: Why = "",
    who: Who = None,
) -> None:
    """Give a dead letter another payload, which a redrive then sends; the original is kept.

    Opens the payload as JSON in $EDITOR, unless --set or --file says what it shall be. It must be a valid event of the
    same type and key, otherwise nothing is stored.
    """
    from offsetzero.cli import dlq_desk
    from offsetzero.cli.dlq_payload import Payloads
    from offsetzero.errors import ConfigurationError, RedriveRefused
    from offsetzero.imports import import_module
    from offsetzero.retry import redrive_plan
    from offsetzero.schemas.ids import uuid7
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.dead_letter_actions import Kind
    from offsetzero.store.dead_letters import Filter
    from offsetzero.store.script import run

    if not why.strip():
        raise ConfigurationError("--why: say the reason; it is kept in the audit")
    for name in module or ():
        import_module(name)
    with dlq_desk.opened([group]) as desk, Payloads(desk.config) as payloads:
        one = desk.named(group, which)
        redrive_plan.check_named([one], redrive_plan.sendable(desk.config, desk.topic(group), Filter()))
        letter = payloads.letters(desk, [one]).get(one.at)
        if letter is None:
            raise RedriveRefused(f"{group} {which}: the log does not have the record any more")
        if letter.pointer is not None and letter.pointer.key_size is not None:
            raise RedriveRefused(
                f"{group} {which}: its key ({letter.pointer.key_size:,} bytes) was too large for the dead letter, and "
                "its source has the record no more: without the key nothing can be sent. Publish the event anew, then "
                "discard this one"
            )
        before = run(desk.connection, dead_letter_actions.edited(one.at))
        fields, unreadable = payloads.decoded(letter, before)
        if file is None and fields is None:
            raise RedriveRefused(
                f"{group} {which}: the payload cannot be read ({unreadable or 'it has none'}); use --file"
            )
        wanted = _wanted(fields, changes, file)
        if wanted is None or (fields is not None and wanted == fields):
            print("Nothing was changed.")
            return
        value = payloads.encoded(letter, wanted)
        action_id, place = uuid7(), f"{one.entry.partition}/{one.entry.place}"
        with desk.connection.transaction():
            operator = dlq_desk.operator(who)
            run(desk.connection, dead_letter_actions.begin(action_id, Kind.EDIT, group, operator, why, place))
            run(desk.connection, dead_letter_actions.edit(action_id, one.at, letter.value, value))
            run(desk.connection, dead_letter_actions.end(action_id))
        print(f"Stored; now: offsetzero dlq redrive {group} {place} --why …")


def _wanted(fields: Any, changes: list[str] | None, file: Path | None) -> Any:
    """The payload that is wanted; None when the editor was left without one."""
    from offsetzero.cli.dlq_payload import plain

    if file is not None:
        fields = _parsed(_read(file), str(file))
    if changes:
        return _changed(plain(fields), changes)
    return fields if file is not None else _in_editor(plain(fields))


def _read(file: Path) -> str:
    from offsetzero.errors import ConfigurationError

    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"--file {file}: {why}; nothing was stored") from error


def _changed(fields: Any, changes: list[str]) -> Any:
    from offsetzero.errors import ConfigurationError

    fields = json.loads(json.dumps(fields))
    for change in changes:
        name, equals, text = change.partition("=")
        *path, last = name.split(".")
        inner = fields
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if not equals or not isinstance(inner, dict) or last not in inner:
            has = f": {', '.join(inner)}" if isinstance(inner, dict) else ""
            raise ConfigurationError(f"--set {change}: give FIELD=VALUE, of a field that the payload has{has}")
        try:
            inner[last] = json.loads(text)
        except ValueError:
            inner[last] = text
    return fields


def _in_editor(fields: Any) -> Any:
    from offsetzero.errors import ConfigurationError

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise ConfigurationError("name an editor in EDITOR, or say what to change by --set or --file")
    before = json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
    with tempfile.TemporaryDirectory(prefix="offsetzero-edit-") as folder:
        path = Path(folder) / "payload.json"
        path.write_text(before, encoding="utf-8")
        try:
            status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
            after = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:  # no such command, a quotation mark too few, what it left is no text
            raise ConfigurationError(f"the editor {editor}: {error}; nothing was stored") from error
    if status != 0:
        raise ConfigurationError(f"{editor} ended with status {status}: nothing was stored")
    return None if after == before else _parsed(after, "what was edited")


def _parsed(text: str, where: str) -> Any:
    from offsetzero.errors import RedriveRefused

    try:
        return json.loads(text)
    except ValueError as error:
        raise RedriveRefused(f"{where} is no JSON: {error}; nothing was stored") from error
