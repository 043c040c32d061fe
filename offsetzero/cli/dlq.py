"""`offsetzero dlq`: dead letters with their reasons and original bytes, and what operators do about them."""

import json
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offsetzero.cli import dlq_actions, dlq_edit, dlq_found, dlq_redrive, dlq_view, group_names
from offsetzero.cli.dlq_desk import AsJson, EventType, Fingerprint, One, Since, Tenant, Text, Until, Which

if TYPE_CHECKING:
    from offsetzero.store.dead_letters import Filter

app = typer.Typer(
    no_args_is_help=True,
    help="Dead letters: list, groups, show, export; edit, redrive, discard; audit of who did what.",
)

LIMIT = 200


class Shown(StrEnum):
    """Values of --status."""

    OPEN = "open"
    REDRIVEN = "redriven"
    RESOLVED = "resolved"
    ENDED = "ended"
    DISCARDED = "discarded"
    ALL = "all"


Groups = Annotated[
    list[str] | None,
    typer.Argument(
        help=f"Groups; by default all that have dead letters. {group_names.HELP}", callback=group_names.listed
    ),
]
StatusOption = Annotated[
    Shown,
    typer.Option(
        "--status",
        help="redriven: sent again, and not ended yet; resolved: sent again and applied; ended: sent again and not "
        "applied, for it failed, was cancelled, or is a newer dead letter now.",
    ),
]


@app.command("list")
def list_dead_letters(
    groups: Groups = None,
    status: StatusOption = Shown.OPEN,
    event_type: EventType = None,
    tenant: Tenant = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="The newest so many; with --json there is no limit.")
    ] = LIMIT,
    as_json: AsJson = False,
) -> None:
    """List the dead letters of groups, oldest first."""
    from offsetzero.cli import dlq_desk

    wanted = _with_status(dlq_desk.chosen(event_type, tenant, fingerprint, since, until, text), status)
    if as_json:
        with dlq_found.pages(groups or (), wanted, text) as pages:
            _print_array(dlq_view.summary(one) for page in pages for one in page)
        return
    from offsetzero.cli import rows

    found, more = dlq_found.find(groups or (), wanted, text, limit)

    if not found:
        said = {"type": event_type, "tenant": tenant, "fingerprint": fingerprint, "since": since, "until": until}
        print(dlq_desk.no_match(groups or (), status, **said, text=text))
        return
    columns = (
        *("failed_at", "group", "place", "failure", "reason"),
        *("event_type", "event_id", "attempt", "status", "detail"),
    )
    summaries = [{**dlq_view.summary(one), "status": dlq_view.fate(one)} for one in found]
    shown = [[str(row[name]) if row[name] not in (None, "") else "-" for name in columns] for row in summaries]
    rows.show(columns, shown, first=5, cut_last=True)
    if more:
        print(f"The newest {limit:,}; older ones: --limit, or `offsetzero dlq groups`", file=sys.stderr)
    print("Show one: offsetzero dlq show GROUP PLACE", file=sys.stderr)


@app.command("groups")
def count_by_cause(
    groups: Groups = None,
    status: StatusOption = Shown.OPEN,
    event_type: EventType = None,
    tenant: Tenant = None,
    since: Since = None,
    until: Until = None,
    as_json: AsJson = False,
) -> None:
    """Count the dead letters of each group by what went wrong; one fingerprint is one cause."""
    from offsetzero.cli import dlq_desk, rows
    from offsetzero.cli.dlq_payload import plain
    from offsetzero.store import dead_letters
    from offsetzero.store.script import run

    wanted = _with_status(dlq_desk.chosen(event_type, tenant, None, since, until), status)
    with dlq_desk.opened(groups or ()) as desk:
        found = run(desk.connection, dead_letters.causes(replace(wanted, groups=groups or ())))
    columns = ("group", "failure", "reason", "fingerprint", "count", "first_seen", "last_seen", "detail")
    values = [
        {name: dlq_view.at(value) if isinstance(value := getattr(one, name), datetime) else value for name in columns}
        for one in found
    ]
    if as_json:
        print(json.dumps(plain(values), indent=2))
    elif not values:
        print(dlq_desk.no_match(groups or (), status, type=event_type, tenant=tenant, since=since, until=until))
    else:
        shown = [[str(value) or "-" for value in row.values()] for row in values]
        rows.show(columns, shown, first=7, right={"count"}, cut_last=True)


