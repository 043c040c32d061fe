"""Sends claimed outbox rows: many keys at once, of each key one after the other, and holds back refused keys."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from confluent_kafka import KafkaError

from offsetzero import logs, metrics
from offsetzero.clock import Clock
from offsetzero.errors import PublishError
from offsetzero.producers.delivery import PASSING, Delivery
from offsetzero.producers.log import LogProducer
from offsetzero.producers.outbox import SCHEMA_HEADER
from offsetzero.producers.schema_publisher import SchemaPublisher
from offsetzero.schemas.cloudevents import Headers
from offsetzero.schemas.codec import fingerprint_of
from offsetzero.topics.names import Names

_log = logs.get(__name__)

_ANSWER_SECONDS = 60.0
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
MAX_BLOCKED = 10_000
# Not this row's fault: every row would fail now.
_AWAY = frozenset(str(KafkaError(code).name()) for code in PASSING | {KafkaError._FATAL})


class Row(NamedTuple):
    """One outbox row, as it is claimed. `topic` is our name."""

    id: UUID
    key: str | None
    topic: str
    payload: bytes | None
    headers: Mapping[str, str]

    @property
    def lane(self) -> str:
        """Rows of one lane are published in order; a row without key has a lane of its own."""
        return f"{self.topic}\n{self.key if self.key is not None else self.id}"


@dataclass(slots=True)
class Sent:
    """What became of claimed rows. `away` is set when the broker as a whole does not answer."""

    published: list[Row] = field(default_factory=list)
    away: PublishError | None = None


class Blocked:
    """Lanes whose first row was refused, each until its next try. Kept in memory: a restart tries all again."""

    def __init__(self, clock: Clock, dice: random.Random | None = None) -> None:
        self._clock = clock
        self._dice = dice or random.Random()  # noqa: S311  # jitter, no secret
        self._until: dict[str, tuple[int, float]] = {}

    def now(self) -> list[str]:
        """The lanes that must not be tried yet."""
        moment = self._clock.monotonic()
        return [lane for lane, (_, until) in self._until.items() if until > moment]

    def refuse(self, lane: str) -> float:
        """Block a lane for a while, longer each time; returns the seconds."""
        if lane not in self._until and len(self._until) >= MAX_BLOCKED:
            self._until.pop(next(iter(self._until)))
        tries = self._until.get(lane, (0, 0.0))[0] + 1
        pause: float = min(_FIRST_PAUSE * 2 ** min(tries - 1, 10), _LAST_PAUSE)
        pause += self._dice.uniform(0, 0.1 * pause)
        self._until[lane] = (tries, self._clock.monotonic() + pause)
        return pause

    def accept(self, lane: str) -> None:
        """Forget a lane's refusals."""
        self._until.pop(lane, None)


class Sender:
    """Publishes rows.

    A lane has one record on its way at a time: a refused record must not be overtaken by its successor
    (mopl#266), and with several on their way the first may be given up while later ones land.
    """

    def __init__(self, producer: LogProducer, names: Names, schemas: SchemaPublisher, blocked: Blocked) -> None:
        self._producer = producer
        self._names = names
        self._schemas = schemas
        self._blocked = blocked

    def send(self, rows: Sequence[Row]) -> Sent:
        """Send rows, given in order, and wait for all answers.

        Each wave holds the next row of every lane. A refused row ends its lane; when the broker is away, all end.
        """
        lanes: dict[str, list[Row]] = defaultdict(list)
        for row in reversed(rows):
            lanes[row.lane].append(row)
        sent = Sent()
        while lanes and sent.away is None:
            wave = [(row, self._produce(row)) for row in (rest.pop() for rest in reversed(list(lanes.values())))]
            refused = {row.lane for row, delivery in wave if not self._settle(row, delivery, sent)}
            lanes = {lane: rest for lane, rest in lanes.items() if rest and lane not in refused}
        return sent

    def _produce(self, row: Row) -> Delivery | PublishError:
        try:
            schema = row.headers.get(SCHEMA_HEADER)
            if schema is not None and row.payload is not None:
                self._schemas.ensure(fingerprint_of(row.payload), schema)
            headers: Headers = [(name, value.encode()) for name, value in row.headers.items() if name != SCHEMA_HEADER]
            return self._producer.produce(self._names.topic(row.topic), key=row.key, value=row.payload, headers=headers)
        except PublishError as error:
            return error
        except Exception as error:  # anybody can insert rows; one that is no record must not stop the others
            return PublishError(f"{row.topic}: the row cannot be a record: {type(error).__name__}: {error}")

    def _settle(self, row: Row, delivery: Delivery | PublishError, sent: Sent) -> bool:
        """Take note of one answer; returns whether the lane may go on."""
        try:
            if isinstance(delivery, PublishError):
                raise delivery
            delivery.result(_ANSWER_SECONDS)
        except TimeoutError:
            sent.away = PublishError(f"{row.topic}: no answer within {_ANSWER_SECONDS:g} s")
            return False
        except PublishError as error:
            metrics.OUTBOX_FAILED.labels(row.topic).inc()
            if error.code in _AWAY:
                sent.away = error
                return False
            pause = self._blocked.refuse(row.lane)
            _log.error(
                "outbox row refused; later rows of its key wait",
                event_id=str(row.id),
                topic=row.topic,
                key=row.key,
                error=str(error),
                next_try_seconds=round(pause, 1),
            )
            return False
        self._blocked.accept(row.lane)
        sent.published.append(row)
        return True
