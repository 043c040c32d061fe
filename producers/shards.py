"""Which shards of the outbox a relay publishes: its fair part, by advisory locks of its database session.

Each relay holds a lock that all of them share, so that each can count them, and one lock for each of its shards. A
session that ends, however it does, gives all of them back. Nobody waits for a lock, and there is no leader: every relay
sees the same locks, and takes or gives what the same rule says.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import psycopg

from offsetzero.store.outbox import SHARDS

MEMBER_LOCK = 0x6F7A_0001
"""Shared by relays. A relay of before there were shards holds it alone: the others wait until it is gone."""
SHARD_LOCK = 0x6F7A_0007
"""First half of a shard's lock; the other is its number."""

_LOCKS = """
SELECT CASE objsubid WHEN 2 THEN objid::bigint END, pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (objsubid = 2 AND classid = %s::bigint::oid OR objsubid = 1 AND classid = 0 AND objid = %s::bigint::oid)
"""


class Change(NamedTuple):
    """What a relay should do with its shards."""

    give: list[int]
    take: list[int]


def change(me: int, members: Collection[int], owners: Mapping[int, int], busy: Collection[int] = frozenset()) -> Change:
    """The rule: with n relays each has a n-th of the shards, and those of the lowest pids have one more if need be.

    Args:
        me: the session's pid.
        members: pids of all relays, this one too.
        owners: pid by shard, of the shards that somebody has.
        busy: those of this session of which records are without an answer: they are not given yet.

    Returns:
        What to give; or what to take, all of it shards that nobody had.
    """
    rank = sorted(members).index(me)
    each, rest = divmod(SHARDS, len(members))
    part = each + (rank < rest)
    mine = sorted((shard for shard, pid in owners.items() if pid == me), key=lambda one: (one not in busy, one))
    if len(mine) > part:
        return Change([shard for shard in mine[part:] if shard not in busy], [])
    free = [shard for shard in range(SHARDS) if shard not in owners]
    begin = rank * SHARDS // len(members)  # not all of them try the same ones first
    around = sorted(free, key=lambda shard: (shard - begin) % SHARDS)
    return Change([], around[: part - len(mine)])


class Shards:
    """The shards of one relay.

    Args:
        connection: its session, in autocommit; the locks end with it.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._me = connection.info.backend_pid
        self._mine: list[int] = []

    @property
    def mine(self) -> Sequence[int]:
        """Those of which nobody else publishes anything now."""
        return self._mine

    def join(self) -> bool:
        """Be counted among the relays; False while one of an older version works."""
        row = self._connection.execute("SELECT pg_try_advisory_lock_shared(%s)", (MEMBER_LOCK,)).fetchone()
        return bool(row and row[0])

    def balance(self, busy: Collection[int] = frozenset()) -> bool:
        """Give or take what is due; call it when no record is on its way but of `busy` shards.

        Who has a shard next sends again what has no answer, and then the next rows of its keys: a record of ours that
        lands behind these would be the last of its key, which is what a compacted topic keeps.

        Args:
            busy: shards that are not given yet.

        Returns:
            Whether something changed.
        """
        locks = self._connection.execute(_LOCKS, (SHARD_LOCK, MEMBER_LOCK)).fetchall()
        owners = {shard: pid for shard, pid in locks if shard is not None}
        todo = change(self._me, {self._me, *(pid for shard, pid in locks if shard is None)}, owners, busy)
        for shard in todo.give:
            self._connection.execute("SELECT pg_advisory_unlock(%s, %s)", (SHARD_LOCK, shard))
            self._mine.remove(shard)
        taken = [shard for shard in todo.take if self._try(shard)]
        self._mine = sorted([*self._mine, *taken])
        return bool(todo.give or taken)

    def _try(self, shard: int) -> bool:
        row = self._connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (SHARD_LOCK, shard)).fetchone()
        return bool(row and row[0])