@app.command("show")
def show(
    group: group_names.Name,
    which: One,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: why it failed, its stack, its headers, its payload as far as it can be read, and what
    became of the event."""
    from offsetzero import settings
    from offsetzero.cli import dlq_desk
    from offsetzero.cli.dlq_payload import Payloads, plain
    from offsetzero.store import dead_letter_actions, dead_letters
    from offsetzero.store.script import run

    config = settings.load(needs=frozenset({"kafka"}))
    if not config.database_url.get_secret_value():
        one, letter = dlq_found.in_topic(config, group, which)
        with Payloads(config) as payloads:
            whole = dlq_view.details(one, letter, payloads, None)
    else:
        with dlq_desk.opened([group]) as desk, Payloads(config) as payloads:
            one = desk.named(group, which)
            edited = run(desk.connection, dead_letter_actions.edited(one.at))
            whole = dlq_view.details(one, payloads.letters(desk, [one]).get(one.at), payloads, edited)
            history = run(desk.connection, dead_letters.named(group, one.entry.event_id))
            whole["history"] = [dlq_view.step(each) for each in history if each.entry.source == one.entry.source]
    if as_json:
        print(json.dumps(plain(whole), indent=2))
        return
    for name, value in whole.items():
        if value is None or value is False or (name == "payload_hex" and whole["payload"] is not None):
            continue
        print(f"{name}: {dlq_view.lines(value)}")


@app.command("export")
def export(
    group: group_names.Name,
    which: Which = None,
    status: StatusOption = Shown.OPEN,
    event_type: EventType = None,
    tenant: Tenant = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    out: Annotated[Path | None, typer.Option("--out", help="A file; by default standard output.")] = None,
) -> None:
    """Write dead letters with their payloads, one JSON object a line: as `show --json` has it, oldest first."""
    from offsetzero.cli import dlq_desk
    from offsetzero.cli.dlq_payload import Payloads, plain
    from offsetzero.store import dead_letter_actions
    from offsetzero.store.dead_letter_pages import pages
    from offsetzero.store.script import run

    wanted = _with_status(dlq_desk.chosen(event_type, tenant, fingerprint, since, until, text), status)
    with dlq_desk.opened([group]) as desk, Payloads(desk.config) as payloads:
        if which:
            wanted = replace(wanted, status=None, places=[desk.named(group, one).at for one in which])
        wanted = dlq_desk.with_text(desk, replace(wanted, groups=[group]), text)
        written = 0
        with dlq_view.output(out) as write:
            for part in pages(desk.connection, wanted, dlq_desk.PAGE):
                letters = payloads.letters(desk, part)
                edited = run(desk.connection, dead_letter_actions.edited_of([one.at for one in part]))
                for one in part:
                    line = plain(dlq_view.details(one, letters.get(one.at), payloads, edited.get(one.at)))
                    write(json.dumps(line, ensure_ascii=False) + "\n")
                written += len(part)
    print(f"{dlq_desk.letters(written)} of {group} written", file=sys.stderr)


# Behind those that look, for --help lists them in this order: first one looks.
app.command("edit")(dlq_edit.edit)
app.command("redrive")(dlq_redrive.redrive)
app.command("discard")(dlq_actions.discard)
app.command("audit")(dlq_actions.audit)


def _print_array(items: Iterable[dict[str, Any]]) -> None:
    """As `json.dumps(…, indent=2)`, without having all of them at once."""
    before = "["
    for item in items:
        print(before + "\n" + textwrap.indent(json.dumps(item, indent=2), "  "), end="")
        before = ","
    print("[]" if before == "[" else "\n]")


def _with_status(wanted: "Filter", status: Shown) -> "Filter":
    from offsetzero.store.dead_letter_status import Status

    return wanted if status is Shown.ALL else replace(wanted, status=Status(status.value))
