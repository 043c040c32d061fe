"""The facts about a group's partitions, from the cluster and the database. Blocks: for a thread that may wait."""

import secrets
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from confluent_kafka.admin import AdminClient, OffsetSpec

from offsetzero.consumers.reading import positions
from offsetzero.consumers.reading.positions import Facts
from offsetzero.errors import TopicError
from offsetzero.generation import Generation
from offsetzero.settings import Settings
from offsetzero.store import forced, holds, starts
from offsetzero.store import positions as kept
from offsetzero.store.database import Pool
from offsetzero.store.forced import Forced
from offsetzero.store.holds import Hold
from offsetzero.store.positions import Position
from offsetzero.store.script import run
from offsetzero.store.starts import Place, Start
from offsetzero.topics import offsets
from offsetzero.topics.admin import client
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed

KAFKA_SECONDS = 5.0  # for one request
POOL_SECONDS = 2.0  # for a connection


class FactsReader(Protocol):
    """Where facts come from. Every call blocks for seconds at most, and is made by one thread.

    A cluster or a database that is away is an error that `Opening` waits out.
    """

    def read(self, places: Sequence[Place]) -> Mapping[Place, Facts]:
        """The facts of these partitions; what is not recorded of their beginning is recorded."""
        ...

    def topic_ids(self) -> Mapping[str, str]:
        """The ids of those of the group's topics that exist."""
        ...

    def confirm(self, places: Sequence[Place]) -> None:
        """Record that Kafka holds a committed offset of these."""
        ...

    def enter(self, places: Sequence[Place]) -> str:
        """Record that this member begins to read these; returns a name of that stay, empty without a database."""
        ...

    def keep(self, positions: Mapping[Place, Position]) -> None:
        """Record how far these are; called only where `Facts.kept` is given."""
        ...

    def put(self, positions: Mapping[Place, Position]) -> None:
        """Record where these are to be read from, forwards or back; as `keep`."""
        ...


