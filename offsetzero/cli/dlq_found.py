"""Dead letters that are listed: from the ledger, or without a database from the topics alone, where all are open."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offsetzero.retry.dead_letters import DeadLetter
    from offsetzero.settings import Settings
    from offsetzero.store.dead_letters import Filter, Known


def find(groups: Sequence[str], wanted: "Filter", text: str | None, limit: int) -> "tuple[list[Known], bool]":
    """The newest that are to be listed, and whether there is more."""
    from offsetzero import settings
    from offsetzero.cli import dlq_desk
    from offsetzero.store import dead_letters
    from offsetzero.store.script import run

    config = settings.load(needs=frozenset({"kafka"}))
    if not config.database_url.get_secret_value():
        read = _read(config, groups, wanted, text)
        return read[-limit:], len(read) > limit
    with dlq_desk.opened(groups) as desk:
        wanted = dlq_desk.with_text(desk, replace(wanted, groups=groups), text)
        found = run(desk.connection, dead_letters.find(wanted, limit + 1))
        return found[-limit:], len(found) > limit


@contextlib.contextmanager
def pages(groups: Sequence[str], wanted: "Filter", text: str | None) -> "Iterator[Iterable[list[Known]]]":
    """All that are to be listed, a page at a time."""
    from offsetzero import settings
    from offsetzero.cli import dlq_desk
    from offsetzero.store.dead_letter_pages import pages as pages_of

    config = settings.load(needs=frozenset({"kafka"}))
    if not config.database_url.get_secret_value():
        yield [_read(config, groups, wanted, text)]
        return
    with dlq_desk.opened(groups) as desk:
        wanted = dlq_desk.with_text(desk, replace(wanted, groups=groups), text)
        yield pages_of(desk.connection, wanted, dlq_desk.PAGE)


def _read(config: "Settings", groups: Sequence[str], wanted: "Filter", text: str | None) -> "list[Known]":
    """Without a database the topics are read, and all is open.

    Raises:
        ConfigurationError: something else is wanted.
    """
    from offsetzero.errors import ConfigurationError
    from offsetzero.retry import dead_letters
    from offsetzero.store.dead_letter_status import Status
    from offsetzero.store.dead_letters import Filter

    if text is not None or wanted not in (Filter(), Filter(status=Status.OPEN)):
        raise ConfigurationError(
            "OFFSETZERO_DATABASE_URL: without it all of a topic is listed; filters need the ledger in the database"
        )
    chosen = groups or dead_letters.groups(config)
    read = [_known(letter) for group in chosen for letter in dead_letters.read(config, group)]
    read.sort(key=lambda one: (one.entry.failed_at, one.entry.group_name, one.entry.partition, one.entry.place))
    return read


def in_topic(config: "Settings", group: str, which: str) -> "tuple[Known, DeadLetter]":
    """The dead letter at a place or of an event id, as the topic has it.

    Raises:
        RedriveRefused: there is none.
    """
    from offsetzero.cli import dlq_desk
    from offsetzero.retry import dead_letters

    for letter in dead_letters.read(config, group):
        if which in (f"{letter.partition}/{letter.offset}", letter.meta.id if letter.meta else None):
            return _known(letter), letter
    raise dlq_desk.not_there(group, which)


def _known(letter: "DeadLetter") -> "Known":
    from offsetzero.retry.ledger import entry_of
    from offsetzero.store.dead_letter_status import Status
    from offsetzero.store.dead_letters import Known

    return Known(entry_of(letter, ""), Status.OPEN, None, None, None, None)
