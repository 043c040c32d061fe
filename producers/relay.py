"""The relay: publishes what services wrote into the outbox, in order for each key, at least once.

Any number of relays share the shards of the outbox (`offsetzero.producers.shards`). One claims the rows of its shards
that are not published (`claims`), sends them (`batches`), and marks them once the broker has acknowledged them.
"""

import threading
from typing import Any

import psycopg

from offsetzero import logs, metrics
from offsetzero.clock import SYSTEM, Clock
from offsetzero.errors import ConfigurationError, PublishError
from offsetzero.producers import claims
from offsetzero.producers.batches import Sender, Sent
from offsetzero.producers.blocked import Blocked
from offsetzero.producers.log import LogProducer
from offsetzero.producers.schema_publisher import SchemaPublisher
from offsetzero.producers.shards import Shards
from offsetzero.producers.waves import Waves
from offsetzero.settings import Settings
from offsetzero.store.availability import is_away
from offsetzero.store.outbox import CHANNEL
from offsetzero.topics.names import Names
from offsetzero.turns import Turns

_log = logs.get(__name__)

POLL_SECONDS = 1.0
"""How often the table is looked at when no notification comes."""
ANSWERS_SECONDS = 0.005
"""How often answers that are to be expected are looked for, when there is nothing to send."""
_BALANCE_SECONDS = 1.0
_DELIVERY_SECONDS = 30.0
_LINGER = 0.001  # measured: 19,000 rows a second of many keys, 550 of one; at 0 5,000 and 1,100, at 0.005 19,000 and 97
_LAST_SECONDS = 2.0  # for answers that are late when it is told to stop
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 5.0
_MEASURE_SECONDS, _MEASURE_MOST = 5.0, 30.0
_SILENT_SECONDS = 90.0  # without a turn: longer than the schemas and a batch may take, one after the other
_PRUNE_SECONDS = 60.0
# After which a claim begins at the beginning: for rows with an `xid` that is not theirs, and an index that has come.
_LOOK_BACK_SECONDS = 60.0
# Times of what one of these takes, at least, between two: a hundred thousand rows that wait are counted in 0.1 s, and a
# million entries that cannot be cleared away looked at in one.
_SELDOM = 50
_SESSION = """
SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
SET synchronous_commit = off;
SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3;
SET idle_session_timeout = '60s'
"""
# The claim goes along its index, whatever was known of the table's size when the statement was planned, and is not
# compiled, which takes ten times as long, when it was thought to have many rows. And the server
# looks after its side, too: a relay whose machine has vanished must not keep its shards, nor one that stands still.
# What that one still sends when it goes on comes twice, and behind nothing that it should precede. And no mark waits
# for the disk: what a crash of the server loses of them is sent once more, as after a crash of the relay.


