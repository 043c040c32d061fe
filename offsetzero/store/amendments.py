"""What operators have decided about single events of a group: it holds for every generation that reads the log anew."""

from collections.abc import Mapping
from typing import TypeAlias

from offsetzero.store.script import Script

Amendments: TypeAlias = Mapping[tuple[str, str], bytes | None]
"""By source and id of an event: the payload in place of its own, or None for one that is discarded."""

# A name has no such characters. Given twice.
OF_GROUP = "d.group_name = %s OR d.group_name ~ ('^' || %s || '[.]g[0-9]+$')"
"""Whether `d` is of one of a group's generations."""
_EDITED = (
    "SELECT DISTINCT ON (d.source, d.event_id) d.source, d.event_id, e.edited FROM dead_letter_edits e"  # noqa: S608
    f" JOIN dead_letters d USING (topic_id, partition, place) WHERE {OF_GROUP}"
    " ORDER BY d.source, d.event_id, e.action_id DESC"
)
_DISCARDED = (
    "SELECT d.source, d.event_id FROM dead_letter_decisions c JOIN dead_letter_actions a ON a.id = c.action_id"  # noqa: S608
    f" JOIN dead_letters d USING (topic_id, partition, place) WHERE a.kind = 'discard' AND ({OF_GROUP})"
)
_MARK = (
    "SELECT count(*), max(greatest(d.at, d.ended_at)) FROM dead_letter_actions d"  # noqa: S608
    f" WHERE d.kind <> 'redrive' AND ({OF_GROUP})"
)


def mark(group: str) -> Script[object]:
    """Another one whenever operators have decided something since; cheap, for who asks all the time."""
    rows = yield _MARK, (group, group)
    return rows[0]


def of_group(group: str) -> Script[Amendments]:
    """Those of all generations of a group; of two edits the later one counts, and a discard more than an edit."""
    edited = yield _EDITED, (group, group)
    discarded = yield _DISCARDED, (group, group)
    found: dict[tuple[str, str], bytes | None] = {(row[0], row[1]): bytes(row[2]) for row in edited}
    found.update({(row[0], row[1]): None for row in discarded})
    return found
