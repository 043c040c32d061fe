"""Watches a member from its own polling thread: gathers facts, gives up handlers, names what is stuck."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers.order import Copy
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.resources import Resources
from offsetzero.consumers.watching.asking import Asker, DatabasePulse
from offsetzero.consumers.watching.ownership import Advice, Ownership, Shares
from offsetzero.consumers.watching.watch import Findings, Head, Part, Running, Watch
from offsetzero.consumers.working.atwork import TIMED_OUT
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.run import Run
from offsetzero.consumers.working.workers import Workers
from offsetzero.errors import GroupStopped
from offsetzero.retry.failures import Transient
from offsetzero.settings import GroupSettings
from offsetzero.store.leases import OVERDUE
from offsetzero.store.starts import Place

LOOK_SECONDS = 1.0
LIMIT_SECONDS = 0.05  # a handler may take so much longer than its limit
MAX_LATE = 100
"""Functions that were given up and have not ended, before the group stops: each holds a thread and its memory."""
MAX_SHOWN = 20  # stuck records in the metrics: they have labels of their own

T = TypeVar("T")

log = logs.get(__name__)


class Member(Protocol):
    """What the polling thread knows of this member's part in the group."""

    @property
    def member_id(self) -> str:
        """As the coordinator knows it; empty before it is told."""
        ...

    def stays(self) -> Sequence[OwnedPartition]:
        """What it owns."""
        ...

    def end(self, stay: OwnedPartition) -> int:
        """The end of a partition's log as it was last fetched, -1 when that is not known."""
        ...

    @property
    def turnovers(self) -> int:
        """How often all that the client had fetched has been handed out, at least."""
        ...

    def join_anew(self) -> None:
        """Leave the group and join it again, unless this member is on its way out."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What handlers may take before they are given up, seconds; None for no limit.

    Attributes:
        call: one call of a function of the group.
        step: all the work on a record of a group that is a step of runs (design section 8).
    """

    call: float | None = None
    step: float | None = None

    @property
    def are_given(self) -> bool:
        """Whether there are any."""
        return self.call is not None or self.step is not None

    def all(self) -> Iterator[tuple[float, bool, Transient]]:
        """Seconds, whether they are of all the work on a record, and the failure of one that takes longer."""
        if self.call is not None:
            yield self.call, False, Transient(TIMED_OUT, f"The handler did not end within {self.call:g} seconds.")
        if self.step is not None:
            yield self.step, True, Transient(OVERDUE, f"It took longer than {self.step:g} seconds.")


@dataclass(frozen=True, slots=True)
class Sight:
    """What the last look saw; never changed, so that any thread may read it."""

    parts: Sequence[Part] = ()
    findings: Findings = field(default_factory=Findings)
    running: int = 0
    waiting: int = 0
    late: int = 0
    held: tuple[float, str | None] = (0.0, None)
    joined: bool = False


