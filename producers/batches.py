"""Sends claimed outbox rows: many keys at once, of each key one after the other, none after one that was refused."""

import contextlib
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from confluent_kafka import KafkaError

from offsetzero import logs, metrics, tracing
from offsetzero.clock import Clock
from offsetzero.errors import OffsetzeroError, PublishError, TopicError
from offsetzero.producers.blocked import Blocked
from offsetzero.producers.delivery import PASSING, Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.producers.rows import Row, ready
from offsetzero.producers.schema_publisher import SchemaPublisher
from offsetzero.producers.waves import SEND_SECONDS
from offsetzero.schemas.codec import Codec
from offsetzero.settings import Settings
from offsetzero.topics import catalogue
from offsetzero.topics.catalogue import topic_of
from offsetzero.topics.names import Names

_log = logs.get(__name__)

_ANSWER_SECONDS = 0.005
"""For which the answers of a wave are waited for at least: longer than a broker with little to do takes."""
_WAVE_SECONDS = 1.0  # after which an answer is late
_MANY_LATE = 1_000  # then the answers are waited for: claims leave all of them out, one by one
_MAX_LATE, _MAX_LATE_BYTES = 10_000, 256 * 1024 * 1024
_OTHER = "other"
# The same row would be refused again.
_FOR_GOOD = frozenset(
    str(KafkaError(code).name())
    for code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD)
)
# Not this row's fault: every row would fail now.
_AWAY = frozenset(str(KafkaError(code).name()) for code in PASSING | {KafkaError._FATAL})


class Refused(NamedTuple):
    """A row that was not published. `park`: the same row will never be, whoever tries."""

    row: Row
    error: str
    park: bool


@dataclass(slots=True)
class Sent:
    """What became of claimed rows. `away` is set when the broker as a whole does not answer."""

    published: list[Row] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    away: PublishError | None = None


class _Late(NamedTuple):
    """A record without an answer: its row without payload, which the client has; and from when on it is late."""

    row: Row
    delivery: Delivery
    since: float
    size_bytes: int


