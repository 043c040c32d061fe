"""The dead letters that hold up their keys: what comes behind them waits for an operator (table `holds`)."""

from collections.abc import Collection
from typing import NamedTuple

from offsetzero.store.script import Script


class Hold(NamedTuple):
    """A dead letter whose key is held.

    Attributes:
        topic_id: of the topic that its record was first read from.
        partition: there.
        origin: the offset there.
        key: of the record; what follows of it waits.
        redrive_no: of the record when it was dead-lettered; only a higher one lifts the hold.
        hop: how often it had been appended by then.
    """

    topic_id: str
    partition: int
    origin: int
    key: bytes
    redrive_no: int
    hop: int


_SELECT = (
    "SELECT topic_id, partition, origin, key, redrive_no, hop FROM holds WHERE group_name = %s AND generation = %s"
    " AND partition = ANY (%s) ORDER BY topic_id, partition, origin"
)
_INSERT = (
    "INSERT INTO holds (group_name, generation, topic_id, partition, origin, key, redrive_no, hop)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (group_name, generation, topic_id, partition, origin)"
    " DO UPDATE SET redrive_no = EXCLUDED.redrive_no, hop = EXCLUDED.hop"
    " WHERE (holds.redrive_no, holds.hop) < (EXCLUDED.redrive_no, EXCLUDED.hop)"
)
_FIND = (
    "SELECT 1 FROM holds WHERE group_name = %s AND generation = %s AND topic_id = %s AND partition = %s AND origin = %s"
)
_DELETE = (
    "DELETE FROM holds WHERE group_name = %s AND generation = %s AND topic_id = %s AND partition = %s AND origin = %s"
    " AND redrive_no <= %s"
)


def of_partitions(group: str, partitions: Collection[int], generation: int = 1) -> Script[list[Hold]]:
    """Those of a group whose records were first read from these partitions, of whatever topic."""
    rows = yield _SELECT, (group, generation, sorted(partitions))
    return [Hold(row[0], row[1], row[2], bytes(row[3]), row[4], row[5]) for row in rows]


def exists(group: str, topic_id: str, partition: int, origin: int, generation: int = 1) -> Script[bool]:
    """Whether a key is held for the record that was first read from there."""
    return bool((yield _FIND, (group, generation, topic_id, partition, origin)))


def place(group: str, hold: Hold, generation: int = 1) -> Script[None]:
    """Hold a key; written before the dead letter is appended. May be repeated."""
    yield _INSERT, (group, generation, *hold)


def lift(group: str, topic_id: str, partition: int, origin: int, redrive_no: int, generation: int = 1) -> Script[None]:
    """Let a key go on, in the transaction of the outcome that ends the record.

    Args:
        group: whose hold it is.
        topic_id: as in `Hold`, like `partition` and `origin`.
        partition: there.
        origin: there.
        redrive_no: of the record that has ended: a hold that was placed for a later one stays.
        generation: of the group.
    """
    yield _DELETE, (group, generation, topic_id, partition, origin, redrive_no)