class ClusterFacts:
    """The facts of a real cluster and a real database.

    Args:
        settings: name the cluster.
        group: the name of the group's generation.
        topics: its source and retry topics, by our names.
        latest: those of the sources that a new group begins to read at the latest record.
        connections: to the database; None for a group without one.
        hold: whether dead letters hold up their keys.
        projection: whether the group keeps its positions in the database.
    """

    def __init__(
        self,
        settings: Settings,
        group: str,
        topics: Sequence[str],
        latest: Sequence[str],
        connections: Pool | None,
        *,
        hold: bool = False,
        projection: bool = False,
    ) -> None:
        self._settings = settings
        self._group = group
        self._topics = list(topics)
        self._latest = frozenset(latest)
        self._connections = connections
        self._hold = hold
        self._projection = projection
        self._generation = Generation.named(group)
        self._names = Names(settings.kafka.namespace)
        self._admin: AdminClient | None = None

    def read(self, places: Sequence[Place]) -> Mapping[Place, Facts]:
        """See `FactsReader`.

        Raises:
            TopicError: the cluster refuses, or does not answer.
            psycopg.Error, PoolTimeout: the database does.
        """
        known = self._recorded()
        with self._cluster() as admin:
            topics = offsets.describe(admin, self._names, self._topics, timeout=KAFKA_SECONDS)
            every = [(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
            lacking = [place for place in every if place not in known] if self._connections else []
            existing = frozenset(every)
            wanted = {*lacking, *(place for place in places if place in existing)}
            committed = self._committed(every)
            low, high = (
                offsets.ends(admin, self._names, wanted, spec, timeout=KAFKA_SECONDS)
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
            )
        # After the offsets, for who moves them, or commits one, has written these before: a partition that is read from
        # where a forced replay begins is read with what was opened for it, and behind a dead letter with its hold.
        opened, held = self._forced(), self._held({number for _, number in places})
        facts = {place: Facts(None) for place in places}
        for place in wanted:
            known_at, topic_id = committed.get(place), topics[place[0]].id
            facts[place] = Facts(
                topic_id,
                low[place],
                high[place],
                known_at.offset if known_at else None,
                known_at.topic_id if known_at else "",
                known.get(place),
                known_at.left if known_at else "",
                holds=[one for one in held if (one.topic_id, one.partition) == (topic_id, place[1])],
                forced=opened.of_partition(place[1]) if opened is not None else None,
            )
        if lacking and self._connections is not None:
            born = positions.births(lacking, known, committed, facts, self._latest)
            with self._connections.connection(POOL_SECONDS) as connection:
                run(connection, starts.add(self._group, born))
                known = run(connection, starts.of_group(self._group))  # another member may have been first
            facts = {place: replace(one, start=known.get(place)) for place, one in facts.items()}
        return self._with_positions(places, facts) if self._projection else facts

    def topic_ids(self) -> Mapping[str, str]:
        """See `FactsReader`.

        Raises:
            TopicError: the cluster refuses, or does not answer.
        """
        with self._cluster() as admin:
            found = offsets.describe(admin, self._names, self._topics, timeout=KAFKA_SECONDS)
        return {name: topic.id for name, topic in found.items()}

    def confirm(self, places: Sequence[Place]) -> None:
        """See `FactsReader`.

        Raises:
            psycopg.Error, PoolTimeout: the database refuses, or does not answer.
        """
        if self._connections is not None:
            with self._connections.connection(POOL_SECONDS) as connection:
                run(connection, starts.confirm(self._group, places))

    def enter(self, places: Sequence[Place]) -> str:
        """See `FactsReader`.

        Raises:
            psycopg.Error, PoolTimeout: the database refuses, or does not answer.
        """
        if self._connections is None:
            return ""
        stay = secrets.token_hex(8)
        with self._connections.connection(POOL_SECONDS) as connection:
            run(connection, starts.enter(self._group, places, stay))
        return stay

    def keep(self, positions: Mapping[Place, Position]) -> None:
        """See `FactsReader`.

        Raises:
            psycopg.Error, PoolTimeout: the database refuses, or does not answer.
        """
        if self._connections is not None:
            with self._connections.connection(POOL_SECONDS) as connection:
                run(connection, kept.keep(self._generation, positions))

    def put(self, positions: Mapping[Place, Position]) -> None:
        """See `FactsReader`.

        Raises:
            psycopg.Error, PoolTimeout: the database refuses, or does not answer.
        """
        if self._connections is not None:
            with self._connections.connection(POOL_SECONDS) as connection:
                run(connection, kept.replace(self._generation, positions))

    def _with_positions(self, places: Sequence[Place], facts: Mapping[Place, Facts]) -> dict[Place, Facts]:
        """With the positions of the database; a partition that has none there gets one."""
        assert self._connections is not None  # noqa: S101 - a projection has a database
        with self._connections.connection(POOL_SECONDS) as connection:
            known = run(connection, kept.of_generation(self._generation))
            found = {place: positions.first_kept(facts[place]) for place in places if place not in known}
            if new := {place: position for place, position in found.items() if position is not None}:
                run(connection, kept.add(self._generation, new))
                known = run(connection, kept.of_generation(self._generation))
        return {place: replace(one, kept=known.get(place)) for place, one in facts.items()}

    def _recorded(self) -> Mapping[Place, Start]:
        if self._connections is None:
            return {}
        with self._connections.connection(POOL_SECONDS) as connection:
            return run(connection, starts.of_group(self._group))

    def _forced(self) -> Forced | None:
        if self._projection or self._connections is None:
            return None
        with self._connections.connection(POOL_SECONDS) as connection:
            return run(connection, forced.of_group(self._generation.group))

    def _held(self, partitions: Collection[int]) -> Sequence[Hold]:
        if not self._hold or self._connections is None:
            return ()
        with self._connections.connection(POOL_SECONDS) as connection:
            return run(connection, holds.of_partitions(self._generation.group, partitions, self._generation.number))

    def _committed(self, places: Iterable[Place]) -> Mapping[Place, Committed]:
        return offsets.committed(self._settings, self._group, places, timeout=KAFKA_SECONDS)

    @contextmanager
    def _cluster(self) -> Generator[AdminClient]:
        """The client; after an error the next question gets another one.

        One that knew the group's coordinator and was idle while the broker was restarted does not connect to it again:
        every later question about the group waits in vain (of the kind of librdkafka#5511).
        """
        if self._admin is None:
            self._admin = client(self._settings)
        try:
            yield self._admin
        except TopicError:
            self._admin = None
            raise