class Relay:
    """Publishes outbox rows until it is told to stop.

    Without its database or the broker it goes on by itself when they are back. A row that cannot be published holds
    back only the later rows of its key: one that never can be is parked until an operator retries or discards it
    (`offsetzero outbox`), another is tried again with growing pauses.

    Args:
        settings: the database and the cluster.
        clock: for pauses.
    """

    def __init__(self, settings: Settings, *, clock: Clock = SYSTEM) -> None:
        self._settings = settings
        self._clock = clock
        self._blocked = Blocked(clock)
        self._pause = _FIRST_PAUSE
        self._measure_at = self._pruned = self._balanced = float("-inf")
        self._giving = 1
        self._seen: claims.Seen | None = None
        self._look_back_at = float("-inf")
        self._waves = Waves()
        self._turns = Turns("relay", clock, _SILENT_SECONDS)

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether it goes on, working or standing by, and what to show; any thread may ask."""
        return self._turns.health()

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set. Rows in hand are finished first.

        Raises:
            ConfigurationError: the database has no outbox, or that of another version.
        """
        while not stop.is_set():
            self._turns.turn()
            try:
                with self._connect() as connection:
                    self._serve(connection, stop)
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
                raise ConfigurationError("the database has not this outbox; run `offsetzero migrate`") from error
            except psycopg.Error as error:
                if not is_away(error) and not isinstance(error, psycopg.OperationalError):
                    raise
                _log.warning("relay: the database is away; trying again", error=str(error), pause_seconds=self._pause)
            except PublishError as error:
                _log.warning("relay: the broker is away; trying again", error=str(error), pause_seconds=self._pause)
            else:
                continue
            finally:
                metrics.OUTBOX_SHARDS.set(0)  # its session has ended, and others may have them
            stop.wait(self._pause)
            self._pause = min(self._pause * 2, _LAST_PAUSE)

    def _connect(self) -> claims.Connection:
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

    def _serve(self, connection: claims.Connection, stop: threading.Event) -> None:
        """Publish the rows of the shards that this session gets."""
        shards = Shards(connection)
        said = False
        while not shards.join():
            if not said:
                said = True
                _log.info("relay stands by: one of an older version works")
            self._turns.turn()
            if stop.wait(POLL_SECONDS):
                return
        connection.execute(_SESSION)
        connection.execute(f"LISTEN {CHANNEL}")
        self._balanced = self._look_back_at = float("-inf")
        self._seen = None  # ids of transactions may mean nothing here
        with LogProducer(self._settings, delivery_timeout=_DELIVERY_SECONDS, linger=_LINGER) as producer:
            names = Names(self._settings.kafka.namespace)
            schemas = SchemaPublisher(producer, names, timeout=_DELIVERY_SECONDS)
            sender = Sender(producer, self._settings, schemas, self._blocked, self._clock)
            while not stop.is_set():
                self._turns.turn()
                self._balance(connection, shards, sender)
                self._keep_house(connection, shards)
                if forget_notifications(connection):
                    self._waves.heard(self._clock.monotonic())
                seconds = self._publish_batch(connection, sender, shards)
                if seconds > 0 and _await_notification(connection, seconds):
                    self._waves.heard(self._clock.monotonic())
                if producer.fatal is not None:
                    raise PublishError(f"the producer failed for good: {producer.fatal}")
            producer.flush(_LAST_SECONDS)
            sender.collect(late := Sent())
            self._note(connection, late)

    def _publish_batch(self, connection: claims.Connection, sender: Sender, shards: Shards) -> float:
        """Publish what is waiting, up to a wave; returns for how many seconds to rest, unless a row comes.

        Raises:
            PublishError: the broker is away. What it did acknowledge is marked.
        """
        sender.collect(answered := Sent())  # before the claim: the next rows of their keys may go
        self._note(connection, answered)
        if sender.is_full:
            return _idle(sender)
        begun = self._clock.monotonic()
        in_all = self._waves.begin(begun)
        # Few of a shard when many shards have some, many when few do. Not as many as a claim has in all while there are
        # others, in which much may be by now.
        most = max(1, in_all // max(self._giving, len(shards.mine) // 4, 1))
        if looks_back := begun >= self._look_back_at:
            self._seen = claims.Seen() if claims.remembers(connection) else None
        rows, self._seen = claims.claim(connection, self._seen, shards.mine, sender.waiting(), most, in_all)
        self._pause = _FIRST_PAUSE  # it serves again
        self._giving = len({row.shard for row in rows})
        claimed = self._clock.monotonic()
        if looks_back:
            self._look_back_at = claimed + max(_LOOK_BACK_SECONDS, _SELDOM * (claimed - begun))
        self._note(connection, sender.send(rows, max(2 * (claimed - begun), self._waves.send_seconds)))
        ended = self._clock.monotonic()
        rest = self._waves.turned(len(rows), claimed - begun, ended - claimed, ended)
        return rest if rows else _idle(sender)

    def _note(self, connection: claims.Connection, sent: Sent) -> None:
        claims.mark(connection, sent.published)
        for one in sent.refused:
            claims.refuse(connection, one.row, one.error, park=one.park)
        if sent.away is not None:
            raise sent.away

    def _balance(self, connection: claims.Connection, shards: Shards, sender: Sender) -> None:
        """Give and take shards, but for those of which something has no answer for long; all else has its answer."""
        now = self._clock.monotonic()
        if now - self._balanced >= _BALANCE_SECONDS:
            self._balanced = now
            sender.finish(answered := Sent())
            self._note(connection, answered)
            if shards.balance(sender.busy):
                metrics.OUTBOX_SHARDS.set(len(shards.mine))
                _log.info("relay has other shards now", shards=len(shards.mine))

    def _keep_house(self, connection: claims.Connection, shards: Shards) -> None:
        """Measure depth and age, and delete what was published long ago, each at its interval."""
        now = self._clock.monotonic()
        if now >= self._measure_at:
            found = claims.measure(connection, self._seen, shards.mine)
            metrics.OUTBOX_DEPTH.set(found.depth)
            metrics.OUTBOX_PARKED.set(found.parked)
            metrics.OUTBOX_AGE.set(found.oldest)
            ended = self._clock.monotonic()
            self._measure_at = ended + min(max(_SELDOM * (ended - now), _MEASURE_SECONDS), _MEASURE_MOST)
        if now - self._pruned >= _PRUNE_SECONDS and not claims.prune(connection):
            self._pruned = now


def _idle(sender: Sender) -> float:
    """For how many seconds there is nothing to do, unless a row comes."""
    return ANSWERS_SECONDS if sender.is_awaited else POLL_SECONDS


def forget_notifications(connection: claims.Connection) -> bool:
    """Let go of what was notified while nobody waited; returns whether anything was. The rows are claimed next.

    The connection would keep all of it for as long as there is always something to publish.
    """
    return bool(list(connection.notifies(timeout=0)))


def _await_notification(connection: claims.Connection, seconds: float) -> bool:
    """Return when a row was inserted, or after so many seconds; whether one was."""
    return bool(list(connection.notifies(timeout=seconds, stop_after=1)))
