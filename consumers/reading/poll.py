"""The polling thread: fetches, serves rebalances, commits. Nothing that handlers do may stop it (design section 6)."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.consumers.control.channel import Channel
from offsetzero.consumers.reading import protocol
from offsetzero.consumers.reading.commits import Commits
from offsetzero.consumers.reading.fetching import Fetching
from offsetzero.consumers.reading.handed import Handed
from offsetzero.consumers.reading.marks import read_mark
from offsetzero.consumers.reading.membership import Membership
from offsetzero.consumers.reading.opening import Opening
from offsetzero.consumers.reading.pressure import BATCH, Pressure
from offsetzero.consumers.reading.replays import Replays
from offsetzero.consumers.reading.tiers import Tiers
from offsetzero.consumers.reading.yielding import Yielding
from offsetzero.consumers.record import BULK, OwnedPartition, PauseReason, Record
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.parking import Parking
from offsetzero.errors import GroupStopped
from offsetzero.settings import GroupSettings
from offsetzero.topics.names import Names

IDLE_SECONDS = 0.05
WAITING_SECONDS = 0.005
LEAST_SECONDS = 0.001  # that the client can wait for
ROUND_SECONDS = 1.0  # between commits
KEEP_SECONDS = 0.2  # between times that positions are kept because nothing more comes
CLOSE_SECONDS = 5.0  # for the last commit's answer
_STOPS = frozenset({KafkaError._FATAL, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})

log = logs.get(__name__)


class PollLoop:
    """Owns the Kafka consumer of one group member, and the thread of `opening`; every method is called by one thread.

    Args:
        config: librdkafka properties; `group.protocol` may be `auto`.
        sources: source topics as the catalogue names them, with their topic ids.
        retries: the group's retry topics, likewise.
        group: the group's name, for metrics.
        names: topic names on the cluster.
        dispatcher: gets the records.
        limits: how much may be in flight.
        clock: due times and intervals.
        lost: called when partitions are lost, to give up appends on behalf of them.
        make_consumer: makes the client.
        opening: finds out where partitions begin.
        parking: appends records whose key waits.
        channel: what is said to this member while it runs.
        commits: commits offsets; by default the consumer does.
        in_order: whether retry records, too, are handed over in the order of their offsets.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        sources: Mapping[str, str],
        retries: Mapping[str, str],
        group: str,
        names: Names,
        dispatcher: Dispatcher,
        limits: GroupSettings,
        clock: Clock,
        lost: Callable[[], None],
        make_consumer: Callable[[Mapping[str, Any]], Consumer],
        opening: Opening,
        parking: Parking,
        channel: Channel,
        commits: Commits | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        self._config = config
        self._topics = [names.topic(name) for name in [*sources, *retries]]
        self._retries = frozenset(retries)
        self._group = group
        self._names = names
        self._dispatcher = dispatcher
        self._limits = limits
        self._clock = clock
        self._make_consumer = make_consumer
        self._opening = opening
        self._parking = parking
        self._next_round = 0.0
        self._handed = Handed()
        self._next_keep = 0.0
        self._is_kept = True  # nothing has come since
        self._resting = False
        self._is_leaving = False
        self._in_order = in_order
        most = dispatcher.most(BULK)
        self._yielding = Yielding(most, clock.monotonic()) if most is not None else None
        self._tiers = Tiers(dispatcher, clock, limits.max_in_flight_bytes)
        self._commits = commits or Commits(group, names, clock, opening.confirm)
        self._membership = Membership(
            sources, retries, group, names, dispatcher, opening, self._commits, clock, lost, ahead=not in_order
        )
        self._replays = Replays(group, channel, self._membership, dispatcher, clock, lambda: self.member_id)
        self._connect(protocol.first(config["group.protocol"]))

    def subscribe(self) -> None:
        """Join the group."""
        self._opening.start()
        self._join()

    def turn(self) -> None:
        """One round: due records, back-pressure, fetch, commit. Blocks for about 50 ms when nothing happens.

        Raises:
            GroupStopped: the client reports an error that it cannot recover from, or a position is lost.
        """
        due = self._dispatcher.tick()
        self._dispatcher.park(self._parking)
        self._commits.refresh(self._consumer)
        self._membership.tend()
        self._replays.tend(self._pressure)
        if room := self._pressure.room(self._membership.live.values()):
            hurry = self._membership.is_waiting or self._dispatcher.is_parking or self._replays.is_busy
            timeout = WAITING_SECONDS if hurry else IDLE_SECONDS
            for sooner in (due, self._let_backfill_begin()):
                timeout = timeout if sooner is None else min(timeout, sooner)
            self._accept(self._fetch(min(BATCH, room), timeout))
        now = self._clock.monotonic()
        if not self._is_kept and now >= self._next_keep and not self._dispatcher.in_flight:
            # What transactions beside each other have left to those that follow: none do, and somebody may wait for it.
            self._is_kept, self._next_keep = True, now + KEEP_SECONDS
            self._membership.keep()
        if now >= self._next_round:
            self._next_round = now + ROUND_SECONDS
            self._opening.check()  # commits follow the answer
            self._opening.contest(self._membership.contested())
            metrics.IN_FLIGHT.labels(self._group).set(self._dispatcher.in_flight + self._dispatcher.waiting)
            for limit, waiting in self._dispatcher.limited.items():
                metrics.LIMITED.labels(self._group, limit).set(waiting)
                metrics.AT_ONCE.labels(self._group, limit).set(self._dispatcher.most(limit) or 0)
            self._membership.measure()

    def rest(self, stays: frozenset[OwnedPartition]) -> None:
        """Fetch nothing of these until they are not among them any more."""
        if stays or self._resting:
            live = self._membership.live.values()  # in their order, which a set has not
            self._pressure.pause([stay for stay in live if stay in stays], PauseReason.REFUSED)
            self._pressure.resume([stay for stay in live if stay not in stays], PauseReason.REFUSED)
            self._resting = bool(stays)

    def drain(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> list[Record]:
        """Fetch nothing more and keep the membership until the running handlers have ended, `seconds` at most.

        For half of that time what lies between records that were begun is begun, too: what is done behind an undone
        record would be read again.

        Args:
            seconds: the drain time.
            meanwhile: called several times a second.

        Returns:
            The records that still run.
        """
        dispatcher, stays = self._dispatcher, self._membership.stays()
        begun = self._clock.monotonic()
        self._is_leaving = True
        self._replays.leave(self._pressure)
        self._fetching.pause(self._membership.live.values())
        dispatcher.wind_down(stays)
        if self._yielding is not None:
            dispatcher.resize(BULK, self._yielding.at_once)  # nobody counts the pauses any more
        while dispatcher.has_begun and self._clock.monotonic() - begun < seconds / 2:
            self._keep(meanwhile)
        dispatcher.close()
        while left := dispatcher.wait_idle(0.0):
            if self._clock.monotonic() - begun > seconds:
                return left
            self._keep(meanwhile)
        return []

    def _keep(self, meanwhile: Callable[[], None]) -> None:
        """A moment of the drain: the membership is kept."""
        self._dispatcher.wait_idle(IDLE_SECONDS)
        self._consumer.poll(0)  # paused: serves only heartbeats and callbacks
        self._commits.refresh(self._consumer)
        meanwhile()

    # --- for the watch

    @property
    def member_id(self) -> str:
        """As the coordinator knows this member; empty before it is told."""
        return self._consumer.memberid() or ""

    def stays(self) -> list[OwnedPartition]:
        """What this member owns."""
        return self._membership.stays()

    @property
    def turnovers(self) -> int:
        """How often all that the client had fetched has been handed out, at least."""
        return self._handed.turnovers

    def end(self, stay: OwnedPartition) -> int:
        """The end of a partition's log as it was last fetched, -1 when that is not known."""
        return self._fetching.end(stay)

    def join_anew(self) -> None:
        """Leave the group and join it again, unless this member is on its way out: what it has is given up in order."""
        if not self._is_leaving:
            self._consumer.unsubscribe()
            self._join()

    # ---

    def close(self) -> None:
        """Commit what is done and leave the group, within a bound also when the broker does not answer."""
        answered = self._commits.catch_up(self._consumer, CLOSE_SECONDS)
        if answered:
            self._membership.commit_last()
            answered = self._commits.settle(self._consumer, CLOSE_SECONDS)
        if not answered:
            log.warning("last commit not answered: its records will be read again", group=self._group)
            self._membership.give_up()
        self._consumer.close()
        self._opening.close()
        self._replays.close()

    def _connect(self, chosen: str) -> None:
        self._protocol = chosen
        self._consumer = self._make_consumer(
            {**self._config, **protocol.config(chosen, self._config), "on_commit": self._commits.on_commit}
        )
        self._commits.attach(self._consumer)
        self._fetching = Fetching(self._consumer, self._names, chosen == protocol.CONSUMER)
        self._membership.attach(self._consumer, self._fetching)
        self._pressure = Pressure(
            self._fetching, self._group, self._retries, self._dispatcher, self._limits, self._clock
        )

    def _join(self) -> None:
        member = self._membership
        self._consumer.subscribe(
            self._topics, on_assign=member.on_assign, on_revoke=member.on_revoke, on_lost=member.on_lost
        )
        log.info("joining", group=self._group, protocol=self._protocol)

    def _fetch(self, count: int, timeout: float) -> list[Message]:
        begun = self._clock.monotonic()
        found = self._handed.fetch(self._consumer, count, timeout)
        if not found and self._yielding is not None:
            now = self._clock.monotonic()
            self._yielding.waited(now - begun - timeout, now)
        return found

    def _let_backfill_begin(self) -> float | None:
        """Have as many records of backfill handled as may be now; returns seconds until the next one may begin."""
        if self._yielding is None:
            return None
        now = self._clock.monotonic()
        if not self._dispatcher.has_drained(0, 0, bulk=True):
            self._yielding.met(now, bulk=True)
        pause = self._yielding.pause(now)
        if pause is None:
            self._dispatcher.resize(BULK, self._yielding.at_once)
            return None
        if pause == 0.0:
            self._dispatcher.resize(BULK, 1)
        self._dispatcher.resize(BULK, 0)  # what has begun goes on
        return max(pause, LEAST_SECONDS)

    def _accept(self, messages: list[Any]) -> None:  # the client's stub has None where none can be
        find, retries, tiers = self._membership.live.get, self._retries, self._tiers
        now: list[Record] = []
        self._is_kept = self._is_kept and not messages
        tiers.begin()
        for message in messages:
            if message.error() is not None:
                self._on_error(message)
                continue
            stay, offset = find((message.topic(), message.partition())), message.offset()
            # Read before a rebalance that was served in the same call: its partition has another stay by now, or none.
            if stay is None or (offset < stay.position and stay.cursor is None):
                continue
            try:
                headers = message.headers() or []
            except UnicodeDecodeError:  # of one header's name: for us such a record has none
                headers = []
            if stay.topic in retries and not self._in_order:
                tiers.read(stay, message, headers)
                continue
            record = Record(stay, offset, message.key(), message.value(), headers, message.timestamp()[1])
            stay.deliver(record)
            if stay.topic not in retries:
                now.append(record)
            else:
                stay.due = max(stay.due, tiers.due(read_mark(dict(headers), stay.partition), record.timestamp_ms))
                self._dispatcher.add_later(record, stay.due)
        if now:
            if self._yielding is not None and not all(record.owned.is_bulk for record in now):
                self._yielding.met(self._clock.monotonic(), bulk=False)
            self._dispatcher.add(now)
        tiers.end(self._fetching)

    def _on_error(self, message: Message) -> None:
        error: KafkaError = message.error()  # type: ignore[assignment]
        place = message.topic() or "", message.partition() or 0
        if error.code() == KafkaError._PARTITION_EOF:
            if (stay := self._membership.live.get(place)) is not None:
                stay.reach(message.offset() or 0)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._membership.doubt(place, error.str())
        elif self._config["group.protocol"] == protocol.AUTO and protocol.is_refused(error):
            log.info("this cluster does not serve KIP-848", group=self._group)
            self._consumer.close()
            self._connect(protocol.CLASSIC)
            self._join()
        elif error.fatal() or error.code() in _STOPS:
            raise GroupStopped(f"group {self._group}: {error.str()}")
        else:
            log.warning("consumer error", group=self._group, error=error.str(), code=error.name())
