"""What runs now, and how much a worker takes at once. Pure: the dispatcher calls it with its lock held."""

from collections import deque
from collections.abc import Iterator, Sequence

from offsetzero.consumers.record import Record
from offsetzero.consumers.working.run import Run

RUN_SECONDS = 0.005  # of work that a worker takes at once, by the average of what came before
MAX_RUN = 250  # records
_WEIGHT = 0.2  # of the last run in the average


class Runs:
    """The runs that workers have, in the order in which they were taken; and records that wait to run alone.

    Args:
        batch: records of a run for handlers that take many in one call; 0 for handlers that take one.
        whole: whether such a run begins with all of its records.
    """

    def __init__(self, batch: int, *, whole: bool) -> None:
        self.lone: deque[Record] = deque()
        """Each keeps its lane, and runs once nothing else does: a member has died while it worked on it."""
        self._batch = batch
        self._whole = whole
        self._alone: Run | None = None  # of one of those
        self._runs: dict[Run, None] = {}
        self._seconds = RUN_SECONDS  # average of a record; the first run is of one

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run: Run) -> bool:
        return run in self._runs

    @property
    def running(self) -> list[Record]:
        """Records whose handlers run."""
        return [record for run in list(self._runs) for record in run.running]

    @property
    def are_shared(self) -> bool:
        """Whether more may begin beside what runs."""
        return not self.lone and self._alone is None

    @property
    def share(self) -> int:
        """How many records a worker takes at once."""
        if self._batch:
            return self._batch
        return max(1, min(MAX_RUN, int(RUN_SECONDS / max(self._seconds, 1e-6))))

    def begin(self, records: Sequence[Record], now: float) -> Run:
        """A worker takes these."""
        run = Run(records, now, whole=self._whole)
        self._runs[run] = None
        return run

    def begin_alone(self, now: float) -> Run | None:
        """The next one that runs alone, once nothing else does: should this process end, it is known of which."""
        if self._runs or not self.lone:
            return None
        self._alone = self.begin([self.lone.popleft()], now)
        return self._alone

    def learn(self, run: Run, now: float) -> None:
        """Note what a record has taken, once a run; what its worker waits for after a failure is not part of that."""
        if run.count:
            begun = max(1, run.count - len(run.waiting))
            self._seconds += _WEIGHT * ((now - run.taken_at) / begun - self._seconds)
            run.count = 0

    def forget(self, run: Run) -> None:
        """It has ended."""
        self._runs.pop(run, None)
        if run is self._alone:
            self._alone = None

    def purge(self) -> list[Record]:
        """Take out what waits to run alone and was revoked."""
        gone = [record for record in self.lone if not record.owned.active]
        self.lone = deque(record for record in self.lone if record.owned.active)
        return gone
