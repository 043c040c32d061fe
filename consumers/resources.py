"""What the runtime takes from outside: clients, connections, threads. A simulation puts its own in their place."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from confluent_kafka import Consumer, IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec

from offsetzero.client_log import LOGGER, watched
from offsetzero.consumers.control.channel import Channel, ControlTopic
from offsetzero.consumers.reading.facts import ClusterFacts, FactsReader
from offsetzero.consumers.watching.ownership import Shares, shares
from offsetzero.errors import TopicError
from offsetzero.producers.log import LogProducer
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.settings import Settings
from offsetzero.store.database import AsyncPool, Pool, async_pool, pool
from offsetzero.store.starts import Place
from offsetzero.topics import cluster, lag, offsets
from offsetzero.topics.admin import ANSWER_SECONDS, client
from offsetzero.topics.catalogue import CONTROL, REDRIVE, SCHEMAS, TOPICS, group_topics
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed


class Thread(Protocol):
    """As much of `threading.Thread` as the runtime uses."""

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...


Spawn: TypeAlias = Callable[[Callable[[], None], str], Thread]
"""Makes a thread of a function and a name; it is not started."""


def spawn(run: Callable[[], None], name: str) -> Thread:
    """A daemon: a handler that never returns must not keep the process from ending."""
    return threading.Thread(target=run, name=name, daemon=True)


class Resources:
    """The real ones.

    Args:
        settings: of this process.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin: AdminClient | None = None

    spawn: Spawn = staticmethod(spawn)

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        """A Kafka consumer; the polling thread owns and closes it."""
        return Consumer(watched({**config}), logger=LOGGER)

    def producer(self, **options: Any) -> LogProducer:
        """A producer; its user closes it."""
        return LogProducer(self._settings, **options)

    def transactional_producer(self, transactional_id: str, seconds: float) -> TransactionalProducer:
        """A producer whose transactions the broker aborts after so long; its user closes it."""
        return TransactionalProducer(self._settings, transactional_id, transaction_timeout=seconds)

    def pool(self, size: int, name: str, schema: str | None = None) -> Pool:
        """Connections to the database, which look for tables in a schema first; its user closes it."""
        return pool(self._settings, size, name=name, schema=schema)

    def async_pool(self, size: int, name: str, schema: str | None = None) -> AsyncPool:
        """The same for async functions; opened and closed in their loop."""
        return async_pool(self._settings, size, name=name, schema=schema)

    def facts(
        self,
        group: str,
        topics: Sequence[str],
        latest: Sequence[str],
        connections: Pool | None,
        *,
        hold: bool = False,
        projection: bool = False,
    ) -> FactsReader:
        """Facts about positions; see `ClusterFacts` for the arguments."""
        return ClusterFacts(self._settings, group, topics, latest, connections, hold=hold, projection=projection)

    def channel(self, group: str, producer: LogProducer) -> Channel:
        """What is said to members of a group; answers go by the producer. Blocks for seconds at most; see `Channel`.

        Raises:
            TopicError: there is no answer.
        """
        return ControlTopic(self._settings, group, producer)

    def committed(self, group: str, places: Sequence[Place]) -> Mapping[Place, Committed]:
        """The committed offsets of a group, once no transaction on them is open. Blocks for seconds at most.

        Raises:
            TopicError: there is no answer.
        """
        return offsets.committed(self._settings, group, places)

    def ends(self, places: Sequence[Place]) -> Mapping[Place, int]:
        """The ends of partitions for one who reads what is committed. Blocks for seconds at most.

        Raises:
            TopicError: there is no answer.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        names, committed = Names(self._settings.kafka.namespace), IsolationLevel.READ_COMMITTED
        return offsets.ends(client(self._settings), names, places, latest, isolation=committed, timeout=ANSWER_SECONDS)

    def short(self, topics: Collection[str]) -> Collection[Place]:
        """Of these topics, the partitions that take no records now for want of replicas. Blocks likewise.

        What the cluster does not tell is taken for well.
        """
        try:
            return cluster.short(self._settings, topics)
        except TopicError:
            return ()

    def shares(self, group: str, topics: Collection[str], member_id: str) -> Shares | None:
        """What the coordinator has given to a member of the group; None if it does not know it. Blocks likewise.

        Raises:
            TopicError: there is no answer.
        """
        if self._admin is None:  # asked again and again: with one client, of the one thread that asks at a time
            self._admin = client(self._settings)
        counts = cluster.partitions(self._settings, self._admin)
        state = lag.group_state(self._settings, group, self._admin)
        return shares(state, member_id, {topic: counts.get(topic, 0) for topic in topics})

    def topics(self, group: str, sources: Sequence[str], tiers: Sequence[str]) -> dict[str, str]:
        """The ids of the group's source, retry and redrive topics; its own are made if missing.

        Raises:
            TopicError: a source is missing, or a topic cannot be used as it is.
        """
        partitions = cluster.partition_count(self._settings, sources)
        own = group_topics(group, partitions, tiers)
        cluster.ensure(self._settings, [*own, *(topic for topic in TOPICS if topic.name in (CONTROL, SCHEMAS))])
        return cluster.topic_ids(self._settings, [*sources, *(f"{group}.{tier}" for tier in [*tiers, REDRIVE])])
