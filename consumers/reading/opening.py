"""The thread that finds out where partitions are read from, and whether their topics are still the same."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from offsetzero import logs
from offsetzero.clock import Clock
from offsetzero.consumers.reading import positions
from offsetzero.consumers.reading.facts import FactsReader
from offsetzero.consumers.reading.positions import Facts
from offsetzero.consumers.record import OwnedPartition
from offsetzero.consumers.resources import Spawn
from offsetzero.errors import TopicError
from offsetzero.store.availability import is_away
from offsetzero.store.positions import Position
from offsetzero.store.starts import Place

CONTESTED_SECONDS = 10.0
"""For a member that has lost a partition to be told so, by its next heartbeat, before it would enter it again."""
AGAIN_SECONDS = 1.0  # between tries while the cluster or the database is away
TELL_SECONDS = 60.0  # between log lines about that
JOIN_SECONDS = 5.0

log = logs.get(__name__)


class Opening:
    """Asks on behalf of the polling thread, which never waits for a cluster or a database.

    Whatever is away is asked again until it is back: meanwhile the group keeps its membership, and its partitions
    are not read. The owner calls `start` and `close`; the polling thread calls the rest.

    Args:
        facts: who is asked.
        group: for log lines.
        clock: intervals.
        spawn: makes the thread.
    """

    def __init__(self, facts: FactsReader, group: str, clock: Clock, spawn: Spawn) -> None:
        self._facts = facts
        self._group = group
        self._clock = clock
        self._changed = threading.Condition()
        self._closed = False
        self._asked: list[OwnedPartition] = []
        self._contested: dict[OwnedPartition, float] = {}  # since when
        self._to_confirm: set[Place] = set()
        self._to_keep: dict[Place, Position] = {}
        self._answers: list[tuple[OwnedPartition, Facts]] = []
        self._check = False
        self._ids: Mapping[str, str] | None = None
        self._failure: BaseException | None = None
        self._again_at = 0.0
        self._told_at: float | None = None
        self._thread = spawn(self._run, f"opening-{group}")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, within a bound also while it waits for an answer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(JOIN_SECONDS)

    def ask(self, stays: Iterable[OwnedPartition]) -> None:
        """Ask for the facts of these; `answers` has them later."""
        with self._changed:
            self._asked += stays
            self._again_at = 0.0
            self._changed.notify_all()

    def answers(self) -> Sequence[tuple[OwnedPartition, Facts]]:
        """What has been found since the last call.

        Raises:
            Exception: what no waiting mends.
        """
        if self._failure is not None:
            raise self._failure
        if not self._answers:
            return ()
        with self._changed:
            found, self._answers = self._answers, []
        return found

    def check(self) -> None:
        """Ask for the ids of the group's topics; `ids` has them later."""
        with self._changed:
            self._check = True
            self._ids = None
            self._changed.notify_all()

    def ids(self, seconds: float = 0.0) -> Mapping[str, str] | None:
        """The answer to the last `check`, once; None while there is none.

        Args:
            seconds: how long to wait for it at most.
        """
        if self._ids is None and seconds == 0.0:
            return None
        with self._changed:
            if seconds > 0:
                self._clock.wait(self._changed, lambda: self._ids is not None or self._failure, seconds)
            found, self._ids = self._ids, None
        return found

    def confirm(self, places: Iterable[Place]) -> None:
        """Have it recorded that Kafka holds a committed offset of these."""
        with self._changed:
            self._to_confirm.update(places)
            self._changed.notify_all()

    def contest(self, stays: Iterable[OwnedPartition]) -> None:
        """Enter these again that the database has as another member's, when they are this one's all the same.

        A member that was frozen, or waited for the database, when it was given a partition may enter it after it has
        lost it, and after the next owner: who has it would be refused each lease of a step for good.

        Args:
            stays: all of them; said again and again.
        """
        now = self._clock.monotonic()
        with self._changed:
            self._contested = {stay: self._contested.get(stay, now) for stay in stays}
            if self._contested:
                self._changed.notify_all()

    def keep(self, stays: Iterable[OwnedPartition], seconds: float = 0.0) -> None:
        """Have the database know how far these are, as far as it keeps that.

        Args:
            stays: whose positions.
            seconds: how long to wait until it does, at most.
        """
        moved = [(one, at) for one in stays if one.kept is not None and (at := one.committable()) is not None]
        with self._changed:
            for stay, offset in moved:
                if offset != stay.kept:
                    stay.kept = offset
                    self._to_keep[stay.place] = Position(stay.topic_id, offset)
            self._changed.notify_all()
            if seconds > 0:
                self._clock.wait(self._changed, lambda: not self._to_keep or self._failure, seconds)

    def work(self) -> None:
        """Ask once what was asked for first; called by the thread, or by a test instead of it."""
        if self._check:
            self._try(self._look_at_topics)
        elif self._asked:
            self._try(self._read)
        elif self._to_enter():
            self._try(self._enter_again)
        elif self._to_keep:
            self._try(self._keep)
        elif self._to_confirm:
            self._try(self._confirm)

    def _run(self) -> None:
        try:
            while self._wait():
                self.work()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _wait(self) -> bool:
        """Wait for something to do; false at the end."""
        with self._changed:
            while not self._closed and not self._is_due():
                pending = self._is_pending()
                seconds = max(0.0, self._again_at - self._clock.monotonic()) if pending else None
                self._clock.wait(self._changed, lambda: self._closed or self._is_due(), seconds)
            return not self._closed

    def _is_due(self) -> bool:
        return self._check or (self._is_pending() and self._clock.monotonic() >= self._again_at)

    def _is_pending(self) -> bool:
        return bool(self._asked or self._to_keep or self._to_confirm or self._to_enter())

    def _to_enter(self) -> list[OwnedPartition]:
        """Those of which nobody has said for long enough that they are another's."""
        before = self._clock.monotonic() - CONTESTED_SECONDS
        return [stay for stay, since in self._contested.items() if stay.active and since <= before]

    def _try(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except Exception as error:
            if not isinstance(error, TopicError) and not is_away(error):
                raise
            now = self._clock.monotonic()
            self._again_at = now + AGAIN_SECONDS
            if self._told_at is None or now - self._told_at >= TELL_SECONDS:
                self._told_at = now
                waiting = len(self._asked)
                log.warning("waiting for an answer", group=self._group, partitions=waiting, error=str(error).strip())
        else:
            if self._told_at is not None:
                self._told_at = None
                log.info("answered again", group=self._group)

    def _look_at_topics(self) -> None:
        with self._changed:
            self._check = False
        ids = self._facts.topic_ids()
        with self._changed:
            if not self._check:  # else it was asked for again, and this answer is older than the question
                self._ids = ids
                self._changed.notify_all()

    def _read(self) -> None:
        with self._changed:
            asked = [stay for stay in self._asked if stay.active]
        facts = self._facts.read([stay.place for stay in asked]) if asked else {}
        facts = self._put(asked, facts)
        asked = [stay for stay in asked if stay.active]  # meanwhile: a stay that is not begun is not left either
        name = self._facts.enter([stay.place for stay in asked]) if asked else ""
        with self._changed:
            self._asked = [stay for stay in self._asked if stay.active and stay not in asked]
            self._answers += [(stay, replace(facts[stay.place], stay=name)) for stay in asked]
            self._changed.notify_all()

    def _enter_again(self) -> None:
        try:
            self._facts.topic_ids()
        except TopicError:  # whom Kafka does not answer may have lost them, and is not told before it does
            with self._changed:
                self._contested.clear()
            raise
        if stays := self._to_enter():
            name = self._facts.enter([stay.place for stay in stays])
            for stay in stays:
                stay.name, stay.contested = name, False
            places = sorted(map(str, stays))
            log.warning("entered by a member that had lost them; entered again", group=self._group, partitions=places)
        with self._changed:
            self._contested.clear()

    def _put(self, asked: Iterable[OwnedPartition], facts: Mapping[Place, Facts]) -> Mapping[Place, Facts]:
        """Have the database know where replays begin, as far as it keeps positions; what is older is not kept after."""
        chosen = {
            stay.place: Position(stay.topic_id, positions.within(fact, stay.target))
            for stay in asked
            if stay.active
            and stay.target is not None
            and (fact := facts[stay.place]).kept is not None
            and fact.topic_id == stay.topic_id
        }
        if not chosen:
            return facts
        with self._changed:
            for place in chosen:
                self._to_keep.pop(place, None)
        self._facts.put(chosen)
        return {place: replace(fact, kept=chosen.get(place, fact.kept)) for place, fact in facts.items()}

    def _keep(self) -> None:
        with self._changed:
            kept = dict(self._to_keep)
        self._facts.keep(kept)
        with self._changed:
            self._to_keep = {place: at for place, at in self._to_keep.items() if kept.get(place) != at}
            self._changed.notify_all()

    def _confirm(self) -> None:
        with self._changed:
            places = sorted(self._to_confirm)
        self._facts.confirm(places)
        with self._changed:
            self._to_confirm.difference_update(places)
