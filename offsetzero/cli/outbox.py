"""`offsetzero outbox`: rows of the outbox that cannot be published, and what becomes of them; the audit of that."""

import json
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from offsetzero.cli import database
from offsetzero.cli.dlq_desk import Who, Why, operator

if TYPE_CHECKING:
    from offsetzero.store.outbox import Discarded, Stored, Troubled

app = typer.Typer(no_args_is_help=True, help="Outbox rows that cannot be published: list, show, retry, discard, audit.")

_MOST = 1_000
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Id = Annotated[UUID, typer.Argument(metavar="ID", help="The event id, as `outbox list` shows it.")]


@app.command("list")
def list_rows(as_json: AsJson = False) -> None:
    """List rows that are parked, and those that the broker refuses and the relay goes on trying; the oldest 1,000."""
    from offsetzero.cli import rows
    from offsetzero.store import outbox
    from offsetzero.store.script import run

    with database.opened() as connection:
        found = [_shown(one) for one in run(connection, outbox.troubled(_MOST))]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    if not found:
        print("No row is parked or refused.")
        return
    columns = ("id", "type", "key", "state", "written", "tries", "behind", "error")
    rows.show(
        columns,
        [["-" if row[column] is None else str(row[column]) for column in columns] for row in found],
        first=7,
        right=("tries", "behind"),
    )


@app.command("show")
def show(event_id: Id) -> None:
    """Show all of a row that is not published, as JSON, the payload decoded as far as it can be."""
    from offsetzero.store import outbox
    from offsetzero.store.script import run

    with database.opened() as connection:
        found = run(connection, outbox.find(event_id))
    if found is None:
        raise _unknown(event_id)
    print(json.dumps(_all_of(found), indent=2, ensure_ascii=False))


@app.command("retry")
def retry(
    event_ids: Annotated[list[UUID] | None, typer.Argument(metavar="[ID]...", help="Which rows.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are parked.")] = False,
) -> None:
    """Have parked rows tried again, once what was wrong is mended; the rows of their keys follow in their order."""
    from offsetzero.errors import ConfigurationError
    from offsetzero.store import outbox
    from offsetzero.store.script import run

    if bool(event_ids) == every:
        raise ConfigurationError("name the rows by their ids, or all of them by --all")
    with database.opened() as connection:
        tried = run(connection, outbox.retry(None if every else event_ids))
        missing = sorted(set(event_ids or ()) - set(tried))
        if missing:
            connection.rollback()
            raise ConfigurationError(
                [f"no row {one} is parked; `offsetzero outbox list` shows them" for one in missing]
            )
    print(f"{len(tried):,} rows are tried again.")


@app.command("discard")
def discard(event_id: Id, why: Why = "", who: Who = None) -> None:
    """Delete a parked row: its event is never published, the rows of its key go on. Prints all of it, to be kept.

    Who did it, when, and why is kept, and so are its id, type, key and topic: `outbox audit` lists them.
    """
    from offsetzero.errors import ConfigurationError
    from offsetzero.store import outbox
    from offsetzero.store.script import run

    if not why.strip():
        raise ConfigurationError("--why: say why; it is kept with who and when")
    with database.opened() as connection:
        gone = run(connection, outbox.discard(event_id, operator(who), why))
        if gone is not None:  # printed before the commit: a row that nobody could keep is still there
            print(json.dumps(_all_of(gone), indent=2, ensure_ascii=False), flush=True)
        other = run(connection, outbox.find(event_id)) if gone is None else None
    if other is not None:
        raise ConfigurationError(f"row {event_id} is not parked: the relay publishes it, or goes on trying")
    if gone is None:
        raise _unknown(event_id)


@app.command("audit")
def audit(as_json: AsJson = False) -> None:
    """List the rows that operators have discarded: who, when, why."""
    from offsetzero.cli import rows
    from offsetzero.store import outbox
    from offsetzero.store.script import run

    with database.opened() as connection:
        found = [_audited(one) for one in run(connection, outbox.discards())]
    if as_json:
        print(json.dumps(found, indent=2))
    elif not found:
        print("No row was discarded by an operator yet.")
    else:
        columns = ("at", "id", "type", "key", "who", "why")
        rows.show(
            columns, [["-" if row[column] is None else row[column] for column in columns] for row in found], first=5
        )


def _audited(one: "Discarded") -> dict[str, Any]:
    return {
        "at": one.at.isoformat(timespec="seconds"),
        "id": str(one.id),
        "type": one.type,
        "key": one.aggregateid,
        "topic": one.topic,
        "written": one.created_at.isoformat(timespec="seconds"),
        "who": one.who,
        "why": one.why,
    }


def _shown(one: "Troubled") -> dict[str, Any]:
    return {
        "id": str(one.id),
        "type": one.type,
        "key": one.key,
        "topic": one.topic,
        "state": "parked" if one.parked_at else "refused",
        "written": one.created_at.isoformat(timespec="seconds"),
        "parked": one.parked_at.isoformat(timespec="seconds") if one.parked_at else None,
        "tries": one.attempts,
        "behind": one.behind,
        "error": one.error,
    }


def _all_of(row: "Stored") -> dict[str, Any]:
    """A row as JSON; `payload_base64` are its bytes, `payload` what they say."""
    import base64

    from offsetzero.history.decoding import plain

    payload = base64.b64encode(row.payload).decode() if row.payload is not None else None
    return {**plain(row._asdict()), "payload": _payload(row), "payload_base64": payload}


def _payload(row: "Stored") -> Any:
    from offsetzero.errors import SchemaError
    from offsetzero.history.decoding import as_text, plain
    from offsetzero.schemas.codec import Codec

    if row.payload is None:
        return None
    own = row.headers.get("oz_schema") if isinstance(row.headers, dict) else None
    for read in (lambda data: plain(Codec(lambda _: own).decode_fields(data)), json.loads):
        try:
            return read(row.payload)
        except (SchemaError, ValueError):
            continue
    return as_text(row.payload)


def _unknown(event_id: UUID) -> Exception:
    from offsetzero.errors import ConfigurationError

    return ConfigurationError(f"no row {event_id} waits: it was published, or there was none of that id")
