"""The group `ledger`: the dead letters of all other groups into the database, where `offsetzero dlq` reads them.

It is a Kafka consumer group with a loop of its own: dead-letter topics differ in their partition counts, and what it
reads needs no retries and no dead letters, because nothing in a record can make it fail. Where it stands is in the
database, in the transaction of its rows; Kafka's committed offsets follow for tools. So whatever happens (the database
or the broker is away, a topic comes, goes or is made again), it drops all and begins anew from there.
"""

import threading
from collections.abc import Sequence

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from psycopg.rows import TupleRow

from offsetzero import logs, metrics
from offsetzero.client_log import LOGGER, watched
from offsetzero.clock import SYSTEM
from offsetzero.consumers.reading import protocol
from offsetzero.consumers.watching.health import SILENT_SECONDS, Health, Phase
from offsetzero.errors import GroupStopped, TopicError
from offsetzero.retry import dead_letters, ledger
from offsetzero.settings import Settings
from offsetzero.store.availability import is_away
from offsetzero.store.dead_letters import open_by_failure
from offsetzero.store.script import run
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import mark

NAME = "ledger"
FETCH_SECONDS = 0.2
LOOK_SECONDS = 2.0  # between two looks for new dead-letter topics
MEASURE_SECONDS = 15.0
AGAIN_SECONDS = 1.0
_STOPS = frozenset({KafkaError._FATAL, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})

log = logs.get(__name__)


