"""A run: the records that a worker took at once, and how far it has come with them."""

from collections import deque
from collections.abc import Sequence
from enum import Enum, StrEnum, auto

from offsetzero.consumers.record import Record
from offsetzero.consumers.working.atwork import AtWork


class Ending(Enum):
    """How the work on a record ended."""

    DONE = auto()
    LEFT = auto()  # its outcome is not safe and this process will not make it so: it will be read again
    BEHIND = auto()  # not begun: an earlier one of its key waits for a retry, or is held, since this run began
    ALONE = auto()  # not begun: a member has died while it worked on it, so it runs while nothing else does
    AGAIN = auto()  # the same attempt, a little later: its partition rests, or the group's database, … is away


class Doing(StrEnum):
    """What the lowest undone record of a partition is doing."""

    RUNNING = "running"
    WAITING = "waiting"  # for its due time, or for the next try while the database is away
    PROVIDER = "waiting: provider"  # that is down, or busy with as many calls as it may have
    QUEUED = "queued"  # behind a record of its key, or for a worker
    NOTHING = "nothing"  # it could run, and does not


class Run:
    """Records that one worker took at once, so that short handlings share the price of handing over.

    The worker moves each from `waiting` to `running` to `ended`. The deques are its only link with the dispatcher,
    which may take out of them at any time what has not begun, and what has ended, when the worker is held up:
    `popleft` and `append` are atomic, so that each record is taken by one of the two.
    """

    __slots__ = ("abandoned", "at_work", "begun_at", "count", "ended", "running", "taken_at", "waiting")

    def __init__(self, records: Sequence[Record], taken_at: float, *, whole: bool = False) -> None:
        """As taken; `whole` for records that are worked on in one call and cannot be shared out again."""
        self.waiting: deque[Record] = deque(() if whole else records)
        self.running: tuple[Record, ...] = tuple(records) if whole else ()
        self.ended: deque[tuple[Record, Ending]] = deque()
        self.count = len(records)
        self.taken_at = taken_at
        self.begun_at = taken_at
        self.at_work: AtWork | None = None
        """What its worker is doing; None until the worker has begun."""
        self.abandoned = False
        """Its running records were taken from its worker: what they come to is of no interest."""

    def begin(self, before: tuple[Record, ...] = ()) -> Record | None:
        """The next record to work on, None when none is left; one whose partition was revoked, or rests, is skipped.

        It shows as running before its partition is looked at: whoever revokes the partition sees one or the other.

        Args:
            before: records of this run that have been begun and go on running, for they end together with it.
        """
        while True:
            try:
                # Before it is taken out: it is to be seen here or there at any time.
                self.running = (self.waiting[0], *before)
                record = self.waiting.popleft()
            except IndexError:
                self.running = before
                return None
            if record.owned.active and not record.owned.resting:
                return record
            self.ended.append((record, Ending.AGAIN if record.owned.active else Ending.LEFT))

    def begin_all(self) -> tuple[Record, ...]:
        """Those of a whole run whose partitions are still owned, by one look at each: it may be revoked meanwhile."""
        owned = []
        for record in self.running:
            if record.owned.active and not record.owned.resting:
                owned.append(record)
            else:
                self.ended.append((record, Ending.AGAIN if record.owned.active else Ending.LEFT))
        self.running = tuple(owned)
        return self.running