class Watcher:
    """Belongs to the polling thread, except for `sight` and `turned_at`, which any thread may read.

    Args:
        group: the group's name.
        topics: what it reads, by our names.
        member: the polling thread's other parts.
        dispatcher: says what runs.
        workers: where handlers run.
        count: how many runs are worked on at once.
        times: what handlers may take.
        limits: when a handler is stuck, and a partition stalled.
        clock: measures.
        resources: asks the cluster about what looks wrong, and makes the thread that does.
        pulse: of the database, in a group that has one.
    """

    def __init__(
        self,
        group: str,
        topics: Sequence[str],
        member: Member,
        dispatcher: Dispatcher,
        workers: Workers,
        count: int,
        times: Limits,
        limits: GroupSettings,
        clock: Clock,
        resources: Resources,
        pulse: DatabasePulse | None = None,
    ) -> None:
        self.sight = Sight()
        """What the last look saw."""
        self.turned_at = clock.monotonic()
        """When the polling thread has last been here."""
        self._group = group
        self._topics = topics
        self._member = member
        self._dispatcher = dispatcher
        self._workers = workers
        self._count = count
        self._times = times
        self._limits = limits
        self._clock = clock
        self._watch = Watch(limits.stuck_seconds, limits.stall_seconds)
        self._next_look = self._next_limit = 0.0
        self._joined = False
        self._ownership = Ownership(limits.stall_seconds)
        self._resources = resources
        self._asker = Asker[_Answer](resources.spawn, clock)
        self._pulse = pulse

    def turn(self) -> None:
        """Give up what takes too long, and once a second look at everything.

        Raises:
            GroupStopped: a partition is stalled or does not come, or too many functions that were given up do not end.
        """
        now = self.turned_at = self._clock.monotonic()
        if self._times.are_given and now >= self._next_limit:
            self._next_limit = now + LIMIT_SECONDS
            self._give_up()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._look(now)

    def _give_up(self) -> None:
        for seconds, whole, failure in self._times.all():
            for run, age in self._dispatcher.held_up(seconds):
                shown = _running(run, age, 0.0)
                if shown is None or not self._dispatcher.abandon(run, seconds, failure, whole=whole):
                    continue
                metrics.HANDLER_TIMEOUTS.labels(self._group).inc()
                log.warning("handler given up", group=self._group, timeout=seconds, **_fields(shown))
                self._workers.replace(run)

    def _look(self, now: float) -> None:
        stays = self._member.stays()
        if (answer := self._asker.answer()) is not None:
            self._watch.answered(now, answer.ends, self._member.turnovers)
            if answer.shares is None:
                self._ownership.unanswered()
            else:
                self._joined = True
                self._compare(now, answer.shares, {stay.place for stay in stays})
        stuck = self._limits.stuck_seconds
        running = [one for run, age in self._dispatcher.held_up(0.0) if (one := _running(run, age, stuck)) is not None]
        parts = [self._part(stay) for stay in stays]
        findings = self._watch.look(now, running, parts, self._member.turnovers)
        self._joined = self._joined or bool(stays)
        late, held = self._workers.late(), self._workers.held_up()
        self.sight = Sight(parts, findings, len(running), self._dispatcher.waiting, late, held, self._joined)
        self._tell(findings)
        self._measure(findings, late)
        self._ask(findings.suspects)
        if self._pulse is not None:
            self._pulse.turn(max(findings.still.values(), default=0.0))
        self._judge(findings, late, held)

    def _ask(self, places: Sequence[Place]) -> None:
        group, resources, member_id = self._group, self._resources, self._member.member_id
        if not places and not member_id:
            return

        def question() -> _Answer:
            # Each by itself: where only the coordinator is away, a partition may be stalled all the same.
            return _Answer(
                self._asked(lambda: resources.ends(places)) if places else {},
                self._asked(lambda: resources.shares(group, self._topics, member_id)) if member_id else None,
            )

        self._asker.ask(question, self._limits.stall_seconds / 8)

    def _asked(self, question: Callable[[], T]) -> T | None:
        try:
            return question()
        except Exception as error:  # whatever it is: without an answer nothing is judged
            log.debug("the cluster does not answer the watch", group=self._group, error=str(error))
            return None

    def _compare(self, now: float, shares: Shares, own: set[Place]) -> None:
        advice, missing = self._ownership.answered(now, shares.mine, own), self._ownership.missing
        metrics.WITHOUT_OWNER.labels(self._group).set(len(missing) + (shares.nobodys if shares.speaks else 0))
        if advice is Advice.END:
            raise GroupStopped(
                f"group {self._group}: the coordinator has given {_named(missing)} to this member, whose client has not"
                " got it, although it has joined anew: nobody reads it; start the process again"
            )
        if advice is Advice.JOIN_ANEW:
            log.warning(
                "the coordinator has given what the client has not got: joining anew",
                group=self._group,
                partitions=_named(missing),
            )
            metrics.JOINED_ANEW.labels(self._group).inc()
            self._member.join_anew()

    def _part(self, stay: OwnedPartition) -> Part:
        record, end = stay.head(), self._member.end(stay)
        head = None
        if record is not None:
            head = Head(record.offset, _key(record), self._dispatcher.doing(record, self._count))
        return Part(
            stay,
            stay.topic,
            stay.partition,
            stay.committed,
            stay.position,
            end if end >= 0 else None,
            stay.undone,
            head,
            tuple(sorted(stay.pauses)),
        )

    def _judge(self, findings: Findings, late: int, held: tuple[float, str | None]) -> None:
        if findings.stalled:
            raise GroupStopped(f"group {self._group}: stalled: {'; '.join(findings.stalled)}")
        if late > MAX_LATE:
            raise GroupStopped(
                f"group {self._group}: {late} handlers were given up, too slow, and have not ended: they "
                "hold threads and connections that only the end of the process frees"
            )
        if held[0] > self._limits.stall_seconds:
            raise GroupStopped(
                f"group {self._group}: the event loop has been held up for {held[0]:.0f} s by {held[1] or 'a handler'}"
                ": an async function must not block; declare it with `def`, or use asyncio.to_thread"
            )

    def _tell(self, findings: Findings) -> None:
        for one in findings.begun:
            log.warning("handler stuck", group=self._group, **_fields(one))
        for one in findings.told:
            log.warning("handler still stuck", group=self._group, **_fields(one))
        for one in findings.ended:
            log.warning("stuck handler ended", group=self._group, **_fields(one))

    def _measure(self, findings: Findings, late: int) -> None:
        metrics.HANDLERS_LATE.labels(self._group).set(late)
        metrics.HEAD_SECONDS.show(
            self._group, {(topic, str(number)): age for (topic, number), age in findings.still.items()}
        )
        metrics.STUCK_SECONDS.show(
            self._group,
            {
                (one.topic, str(one.partition), str(one.offset), one.key or ""): one.seconds
                for one in findings.stuck[:MAX_SHOWN]
            },
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    ends: Mapping[Place, int] | None
    shares: Shares | None


def _named(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}/{number}" for topic, number in sorted(places))


def _running(run: Run, seconds: float, look_after: float) -> Running | None:
    records = run.running
    if not records:
        return None
    first = records[0]
    where = run.at_work.where() if run.at_work is not None and seconds >= look_after else None
    return Running(run, first.topic, first.partition, first.offset, _key(first), seconds, len(records), where)


def _key(record: Record | Copy) -> str | None:
    return record.key.decode(errors="backslashreplace") if record.key is not None else None


def _fields(one: Running) -> dict[str, object]:
    return {
        "record": f"{one.topic}/{one.partition}@{one.offset}",
        "key": one.key,
        "seconds": round(one.seconds, 1),
        "where": one.where,
        **({"records": one.records} if one.records > 1 else {}),
    }
