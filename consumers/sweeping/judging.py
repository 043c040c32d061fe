"""Which leases are to be taken away. Pure: it is told what the database and Kafka's coordinators say.

Time alone proves nothing: of 60 jobs that a sweeper had rescued for their age 32 were at work (orbit#864). A member is
gone when the coordinator of its group does not know it, by which its partitions are given away, too; no clocks are
compared. Only the deadline of a step is a time, of the database.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from offsetzero.store.leases import OVERDUE, Held, Owner, Rescue

Members: TypeAlias = Mapping[str, Collection[str] | None]
"""The members of consumer groups, by the group; None where no coordinator answers."""


class Reason(StrEnum):
    """Why a lease is taken away; the `reason` of its step until that is begun again."""

    GONE = "owner-gone"
    OVERDUE = OVERDUE


_SAID = {
    Reason.GONE: "The process that worked on it is gone; another begins it again.",
    Reason.OVERDUE: "It takes longer than a step may, and its process has not ended it; it is begun again.",
}
_Number: TypeAlias = tuple[UUID, str, int]


class Judge:
    """Remembers what it was told last: one answer alone, of a coordinator that has just moved, say, proves nothing."""

    def __init__(self) -> None:
        self._held: set[_Number] = set()
        self._suspects: set[_Number] = set()

    def groups(self, held: Sequence[Held]) -> set[str]:
        """Which groups' members are to be known: of leases that the last look saw, too. So short work asks nobody.

        Args:
            held: the leases that there are.
        """
        return {one.owner.group for one in held if one.owner is not None and _number(one) in self._held}

    def judge(self, held: Sequence[Held], members: Members) -> list[Rescue]:
        """The leases to take away: of members that were unknown twice in a row, and those past their deadline.

        Args:
            held: as given to `groups`.
            members: of the groups that it has named, as they are after that.
        """
        unknown = {_number(one) for one in held if one.owner is not None and _is_unknown(one.owner, members)}
        gone = unknown & self._suspects
        self._held, self._suspects = set(map(_number, held)), unknown
        return [
            Rescue(one, reason, _SAID[reason])
            for one in held
            if (reason := Reason.GONE if _number(one) in gone else Reason.OVERDUE if one.overdue else None) is not None
        ]


def _is_unknown(owner: Owner, members: Members) -> bool:
    known = members.get(owner.group)
    return known is not None and owner.member not in known


def _number(held: Held) -> _Number:
    return held.run_id, held.step, held.fence
