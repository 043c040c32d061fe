"""`offsetzero schedules`: what is done again and again, at times of cron in a time zone."""

import json
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from offsetzero.cli import database
from offsetzero.cli.dlq_desk import Who, operator

if TYPE_CHECKING:
    from offsetzero.store.database import Connection
    from offsetzero.store.schedules import Schedule

app = typer.Typer(
    no_args_is_help=True,
    help="What is done again and again: list, add, show, pause, resume, run, remove. `offsetzero scheduler` does it.",
)

_NEXT, _LAST = 5, 10  # fire times that `show` has
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name, or its id.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command("list")
def list_schedules(tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List the schedules, each with the time at which it fires next, in its zone."""
    from offsetzero.cli import rows
    from offsetzero.store import schedules
    from offsetzero.store.script import run

    with database.opened() as connection:
        found = run(connection, schedules.every(tenant))
    if as_json:
        print(json.dumps([_shown(one) for one in found], indent=2, ensure_ascii=False))
        return
    if not found:
        print("No schedules: `offsetzero schedules add` makes one.")
        return
    columns = ("name", "tenant", "does", "cron", "zone", "next", "state")
    lines = [
        [one.name, one.tenant_id or "all", _does(one), one.cron, one.zone, _coming(one), _state(one)] for one in found
    ]
    rows.show(columns, lines, first=6)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="What to call it: letters, digits, '.', '_' or '-'.")],
    cron: Annotated[str, typer.Argument(help="minute hour day-of-month month day-of-week: '30 2 * * *'.")],
    kind: Annotated[
        Literal["reindex", "report", "event"],
        typer.Argument(metavar="reindex|report|event", help="Work on each document again, count, or publish."),
    ],
    zone: Annotated[str, typer.Option(help="Time zone of the cron text, such as Europe/Berlin.")] = "UTC",
    tenant: Annotated[str | None, typer.Option(help="Only for this tenant; by default for all.")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="For event: its type.")] = None,
    data: Annotated[
        str | None, typer.Option(help="For event: its fields as JSON: text, @FILE, or - for standard input.")
    ] = None,
    module: Annotated[str | None, typer.Option(help="For event: Python module of your own events.")] = None,
    catch_up: Annotated[
        Literal["once", "skip", "all"],
        typer.Option(help="Fire times that were missed: one for all of them, none, or each (the last 100)."),
    ] = "once",
    who: Who = None,
) -> None:
    """Add a schedule; it fires from now on, while an `offsetzero scheduler` runs."""
    from offsetzero.cli.publish import read_fields
    from offsetzero.errors import ConfigurationError
    from offsetzero.imports import import_module
    from offsetzero.producers.schedules import desk
    from offsetzero.producers.schedules.policy import CatchUp
    from offsetzero.store import schedules
    from offsetzero.store.schedules import Kind
    from offsetzero.store.script import run

    payload = read_fields(data) if data is not None else None
    if module is not None:
        import_module(module)
    with database.opened() as connection:
        made = desk.new(
            name,
            Kind(kind),
            cron,
            zone=zone,
            catch_up=CatchUp(catch_up),
            tenant_id=tenant,
            event_type=event_type,
            payload=payload,
            at=run(connection, schedules.now()),
        )
        if not run(connection, desk.add(made, operator(who))):
            of = f"tenant {tenant}" if tenant else "all tenants"
            raise ConfigurationError(f"there is a schedule {name} of {of} already; remove it, or take another name")
    print(f"Added: {name} fires next at {_local(made, made.next_at)}.")


@app.command("show")
def show(name: Name, tenant: Tenant = None) -> None:
    """Show all of a schedule as JSON: its next fire times, what it has done, and who has changed it."""
    from offsetzero.errors import ConfigurationError
    from offsetzero.producers.schedules.timetable import timetable
    from offsetzero.store import fires, schedules
    from offsetzero.store.script import run

    with database.opened() as connection:
        one = _named(connection, name, tenant)
        found = run(connection, fires.page(one.id, limit=_LAST))
        actions = run(connection, schedules.actions(one.id))
    try:
        times = timetable(one.cron, one.zone).all_after(one.done_until) if one.paused_at is None else iter(())
    except ConfigurationError:
        times = iter(())  # the zone is gone; `error` says so
    coming = [_local(one, at) for at in islice(times, _NEXT)]
    done = [
        {
            "id": str(fire.id),
            "fire_at": _local(one, fire.fire_at),
            "by_hand": fire.by_hand,
            "missed_since": _local(one, fire.missed_since) if fire.missed_since else None,
            "fired_at": _time(fire.fired_at),
            "ended_at": _time(fire.ended_at),
            "documents": fire.documents,
        }
        for fire in found
    ]
    audit = [{"at": _time(action.at), "action": action.action.value, "who": action.who} for action in actions]
    print(json.dumps({**_shown(one), "next": coming, "fires": done, "audit": audit}, indent=2, ensure_ascii=False))


@app.command("pause")
def pause(name: Name, tenant: Tenant = None, who: Who = None) -> None:
    """Let a schedule fire no more until it is resumed. A re-index under way waits, too."""
    from offsetzero.producers.schedules import desk
    from offsetzero.store.script import run

    with database.opened() as connection:
        one = _named(connection, name, tenant)
        run(connection, desk.pause(one.id, operator(who)))
    print(f"Paused: {one.name}.")


@app.command("resume")
def resume(name: Name, tenant: Tenant = None, who: Who = None) -> None:
    """Let a paused schedule fire again, from now on: what came due meanwhile is not made up for."""
    from offsetzero.producers.schedules import desk
    from offsetzero.store.script import run

    with database.opened() as connection:
        one = _named(connection, name, tenant)
        resumed = run(connection, desk.resume(one.id, operator(who))) or one
    print(f"Resumed: {one.name} fires next at {_local(resumed, resumed.next_at)}.")


@app.command("run")
def run_now(name: Name, tenant: Tenant = None, who: Who = None) -> None:
    """Do what a schedule is for now, also while it is paused. Its own fire times stay as they are."""
    from offsetzero import settings
    from offsetzero.producers.schedules import desk
    from offsetzero.store.schedules import Kind
    from offsetzero.store.script import run

    config = settings.load(needs=frozenset({"database"}))
    with database.opened() as connection:
        one = _named(connection, name, tenant)
        fire_id = run(connection, desk.run_now(one.id, operator(who), config))
    then = {
        Kind.REINDEX: "a scheduler begins the runs of the documents, page by page",
        Kind.REPORT: "the report is made",
        Kind.EVENT: f"the event {fire_id} is in the outbox",
    }
    print(f"Run: {one.name}; {then[one.kind]}.")


@app.command("remove")
def remove(name: Name, tenant: Tenant = None, who: Who = None) -> None:
    """End a schedule, and a re-index of it that is under way. Its reports stay, and the audit."""
    from offsetzero.producers.schedules import desk
    from offsetzero.store.script import run

    with database.opened() as connection:
        one = _named(connection, name, tenant)
        run(connection, desk.remove(one.id, operator(who)))
    print(f"Removed: {one.name}.")


def _named(connection: "Connection", name: str, tenant: str | None) -> "Schedule":
    from offsetzero.errors import ConfigurationError
    from offsetzero.store import schedules
    from offsetzero.store.script import run

    found = [one for one in run(connection, schedules.named(name)) if tenant is None or one.tenant_id == tenant]
    if not found:
        of = f" of tenant {tenant}" if tenant else ""
        raise ConfigurationError(f"there is no schedule {name}{of}; `offsetzero schedules list` shows them")
    if len(found) > 1:
        ids = ", ".join(f"{one.id} ({one.tenant_id or 'all tenants'})" for one in found)
        raise ConfigurationError(f"there are several schedules {name}; give the id of one: {ids}")
    return found[0]


def _shown(one: "Schedule") -> dict[str, Any]:
    return {
        "id": str(one.id),
        "name": one.name,
        "tenant": one.tenant_id,
        "kind": one.kind.value,
        "cron": one.cron,
        "zone": one.zone,
        "catch_up": one.catch_up,
        "event_type": one.event_type,
        "payload": one.payload,
        "created_at": _time(one.created_at),
        "paused_at": _time(one.paused_at),
        "next_at": _time(one.next_at) if one.paused_at is None else None,
        "error": one.error,
    }


def _does(one: "Schedule") -> str:
    return one.event_type or one.kind.value


def _coming(one: "Schedule") -> str:
    return "-" if one.paused_at else _local(one, one.next_at)


def _state(one: "Schedule") -> str:
    return "paused" if one.paused_at else one.error or "-"


def _time(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None


def _local(one: "Schedule", at: datetime | None) -> str:
    """As the wall clock of the schedule has it, or will."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if at is None:
        return "never"
    try:
        return at.astimezone(ZoneInfo(one.zone)).isoformat(timespec="seconds")
    except ZoneInfoNotFoundError:
        return at.isoformat(timespec="seconds")
