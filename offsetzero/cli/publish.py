"""`offsetzero publish`: one event to the log, from the command line."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from offsetzero.schemas.event import Event


def publish(
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="Event type, such as document.deleted.")],
    data: Annotated[str, typer.Option(help="The event as JSON: text, @FILE, or - for standard input.")],
    key: Annotated[str | None, typer.Option(help="Record key; the event's key field when it is absent.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant; by default the event's tenant_id.")] = None,
    event_id: Annotated[
        str | None, typer.Option("--id", help="Event id (UUID); the same id twice has one effect.")
    ] = None,
    module: Annotated[str | None, typer.Option(help="Python module of your own events.")] = None,
    bulk: Annotated[bool, typer.Option("--bulk", help="Use the lane for backfill.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Append one event to the log, and wait until the broker has it."""
    from offsetzero import settings as settings_module
    from offsetzero.errors import PublishError
    from offsetzero.producers.publisher import Publisher
    from offsetzero.schemas.ids import uuid7
    from offsetzero.topics import admin

    event = _event(event_type, read_fields(data), key, module)
    settings = settings_module.load(needs=frozenset({"kafka"}))
    if event_id is not None and not _is_uuid(event_id):
        raise typer.BadParameter(f"{event_id!r} is not a UUID", param_hint="--id")
    admin.metadata(admin.client(settings), settings)  # a cluster that is away is told at once
    event_id = event_id or str(uuid7())
    with Publisher(settings) as publisher:
        # A tenant of None is taken from the event.
        delivery = publisher.publish(event, tenant_id=tenant, event_id=event_id, bulk=bulk)
        try:
            placed = delivery.result(admin.ANSWER_SECONDS)
        except TimeoutError:
            raise PublishError(admin.no_answer(settings) + "; the event may still have landed") from None
    if as_json:
        shown = {"type": event_type, "id": event_id, "key": event.key, **placed._asdict()}
        typer.echo(json.dumps(shown))
    else:
        place = f"{placed.topic}/{placed.partition}, offset {placed.offset}"
        typer.echo(f"{event_type} {event.key} is at {place}; event id {event_id}")


def read_fields(data: str) -> dict[str, Any]:
    """The fields of an event from `--data`: JSON, `@FILE`, or `-` for standard input.

    Raises:
        typer.BadParameter: it cannot be read, or is no JSON object.
    """
    try:
        if data == "-":
            text = sys.stdin.read()
        elif data.startswith("@"):
            text = Path(data[1:]).read_text(encoding="utf-8")
        else:
            text = data
        fields = json.loads(text)
    except OSError as error:
        raise typer.BadParameter(f"{data[1:]}: {error.strerror}", param_hint="--data") from None
    except ValueError as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint="--data") from None
    if not isinstance(fields, dict):
        raise typer.BadParameter("an event is a JSON object", param_hint="--data")
    return fields


def _event(event_type: str, fields: dict[str, Any], key: str | None, module: str | None) -> "Event":
    from pydantic import ValidationError

    from offsetzero.imports import import_module
    from offsetzero.schemas import codec  # noqa: F401  # makes the built-in event types known
    from offsetzero.schemas.event import event_class, event_types

    if module is not None:
        import_module(module)
    model = event_class(event_type)
    if model is None:
        known = ", ".join(sorted(event_types()))
        raise typer.BadParameter(f"{event_type!r} is none of {known}; see --module", param_hint="TYPE")
    if key is not None:
        fields = {model.key_field: key, **fields}
    try:
        event = model.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        problems = "\n".join(
            f"  {'.'.join(str(part) for part in item['loc']) or model.__name__}: {item['msg']}"
            for item in error.errors()
        )
        raise typer.BadParameter(f"{event_type}:\n{problems}", param_hint="--data") from None
    if key is not None and event.key != key:
        raise typer.BadParameter(f"{key!r} is not the event's {model.key_field}, {event.key!r}", param_hint="--key")
    return event


def _is_uuid(text: str) -> bool:
    from uuid import UUID

    try:
        UUID(text)
    except ValueError:
        return False
    return True
