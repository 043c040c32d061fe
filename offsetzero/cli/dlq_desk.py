"""What the commands of `offsetzero dlq` share: the ledger as it is now, and the options that choose dead letters."""

import getpass
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from offsetzero.retry.ledger import DeadLetterTopic
    from offsetzero.settings import Settings
    from offsetzero.store.database import Connection
    from offsetzero.store.dead_letters import Filter, Known, Place

TOLD_BEHIND = 20_000
"""Records that the ledger is behind, from which on reading them is told."""
PAGE = 500
"""Dead letters whose payloads are in memory together."""

EventType = Annotated[str | None, typer.Option("--type", help="Only of this event type.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")]
Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", help="Only with this fingerprint, or one that begins so.")
]
Since = Annotated[
    str | None, typer.Option("--since", help="Failed then or later: 2026-01-31T12:00:00Z, or 30m, 2h, 7d ago.")
]
Until = Annotated[str | None, typer.Option("--until", help="Failed before then, likewise.")]
Text = Annotated[str | None, typer.Option("--text", help="Only with this text in the payload, in any case.")]
Why = Annotated[str, typer.Option("--why", help="The reason, for the audit.")]
Who = Annotated[str | None, typer.Option("--who", help="For the audit; by default this user and machine.")]
Which = Annotated[list[str] | None, typer.Argument(metavar="[PLACE|EVENT_ID]…", help="PARTITION/OFFSET as listed.")]
One = Annotated[str, typer.Argument(metavar="PLACE|EVENT_ID", help="PARTITION/OFFSET as listed, or an event id.")]
All = Annotated[bool, typer.Option("--all", help="All that are open, where nothing else is said.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@dataclass(frozen=True, slots=True)
class Desk:
    """The servers, and the dead-letter topics that there are, by group; the ledger knows all of their records."""

    config: "Settings"
    connection: "Connection"
    topics: "dict[str, DeadLetterTopic]"

    def topic(self, group: str) -> "DeadLetterTopic":
        """A group's dead-letter topic.

        Raises:
            TopicError: it has none.
        """
        if group not in self.topics:
            raise _no_group(group)
        return self.topics[group]

    def named(self, group: str, which: str) -> "Known":
        """The dead letter at a place, or the last one of an event.

        Raises:
            RedriveRefused: there is none.
        """
        from offsetzero.store import dead_letters
        from offsetzero.store.script import run

        found = run(self.connection, dead_letters.named(group, which))
        if not found:
            raise not_there(group, which)
        return found[-1]


@contextmanager
def opened(groups: Sequence[str] = ()) -> "Iterator[Desk]":
    """The ledger, brought up to where the dead-letter topics end now, whether or not its group runs.

    Args:
        groups: whose dead letters are asked for; by default those of all.

    Raises:
        TopicError: there is no such group.
        ConfigurationError: the settings name no database, or one without the tables.
    """
    import psycopg

    from offsetzero import settings
    from offsetzero.errors import ConfigurationError
    from offsetzero.retry import ledger

    config = settings.load(needs=frozenset({"kafka", "database"}))
    with psycopg.connect(config.database_url.get_secret_value(), autocommit=True, connect_timeout=10) as connection:
        topics = ledger.topics(config, list(groups) or None)
        try:
            _check_known(connection, [group for group in groups if group not in topics])
            told = False
            for done, total in ledger.catch_up(config, connection, topics):
                if total > TOLD_BEHIND or told:
                    told = True
                    print(f"The ledger was behind: {done:,} of {total:,} dead letters read", file=sys.stderr)
        except psycopg.errors.UndefinedTable as error:
            raise ConfigurationError(
                "OFFSETZERO_DATABASE_URL: the tables are of an older version; run `offsetzero migrate`"
            ) from error
        yield Desk(config, connection, topics)


def chosen(
    event_type: str | None,
    tenant: str | None,
    fingerprint: str | None,
    since: str | None,
    until: str | None,
    text: str | None = None,
) -> "Filter":
    """The filter that the options make; the text is only checked (see `with_text`).

    Raises:
        ConfigurationError: what is wrong with them. An empty one would choose everything: that is what a script gives
            whose variable is not set.
    """
    from offsetzero.errors import ConfigurationError
    from offsetzero.store.dead_letters import Filter

    said = {"type": event_type, "tenant": tenant, "fingerprint": fingerprint, "text": text}
    problems = [f"--{name} is empty: leave it out, or say what it is" for name, value in said.items() if value == ""]
    if fingerprint and not re.fullmatch("[0-9a-fA-F]{1,16}", fingerprint):
        problems.append(
            f"--fingerprint {fingerprint}: give hex digits, 16 at most, as `offsetzero dlq groups` shows them"
        )
    begin, end = parse_time("--since", since), parse_time("--until", until)
    if begin is not None and end is not None and end <= begin:
        problems.append(f"--until {until}: it is not after --since {since}, so nothing can be between them")
    if problems:
        raise ConfigurationError(problems)
    hexed = fingerprint.lower() if fingerprint else None
    return Filter(event_type=event_type, tenant=tenant, fingerprint=hexed, since=begin, until=end)


def parse_time(option: str, text: str | None) -> datetime | None:
    """A time with its zone, or how long ago it was.

    Raises:
        ConfigurationError: it is neither.
    """
    from offsetzero.clock import SYSTEM
    from offsetzero.errors import ConfigurationError
    from offsetzero.topics import points

    if text is None:
        return None
    time = points.ago(text, SYSTEM.now()) or points.time(text)
    if time is None:
        raise ConfigurationError(
            f"{option} {text}: give a time with its zone, such as 2026-01-31T12:00:00Z, or how long ago: 30m, 2h, 7d"
        )
    return time.astimezone(UTC)


def with_text(desk: Desk, which: "Filter", text: str | None) -> "Filter":
    """Narrow a filter to dead letters that have a text in their payload; they are read for that."""
    if text is None:
        return which
    from offsetzero.cli.dlq_payload import Payloads
    from offsetzero.store.dead_letter_pages import pages

    found: list[Place] = []
    with Payloads(desk.config) as payloads:
        for part in pages(desk.connection, which, PAGE):
            letters = payloads.letters(desk, part)
            found += [one.at for one in part if one.at in letters and payloads.has_text(letters[one.at], text)]
    return replace(which, places=found)


def words(which: Sequence[str] | None, **options: str | None) -> str:
    """How dead letters were chosen, for the audit."""
    said = [*(which or ()), *(f"--{name} {value}" for name, value in options.items() if value is not None)]
    return " ".join(said) or "--all"


def no_match(groups: Sequence[str], status: str, **options: str | None) -> str:
    """What is said when nothing was found: where, and by which options."""
    said = " ".join(f"--{name} {value}" for name, value in options.items() if value is not None)
    kind = "" if status == "all" else f"{status} "
    return f"No {kind}dead letters in {', '.join(groups) or 'any group'}{said and f' with {said}'}."


def not_there(group: str, which: str) -> Exception:
    """No dead letter is named so."""
    from offsetzero.errors import RedriveRefused

    return RedriveRefused(
        f"group {group}: no dead letter {which}; name a place, such as 0/17, or an event id, as "
        f"`offsetzero dlq list {group} --status all` shows them"
    )


def letters(count: int) -> str:
    """So many dead letters, in words."""
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def operator(who: str | None) -> str:
    """Who does it."""
    return who or f"{os.environ.get('SUDO_USER') or getpass.getuser()}@{platform.node()}"


def _check_known(connection: "Connection", groups: Sequence[str]) -> None:
    """A group whose topic is gone is known by what the ledger has of it."""
    for group in groups:
        row = connection.execute("SELECT 1 FROM dead_letters WHERE group_name = %s LIMIT 1", (group,)).fetchone()
        if row is None:
            raise _no_group(group)


def _no_group(group: str) -> Exception:
    from offsetzero.errors import TopicError

    return TopicError(
        f"there is no group {group}: it has no topic {group}.dlq; `offsetzero dlq groups` shows those with dead letters"
    )