class LedgerMember:
    """One member of the group, in the manner of `GroupRuntime`; all of its work is done by the thread that calls `run`.

    Args:
        settings: name the cluster and the database.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._names = Names(settings.kafka.namespace)
        self._protocol = protocol.first(settings.kafka.group_protocol)
        self._stopping = threading.Event()
        self._phase = Phase.STARTING
        self._turned_at = SYSTEM.monotonic()
        self._trouble = ""
        self._shown: set[str] = set()
        self._measure_at = 0.0

    def stop(self) -> None:
        """Ask `run` to end; any thread or signal handler may call this."""
        self._stopping.set()

    def running(self) -> int:
        """It has no handlers."""
        return 0

    def health(self) -> Health:
        """How this member is; any thread may ask."""
        silent = SYSTEM.monotonic() - self._turned_at
        reasons = [f"it has not turned for {silent:.0f} s"] if silent > SILENT_SECONDS else []
        not_ready = [*reasons, *([self._trouble] if self._trouble else [])]
        if self._phase is not Phase.WORKING:
            not_ready.append(f"it is {self._phase}")
        body = {"group": NAME, "state": self._phase, "reasons": reasons, "not_ready": not_ready}
        return Health(not reasons, not not_ready, body)

    def run(self) -> list[object]:
        """Work until `stop`.

        Returns:
            Nothing, as a list: no record is ever left in work.

        Raises:
            GroupStopped: the cluster refuses what the group needs.
        """
        while not self._stopping.is_set():
            self._turned_at = SYSTEM.monotonic()
            try:
                _Session(self).run()
                self._trouble = ""
                continue
            except (psycopg.Error, KafkaException, TopicError) as error:
                if isinstance(error, psycopg.Error) and not is_away(error):
                    raise
                if not self._trouble:
                    log.warning("the ledger waits", group=NAME, error=str(error))
                self._trouble = str(error)
            self._phase = Phase.JOINING
            self._stopping.wait(AGAIN_SECONDS)
        self._phase = Phase.STOPPED
        return []


class _Session:
    """From joining the group until something changes."""

    def __init__(self, member: LedgerMember) -> None:
        self._member = member
        self._settings = member._settings
        self._topics = ledger.topics(self._settings)
        self._by_name = {member._names.topic(topic.name): topic for topic in self._topics.values()}
        self._failed: BaseException | None = None
        self._lags: dict[tuple[str, int], tuple[str, str, str]] = {}
        self._reached: dict[tuple[str, int], int] = {}
        self._told: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        """Work until a dead-letter topic comes or goes, or the member is to stop."""
        member, settings = self._member, self._settings
        url = settings.database_url.get_secret_value()
        with psycopg.connect(url, autocommit=True, connect_timeout=10, application_name=NAME) as self._connection:
            self._consumer = Consumer(watched(self._config()), logger=LOGGER)
            try:
                if self._by_name:
                    self._consumer.subscribe(
                        list(self._by_name), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
                    )
                else:
                    member._phase = Phase.WORKING
                self._turn_until_changed()
            finally:
                self._consumer.close()
                for labels in self._lags.values():
                    metrics.remove(metrics.LAG_RECORDS, *labels)

    def _turn_until_changed(self) -> None:
        member, looked_at = self._member, SYSTEM.monotonic()
        while not member._stopping.is_set():
            member._turned_at = now = SYSTEM.monotonic()
            if self._by_name:
                self._take(self._consumer.consume(ledger.BATCH, FETCH_SECONDS))
            else:
                member._stopping.wait(FETCH_SECONDS)
            if now - looked_at > LOOK_SECONDS:
                looked_at = now
                if ledger.topics(self._settings) != self._topics:
                    return
                self._follow()
            self._measure(now)

    def _take(self, messages: Sequence[Message]) -> None:
        """Write what was fetched into the database, then tell Kafka how far that is."""
        if self._failed is not None:
            raise self._failed
        found: dict[str, list[Message]] = {}
        for message in messages:
            error = message.error()
            if error is None:
                found.setdefault(message.topic() or "", []).append(message)
            elif self._settings.kafka.group_protocol == protocol.AUTO and protocol.is_refused(error):
                self._member._protocol = protocol.CLASSIC
                raise KafkaException(error)
            elif error.code() in _STOPS:
                raise GroupStopped(f"group {NAME}: {error.str()}")
            elif not error.retriable():
                raise KafkaException(error)
        if not found:
            return
        if ledger.topics(self._settings) != self._topics:  # else records of a new topic count as those of the old one
            raise TopicError("a dead-letter topic has come, gone, or was made again")
        for name, read in found.items():
            topic = self._by_name[name]
            ledger.project(self._connection, topic, [dead_letters.of_message(topic.group, one) for one in read])
            self._reached.update({(name, one.partition() or 0): (one.offset() or 0) + 1 for one in read})
        self._follow()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin where the database says. What fails here is raised by the loop."""
        try:
            ids = [self._by_name[one.topic].id for one in partitions]
            rows = self._connection.execute(
                "SELECT topic_id, partition, position FROM dead_letter_positions WHERE topic_id = ANY (%s)", (ids,)
            ).fetchall()
            taken = _at(partitions, ids, rows)
            if self._member._protocol == protocol.CONSUMER:
                consumer.incremental_assign(taken)
            else:
                consumer.assign(taken)
            self._member._phase = Phase.WORKING
            self._member._trouble = ""
            for one in taken:
                labels = (NAME, self._by_name[one.topic].name, str(one.partition))
                self._lags[one.topic, one.partition] = labels
                self._reached[one.topic, one.partition] = one.offset
                metrics.LAG_RECORDS.labels(*labels).set(0)
        except Exception as error:
            self._failed = error

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            if (labels := self._lags.pop((one.topic, one.partition), None)) is not None:
                metrics.remove(metrics.LAG_RECORDS, *labels)

    def _follow(self) -> None:
        """Have Kafka's committed offsets, and the lag, say where the ledger is."""
        mine = {place: self._reached[place] for place in self._lags}
        for (name, number), offset in mine.items():
            low, high = self._consumer.get_watermark_offsets(TopicPartition(name, number), cached=True)
            metrics.LAG_RECORDS.labels(*self._lags[name, number]).set(max(0, high - max(low, offset)))
        changed = {place: offset for place, offset in mine.items() if self._told.get(place) != offset}
        if changed:
            self._told.update(changed)
            self._consumer.commit(
                offsets=[
                    TopicPartition(name, number, offset, mark(self._by_name[name].id))
                    for (name, number), offset in changed.items()
                ],
                asynchronous=True,
            )

    def _measure(self, now: float) -> None:
        member = self._member
        if now < member._measure_at:
            return
        found = run(self._connection, open_by_failure())
        ended = SYSTEM.monotonic()
        member._measure_at = ended + max(MEASURE_SECONDS, 20 * (ended - now))  # a million take a second
        for group in member._shown | set(found):
            rows = found.get(group, {})
            metrics.DEAD_LETTERS_OPEN.show(group, {(failure,): count for failure, (count, _) in rows.items()})
            metrics.DEAD_LETTERS_OLDEST.show(group, {(failure,): age for failure, (_, age) in rows.items()})
        member._shown = set(found)

    def _config(self) -> dict[str, object]:
        kafka = self._settings.kafka
        return {
            **kafka.client_config(),
            **protocol.config(self._member._protocol, kafka.options),
            "group.id": self._member._names.group(NAME),
            "client.id": f"offsetzero-{NAME}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",  # what retention took before it was read is no more
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }


def _at(partitions: Sequence[TopicPartition], ids: Sequence[str], rows: Sequence[TupleRow]) -> list[TopicPartition]:
    """The partitions with the offsets that the database has; those of a topic that it does not know at their start."""
    positions = {(topic_id, number): position for topic_id, number, position in rows}
    return [
        TopicPartition(one.topic, one.partition, positions.get((topic_id, one.partition), 0))
        for one, topic_id in zip(partitions, ids, strict=True)
    ]