class Sender:
    """Publishes rows.

    A lane has one record on its way at a time: a refused record must not be overtaken by its successor
    (mopl#266), and with several on their way the first may be given up while later ones land.

    Args:
        producer: sends; it is not closed here.
        settings: the namespace, and the source of rows that name none.
        schemas: publishes writer schemas.
        blocked: lanes that wait after a refusal.
        clock: for waits.
    """

    def __init__(
        self, producer: LogProducer, settings: Settings, schemas: SchemaPublisher, blocked: Blocked, clock: Clock
    ) -> None:
        self._producer = producer
        self._names = Names(settings.kafka.namespace)
        self._source = settings.source
        self._codec = Codec()
        self._schemas = schemas
        self._blocked = blocked
        self._clock = clock
        self._late: dict[str, _Late] = {}
        self._acknowledged = float("-inf")
        self._topics: set[str] = set()
        self._tells = logging.getLogger(__name__).isEnabledFor(logging.DEBUG)  # asked once: not for each of thousands

    def waiting(self) -> list[str]:
        """The lanes of which nothing may be sent now: refused a moment ago, or without an answer."""
        return [*self._blocked.now(), *self._late]

    @property
    def busy(self) -> set[int]:
        """The shards of which records are without an answer."""
        return {late.row.shard for late in self._late.values()}

    @property
    def is_awaited(self) -> bool:
        """Whether answers are to be expected in a moment."""
        now = self._clock.monotonic()
        return any(late.since > now for late in self._late.values())

    def finish(self, sent: Sent) -> None:
        """Wait for the answers that are to be expected in a moment."""
        for late in list(self._late.values()):
            if (left := late.since - self._clock.monotonic()) > 0:
                with contextlib.suppress(TimeoutError, PublishError):  # which `collect` takes note of
                    late.delivery.result(left)
        self.collect(sent)

    @property
    def is_full(self) -> bool:
        """Whether so many records are without an answer that no more should be sent."""
        return len(self._late) >= _MAX_LATE or sum(late.size_bytes for late in self._late.values()) >= _MAX_LATE_BYTES

    def collect(self, sent: Sent) -> None:
        """Take note of answers that came late.

        One that never came is its partition's fault, which may have no leader, when others have come meanwhile.
        """
        for lane, late in list(self._late.items()):
            if late.delivery.done():
                del self._late[lane]
                self._settle(late.row, late.delivery, sent, others=self._acknowledged > late.since)

    def send(self, rows: Sequence[Row], seconds: float = SEND_SECONDS) -> Sent:
        """Send rows, given in order, and wait a moment for their answers.

        Each wave holds the next row of every lane. A refused row ends its lane; when the broker is away, all end. A
        row whose answer is not there soon ends its lane, too, until `collect` finds it: others are claimed and sent
        meanwhile. So rows that come now do not wait for a broker that is busy, nor for a topic that does not exist, or
        a partition without leader. What is left after some time is to be claimed again: a key with many rows must
        not hold up those that come meanwhile.

        Args:
            rows: with several of a key in their order.
            seconds: to go on for: no less than the claim of the rows took.
        """
        lanes: dict[str, list[Row]] = defaultdict(list)
        for row in reversed(rows):
            lanes[row.lane].append(row)
        sent = Sent()
        enough = self._clock.monotonic() + seconds
        while lanes and sent.away is None and self._clock.monotonic() < enough:
            begun = self._clock.monotonic()
            wave = self._begin(lanes)
            now = self._clock.monotonic()
            enough_on_their_way = len(self._late) > _MANY_LATE
            moment = now, now + (_WAVE_SECONDS if enough_on_their_way else max(now - begun, _ANSWER_SECONDS))
            stopped = {row.lane for row, delivery in wave if not self._settle(row, delivery, sent, moment)}
            lanes = {lane: rest for lane, rest in lanes.items() if rest and lane not in stopped}
        return sent

    def _begin(self, lanes: Mapping[str, list[Row]]) -> list[tuple[Row, Delivery | Exception]]:
        """Take the next row of every lane, and have it sent; no more once one could not be given to the broker at all.

        Each of the others would wait as long for a schema's answer, or for room in the queue: hours for a thousand.
        """
        wave: list[tuple[Row, Delivery | Exception]] = []
        for rest in reversed(list(lanes.values())):
            row = rest.pop()
            wave.append((row, delivery := self._produce(row)))
            if isinstance(delivery, PublishError) and _is_away(delivery):
                break
        return wave

    def _produce(self, row: Row) -> Delivery | Exception:
        try:
            record = ready(row, self._codec, self._source)
            if record.schema is not None:
                self._schemas.ensure(*record.schema)
            topic = self._names.topic(record.topic)
            return self._producer.produce(topic, key=record.key, value=record.value, headers=record.headers)
        except Exception as error:  # anybody can insert rows; one that is no record must not stop the others
            return error

    def _settle(
        self,
        row: Row,
        delivery: Delivery | Exception,
        sent: Sent,
        moment: tuple[float, float] = (0.0, 0.0),
        *,
        others: bool = False,
    ) -> bool:
        """Take note of one answer; returns whether the lane may go on.

        Args:
            moment: when it was sent, and until when the answer is waited for.
            others: other records were taken since this one was late.
        """
        sent_at, until = moment
        try:
            if isinstance(delivery, Exception):
                raise delivery
            if not delivery.done():
                delivery.result(max(until - self._clock.monotonic(), 0.0))
            else:
                delivery.result()
        except TimeoutError:
            without_payload = row._replace(payload=None)  # the client has it
            self._late[row.lane] = _Late(
                without_payload, cast("Delivery", delivery), sent_at + _WAVE_SECONDS, len(row.payload or b"")
            )
            return False
        except PublishError as error:
            if _is_away(error) and not others:
                metrics.OUTBOX_FAILED.labels(self._counted_as(row)).inc()
                sent.away = error
            else:
                self._refuse(row, error, sent, park=error.code in _FOR_GOOD)
            return False
        except OffsetzeroError as error:
            self._refuse(row, error, sent, park=True)
            return False
        except (MemoryError, OSError) as error:  # says nothing of the row
            self._refuse(row, PublishError(f"not sent: {type(error).__name__}: {error}"), sent, park=False)
            return False
        except Exception as error:
            said = PublishError(f"the row cannot be a record: {type(error).__name__}: {error}")
            self._refuse(row, said, sent, park=True)
            return False
        self._blocked.accept(row.lane)
        self._acknowledged = self._clock.monotonic()
        self._topics.add(topic := row.topic or topic_of(row.type))
        metrics.OUTBOX_PUBLISHED.labels(topic).inc()
        sent.published.append(row)
        if self._tells:
            _log.debug("outbox row published", event_id=str(row.id), type=row.type, key=row.key, **_whose(row))
        return True

    def _refuse(self, row: Row, error: OffsetzeroError, sent: Sent, *, park: bool) -> None:
        metrics.OUTBOX_FAILED.labels(self._counted_as(row)).inc()
        sent.refused.append(Refused(row, str(error), park))
        pause = None if park else round(self._blocked.refuse(row.lane), 1)
        _log.error(
            "outbox row parked; later rows of its key wait"
            if park
            else "outbox row refused; later rows of its key wait",
            event_id=str(row.id),
            type=row.type,
            key=row.key,
            **_whose(row),
            error=str(error),
            next="`offsetzero outbox show|retry|discard`" if park else f"tried again in {pause} s",
        )

    def _counted_as(self, row: Row) -> str:
        """The topic of a row that was not published, for the metric, where each name is a series for good.

        A row may say anything: only topics that are declared, or have taken a record, have one of their own.
        """
        try:
            topic = row.topic or topic_of(row.type)
        except TopicError:
            return _OTHER
        return topic if topic in self._topics or catalogue.find(topic) is not None else _OTHER


def _whose(row: Row) -> dict[str, str]:
    """The run of a row, and its trace, as all lines about them have them."""
    headers = row.headers if isinstance(row.headers, Mapping) else {}
    run_id, parent = headers.get("ce_runid"), headers.get(tracing.PARENT)
    span = tracing.read(parent) if isinstance(parent, str) else None
    known = {"run_id": run_id} if isinstance(run_id, str) else {}
    return known | ({"trace_id": span.trace_id} if span is not None else {})


def _is_away(error: PublishError) -> bool:
    """Whether any row would fail now."""
    return error.code in _AWAY or error.retriable
