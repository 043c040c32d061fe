"""From facts about a member to findings: which handlers are stuck, what is head of line, which partition is stalled.

Pure: it is told the time and the facts, and remembers what did not move. A partition that has lag, makes no progress
and has no reason for that is stalled: something is wrong that nobody foresaw, and the process must not go on in silence
(arroyo#304, quix-streams#1124: paused for ever, and the app looked healthy).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from offsetzero.consumers.working.run import Doing
from offsetzero.store.starts import Place

MAX_TELL_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Running:
    """A handler at work on one record, or on a batch, whose first record is named."""

    run: Hashable
    topic: str
    partition: int
    offset: int
    key: str | None
    seconds: float
    records: int = 1
    where: str | None = None
    """The line of the group's code that is executed."""


@dataclass(frozen=True, slots=True)
class Head:
    """The lowest undone record of a partition."""

    offset: int
    key: str | None
    doing: Doing


@dataclass(frozen=True, slots=True)
class Part:
    """A partition that this member owns. `end` is the end of its log as last fetched, None when not known."""

    stay: Hashable
    topic: str
    partition: int
    committed: int | None
    position: int | None
    end: int | None
    undone: int
    head: Head | None
    pauses: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look found. `begun`, `told` and `ended` are stuck handlers to be named in the log now."""

    stuck: Sequence[Running] = ()
    begun: Sequence[Running] = ()
    told: Sequence[Running] = ()
    ended: Sequence[Running] = ()
    still: Mapping[Place, float] = field(default_factory=dict)
    """Seconds for which the head of line has not moved, by partition."""
    suspects: Sequence[Place] = ()
    """Whose end of the log should be asked for: see `Watch.answered`."""
    stalled: Sequence[str] = ()
    """A sentence for each partition that does not move, and nothing says why."""


@dataclass(slots=True)
class _Mark:
    """Where a partition has stood, and since when."""

    stay: Hashable
    position: int | None
    head: int | None
    moved: float
    unexplained: float  # since when nothing says why
    lagging: float | None = None  # since when the cluster says that there is more to read
    turnovers: int = 0  # of the client's queue, by then


class Watch:
    """Remembers what did not move from one look to the next.

    Args:
        stuck_seconds: a handler at work for longer is stuck.
        stall_seconds: a partition without progress and without a reason for longer is stalled.
    """

    def __init__(self, stuck_seconds: float, stall_seconds: float) -> None:
        self._stuck_seconds = stuck_seconds
        self._stall_seconds = stall_seconds
        self._stuck: dict[tuple[Hashable, int], tuple[Running, float]] = {}  # with the age at which it is told again
        self._marks: dict[Place, _Mark] = {}

    def look(self, now: float, running: Iterable[Running], parts: Iterable[Part], turnovers: int) -> Findings:
        """Compare the facts with those of the last look.

        Args:
            now: monotonic seconds.
            running: handlers at work.
            parts: all partitions that are owned.
            turnovers: how often all that the client had fetched has been handed out.
        """
        parts = list(parts)
        stuck, begun, told, ended = self._look_at_handlers(running)
        marks = {part.place: self._mark(now, part) for part in parts}
        self._marks = marks
        half = self._stall_seconds / 2
        return Findings(
            stuck=stuck,
            begun=begun,
            told=told,
            ended=ended,
            still={part.place: now - marks[part.place].moved for part in parts if part.head is not None},
            suspects=[
                part.place for part in parts if part.head is None and now - marks[part.place].unexplained >= half
            ],
            stalled=[said for part in parts if (said := self._stalled(now, part, turnovers)) is not None],
        )

    def answered(self, now: float, ends: Mapping[Place, int] | None, turnovers: int) -> None:
        """The cluster was asked for the ends of suspect partitions; `ends` is None when it gave no answer."""
        for place, mark in self._marks.items():
            if ends is None:
                mark.lagging = None  # the cluster is away: that explains everything
            elif (end := ends.get(place)) is not None:
                if mark.head is None and end <= (mark.position or 0):
                    mark.unexplained, mark.lagging = now, None
                elif mark.lagging is None:
                    mark.lagging, mark.turnovers = now, turnovers

    def _look_at_handlers(
        self, running: Iterable[Running]
    ) -> tuple[list[Running], list[Running], list[Running], list[Running]]:
        before, self._stuck = self._stuck, {}
        stuck: list[Running] = []
        begun: list[Running] = []
        told: list[Running] = []
        for one in running:
            if one.seconds < self._stuck_seconds:
                continue
            stuck.append(one)
            known = before.pop((one.run, one.offset), None)
            tell_at = known[1] if known is not None else 0.0
            if one.seconds >= tell_at:
                (begun if known is None else told).append(one)
                tell_at = one.seconds + min(one.seconds, MAX_TELL_SECONDS)
            self._stuck[one.run, one.offset] = one, tell_at
        return stuck, begun, told, [one for one, _ in before.values()]

    def _mark(self, now: float, part: Part) -> _Mark:
        head = part.head.offset if part.head is not None else None
        position = part.position if head is None else None  # what is read behind the head does not move it
        mark = self._marks.get(part.place)
        if mark is None or (mark.stay, mark.position, mark.head) != (part.stay, position, head):
            return _Mark(part.stay, position, head, now, now)
        if part.pauses or (part.head is not None and part.head.doing is not Doing.NOTHING):
            mark.unexplained, mark.lagging = now, None
        return mark

    def _stalled(self, now: float, part: Part, turnovers: int) -> str | None:
        mark = self._marks[part.place]
        if now - mark.unexplained < self._stall_seconds:
            return None
        if part.head is not None:
            what = f"the record at offset {part.head.offset} could run, and does not"
        elif mark.lagging is not None and now - mark.lagging >= self._stall_seconds / 2:
            if turnovers < mark.turnovers + 2:  # it may be fetched, behind much of other partitions
                return None
            what = f"the log goes on behind offset {part.position}, and nothing is fetched"
        else:
            return None
        return f"{part.topic}/{part.partition} has not moved for {now - mark.moved:.0f} s: {what}"
