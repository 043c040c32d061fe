"""The relay: publishes what services wrote into the outbox, in order for each key, at least once.

One relay works, others stand by behind an advisory lock. Rows are claimed by "not published yet", never by a
cursor: ids are taken before their transactions commit, so a cursor skips rows (watermill#311, kamu-cli#1398).
"""

import threading
from typing import Any

import psycopg

from offsetzero import logs, metrics
from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import ConfigurationError, PublishError
from offsetzero.producers.batches import Blocked, Row, Sender
from offsetzero.producers.log import LogProducer
from offsetzero.producers.outbox import CHANNEL
from offsetzero.producers.schema_publisher import SchemaPublisher
from offsetzero.settings import Settings
from offsetzero.store.availability import is_away
from offsetzero.topics.names import Names

_log = logs.get(__name__)

BATCH = 500
POLL_SECONDS = 1.0
"""How often the table is looked at when no notification comes."""
_LOCK = 0x6F7A_0001  # "oz", 1: one relay per database
_DELIVERY_SECONDS = 30.0
_LINGER = 0.001  # measured: 19,000 rows a second of many keys, 550 of one; at 0 5,000 and 1,100, at 0.005 19,000 and 97
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 5.0
_MEASURE_SECONDS = 5.0
_SILENT_SECONDS = 90.0  # without a turn: longer than the schemas and a batch may take, one after the other
_PRUNE_SECONDS = 60.0
_PRUNE_ROWS = 10_000

_CLAIM = """
SELECT id, aggregateid, topic, payload, headers
FROM outbox
WHERE published_at IS NULL
  AND NOT (topic || E'\\n' || coalesce(aggregateid, id::text)) = ANY(%s)
ORDER BY id
LIMIT %s
"""
_MARK = "UPDATE outbox SET published_at = now() WHERE id = ANY(%s)"
_MEASURE = """
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)
FROM outbox WHERE published_at IS NULL
"""
_PRUNE = """
DELETE FROM outbox WHERE id IN (
    SELECT id FROM outbox WHERE published_at < now() - interval '1 hour' ORDER BY published_at LIMIT %s)
"""


class Relay:
    """Publishes outbox rows until it is told to stop.

    Without its database or the broker it goes on by itself when they are back. A row that the broker refuses
    holds back only the later rows of its key, and is tried again with growing pauses.

    Args:
        settings: the database and the cluster.
        clock: for pauses.
    """

    def __init__(self, settings: Settings, *, clock: Clock = SYSTEM) -> None:
        self._settings = settings
        self._names = Names(settings.kafka.namespace)
        self._clock = clock
        self._blocked = Blocked(clock)
        self._pause = _FIRST_PAUSE
        self._measured = self._pruned = float("-inf")
        self._turned_at = clock.monotonic()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether it goes on, working or standing by, and what to show; any thread may ask."""
        silent = self._clock.monotonic() - self._turned_at
        return silent < _SILENT_SECONDS, {"relay": {"turned_seconds_ago": round(silent, 1)}}

    def run(self, stop: threading.Event) -> None:
        """Work, or stand by, until `stop` is set. Rows in hand are finished first.

        Raises:
            ConfigurationError: the database has no outbox.
        """
        while not stop.is_set():
            self._turned_at = self._clock.monotonic()
            try:
                with self._connect() as connection:
                    self._serve(connection, stop)
            except psycopg.errors.UndefinedTable as error:
                raise ConfigurationError("the database has no table outbox; run `offsetzero migrate`") from error
            except psycopg.Error as error:
                if not is_away(error) and not isinstance(error, psycopg.OperationalError):
                    raise
                _log.warning("relay: the database is away; trying again", error=str(error), pause_seconds=self._pause)
            except PublishError as error:
                _log.warning("relay: the broker is away; trying again", error=str(error), pause_seconds=self._pause)
            else:
                continue
            stop.wait(self._pause)
            self._pause = min(self._pause * 2, _LAST_PAUSE)

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._settings.database_url.get_secret_value(),
            autocommit=True,
            connect_timeout=5,
            application_name="offsetzero-relay",
            # A dead peer must not keep the lock for hours.
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )

    def _serve(self, connection: psycopg.Connection[Any], stop: threading.Event) -> None:
        """Stand by until this session has the lock, then publish."""
        standing_by = False
        while not _scalar(connection, "SELECT pg_try_advisory_lock(%s)", (_LOCK,)):
            if not standing_by:
                _log.info("relay stands by: another one works")
                standing_by = True
            self._turned_at = self._clock.monotonic()
            if stop.wait(POLL_SECONDS):
                return
        _log.info("relay works")
        connection.execute(f"LISTEN {CHANNEL}")
        with LogProducer(self._settings, delivery_timeout=_DELIVERY_SECONDS, linger=_LINGER) as producer:
            schemas = SchemaPublisher(producer, self._names, timeout=_DELIVERY_SECONDS)
            sender = Sender(producer, self._names, schemas, self._blocked)
            while not stop.is_set():
                self._turned_at = self._clock.monotonic()
                self._keep_house(connection)
                if not self._publish_batch(connection, sender):
                    _await_notification(connection)
                if producer.fatal is not None:
                    raise PublishError(f"the producer failed for good: {producer.fatal}")

    def _publish_batch(self, connection: psycopg.Connection[Any], sender: Sender) -> bool:
        """Publish what is waiting, up to a batch; returns whether to look again at once.

        Raises:
            PublishError: the broker is away. What it did acknowledge is marked.
        """
        claimed = connection.execute(_CLAIM, (self._blocked.now(), BATCH)).fetchall()
        self._pause = _FIRST_PAUSE  # it serves again
        rows = [Row(*columns) for columns in claimed]
        if not rows:
            return False
        result = sender.send(rows)
        if result.published:
            connection.execute(_MARK, ([row.id for row in result.published],))
            for row in result.published:
                metrics.OUTBOX_PUBLISHED.labels(row.topic).inc()
        if result.away is not None:
            raise result.away
        return True

    def _keep_house(self, connection: psycopg.Connection[Any]) -> None:
        """Measure depth and age, and delete what was published long ago, each at its interval."""
        now = self._clock.monotonic()
        if now - self._measured >= _MEASURE_SECONDS:
            self._measured = now
            depth, age = connection.execute(_MEASURE).fetchone() or (0, 0.0)
            metrics.OUTBOX_DEPTH.set(depth)
            metrics.OUTBOX_AGE.set(float(age))
        if now - self._pruned >= _PRUNE_SECONDS:
            deleted = connection.execute(_PRUNE, (_PRUNE_ROWS,)).rowcount
            if deleted < _PRUNE_ROWS:
                self._pruned = now


def _await_notification(connection: psycopg.Connection[Any]) -> None:
    """Return when a row was inserted, or after the poll interval."""
    for _ in connection.notifies(timeout=POLL_SECONDS, stop_after=1):
        pass


def _scalar(connection: psycopg.Connection[Any], statement: str, parameters: tuple[Any, ...]) -> Any:
    row = connection.execute(statement.encode(), parameters).fetchone()
    return row[0] if row else None
