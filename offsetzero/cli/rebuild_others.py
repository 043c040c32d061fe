"""What `offsetzero rebuild` does for the groups that have loops of their own, and no generations."""

import sys
from collections.abc import Callable, Mapping

import psycopg

from offsetzero import settings
from offsetzero.cli import bars, preview


def usage(yes: bool) -> None:
    """Have the group `usage` count anew: its offsets go to the beginning, and its changelog is emptied."""
    from offsetzero.consumers.groups.usage import rebuild

    config = settings.load(needs=frozenset({"kafka"}))
    planned = rebuild.plan(config)
    print(f"The group usage will read {planned.records:,} records again, and count those that are not past their time.")
    if not yes:
        preview.nothing_was_changed()
        return
    rebuild.apply(config, planned)
    print("Done: it counts anew when it is started.", file=sys.stderr)


def ledger(yes: bool) -> None:
    """Make the rows of the dead-letter ledger anew from the topics, in one transaction."""
    from offsetzero.retry import ledger as dead_letters

    config = settings.load(needs=frozenset({"kafka", "database"}))
    topics = dead_letters.topics(config)
    first, last = dead_letters.ends(config, topics.values(), first=True), dead_letters.ends(config, topics.values())
    total = sum(end - first[place] for place, end in last.items())
    print(f"The ledger will read {total:,} dead letters again; meanwhile readers see it as it is.")
    print("Rows whose records the log has no more stay, and so does what operators have decided.")
    if not yes:
        preview.nothing_was_changed()
        return
    url = config.database_url.get_secret_value()
    with (
        psycopg.connect(url, autocommit=True, connect_timeout=10) as connection,
        connection.transaction(),
        bars.bar("ledger", total) as tell,
    ):
        for done, _ in dead_letters.rebuild(config, connection, topics):
            tell(done)
    print("Done.", file=sys.stderr)


KNOWN: Mapping[str, Callable[[bool], None]] = {"usage": usage, "ledger": ledger}
"""By name; each is told whether to do it, or only to show it."""
