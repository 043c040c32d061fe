"""One member of a consumer group: puts the parts together, runs them, ends them in order."""

import contextlib
import random
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from offsetzero import logs
from offsetzero.clock import SYSTEM, Clock
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.projection import open_generation
from offsetzero.consumers.reading.commits import Commits
from offsetzero.consumers.reading.handed import AHEAD
from offsetzero.consumers.reading.opening import Opening
from offsetzero.consumers.reading.poll import PollLoop
from offsetzero.consumers.reading.transaction_commits import TransactionCommits
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.resources import Resources
from offsetzero.consumers.watching.asking import DatabasePulse
from offsetzero.consumers.watching.health import Health, Phase, health
from offsetzero.consumers.watching.pointer import PointerWatch
from offsetzero.consumers.watching.watcher import Limits, Member, Sight, Watcher
from offsetzero.consumers.working.amended import Amended
from offsetzero.consumers.working.appends import Appender, Refusals
from offsetzero.consumers.working.calls import CallReader, lookup_outside_loops
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.lanes import KeyLanes
from offsetzero.consumers.working.making import MAX_THREADS, Maker
from offsetzero.consumers.working.parking import Parking
from offsetzero.consumers.working.partition_lanes import PartitionLanes
from offsetzero.consumers.working.settle import Settler
from offsetzero.consumers.working.standing import Fence, GenerationFence
from offsetzero.consumers.working.steps import Lessee
from offsetzero.consumers.working.transactional import MAX_RECORDS, OutputAppender, Outputs
from offsetzero.consumers.working.waiting import Waiting
from offsetzero.consumers.working.workers import Workers
from offsetzero.errors import ConfigurationError, GroupStopped
from offsetzero.generation import Generation
from offsetzero.producers.log import ANY_SIZE, LogProducer
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.event import event_class
from offsetzero.settings import Settings
from offsetzero.store.database import Pool
from offsetzero.topics.catalogue import REDRIVE
from offsetzero.topics.names import Names
from offsetzero.topics.schema_log import SchemaLog

APPEND_SECONDS = 30.0  # for the broker's acknowledgement; then it is tried again
FLUSH_SECONDS = 5.0  # for what is on its way when the drain time is over
MAX_SESSIONS = 46  # characters of a group's name in that of its sessions, of which PostgreSQL keeps 63
SETUP_LOCK = 0x6F7A_0002  # "oz", 2: one group's set-up at a time in a database

log = logs.get(__name__)


class Loop(Member, Protocol):
    """What the polling thread does; see `PollLoop`."""

    def subscribe(self) -> None: ...

    def rest(self, stays: frozenset[OwnedPartition]) -> None: ...

    def turn(self) -> None: ...

    def drain(self, seconds: float, meanwhile: Callable[[], None]) -> list[Record]: ...

    def close(self) -> None: ...


class GroupRuntime:
    """Runs a consumer group in this process until it is told to stop.

    Args:
        group: the declaration.
        settings: of this process; Kafka and the database must be named.
        clock: the clocks of this machine unless a test says otherwise.
        dice: for jitter.
        resources: clients, connections and threads; the real ones unless a simulation brings its own.
        generation: of a projection, which one; by default the one that is read when `run` begins.

    Raises:
        ConfigurationError: the declaration cannot work.
        SchemaError: a handled event has no Avro form.
    """

    _follows = True  # what comes after what is in the log now

    def __init__(
        self,
        group: ConsumerGroup,
        settings: Settings,
        *,
        clock: Clock = SYSTEM,
        dice: random.Random | None = None,
        resources: Resources | None = None,
        generation: int | None = None,
    ) -> None:
        self.name = group.name
        self._group = group
        self._settings = settings
        self._clock = clock
        self._resources = resources or Resources(settings)
        self._dice = dice or random.Random()  # noqa: S311 - jitter is no secret
        self._names = Names(settings.kafka.namespace)
        self._sources = group.topics()
        self._policy = group.policy(settings)
        self._number = generation
        self._generation = Generation(group.name)
        self._fence = Fence()
        self._lessee: Lessee | None = None
        self._sessions = ""
        self._amended = Amended(group.name)
        if generation is not None and group.projection is None:
            raise ConfigurationError(f"group {group.name}: it is no projection, so it has no generations")
        self.started = threading.Event()
        """Set once the group's topics exist and it has been asked to join."""
        self.moved_to: int | None = None
        """The generation that is read, once that is another one; then `run` ends, as after `stop`."""
        self._stopping = threading.Event()
        self._crash: BaseException | None = None
        self._fatal: BaseException | None = None
        self._phase = Phase.STARTING
        self._watcher: Watcher | None = None
        self._dispatcher: Dispatcher | None = None
        self._refusals = Refusals(group.name, clock)
        self._waiting: Waiting | None = None
        self._pulse: DatabasePulse | None = None
        self._schemas = SchemaLog(settings)
        self._codec = Codec(lookup_outside_loops(self._schemas.find))
        for event_type in group.routes:
            if (event := event_class(event_type)) is not None:
                self._codec.schema(event)  # a model without an Avro form is found here, not at its first record

    @property
    def known_as(self) -> str:
        """What Kafka and the metrics know its generation by, once it runs."""
        return self._generation.name

    def stop(self) -> None:
        """Ask `run` to end; any thread or signal handler may call this."""
        self._stopping.set()

    def health(self) -> Health:
        """How this member is; any thread may ask."""
        watcher, error = self._watcher, self._fatal or self._crash
        if watcher is None:
            return health(self._group.name, self._phase, Sight(), 0.0, error, ())
        silent = self._clock.monotonic() - watcher.turned_at
        waiting, pulse = self._waiting, self._pulse
        degraded = [*self._refusals.told()]
        degraded += [*(waiting.told() if waiting is not None else ()), *(pulse.told() if pulse is not None else ())]
        providers = waiting.shown() if waiting is not None else {}
        return health(self._group.name, self._phase, watcher.sight, silent, error, degraded, providers)

    def stands(self) -> list[tuple[str, int, int, int]] | None:
        """Of each source partition that this member has: up to where it is done, and where its log ends.

        None while that is not known of all; any thread may ask.
        """
        parts = self._watcher.sight.parts if self._watcher is not None else ()
        found = []
        for part in parts:
            if part.topic in self._retries:
                continue
            if part.position is None or part.end is None:
                return None
            done = part.head.offset if part.head is not None else part.position
            found.append((part.topic, part.partition, done, part.end))
        return found or None

    def running(self) -> int:
        """How many handlers run now."""
        return self._dispatcher.running if self._dispatcher is not None else 0

    def run(self) -> list[Record]:
        """Work until `stop`, then finish what runs within the drain time, commit and leave the group.

        Returns:
            The records whose handlers did not end in time; they will be read again, with no attempt counted.

        Raises:
            GroupStopped: the group cannot go on without an operator.
            TopicError: source topics are missing.
        """
        try:
            return self._run()
        except BaseException as error:
            self._fatal = error
            raise
        finally:
            self._phase = Phase.STOPPED

    def _run(self) -> list[Record]:
        settings, group, resources = self._settings, self._group, self._resources
        self._begin_generation()
        name, schema = self._generation.name, self._generation.schema if group.projection else None
        longest = group.longest(settings)
        self._sessions = name
        if longest is not None:  # the sessions of this process can be told from those of others, and be ended
            self._sessions = f"{name[:MAX_SESSIONS]}-{secrets.token_hex(8)}"
            self._lessee = Lessee(group.name, name, self._sessions, longest)
        tiers = [tier.name for tier in self._policy.tiers]
        self._retries = [f"{name}.{tier}" for tier in [*tiers, REDRIVE]]
        topic_ids = resources.topics(name, self._sources, tiers)
        concurrency = group.concurrency(settings)
        with contextlib.ExitStack() as stack:
            producer = stack.enter_context(
                resources.producer(linger=0.001, delivery_timeout=APPEND_SECONDS, more=ANY_SIZE)
            )
            connections: Pool | None = None
            if group.database:
                connections = stack.enter_context(
                    resources.pool(min(concurrency, MAX_THREADS) + 2, self._sessions, schema)
                )
                self._set_up(connections)
            dispatcher = self._dispatcher = self._make_dispatcher()
            commits = TransactionCommits(name, self._names, self._clock) if group.transactional else None
            loop = self._make_loop(topic_ids, dispatcher, producer, connections, commits)
            waiting = self._waiting = Waiting(
                group,
                settings.providers,
                connections,
                self._clock,
                resources.spawn,
                self._crashed,
                self._fence,
                self._lessee,
            )
            workers = self._workers(dispatcher, producer, connections, commits, waiting)
            if group.projection is not None and connections is not None:
                watch = PointerWatch(
                    group,
                    self._generation,
                    self._amended,
                    connections,
                    settings.source,
                    self._clock,
                    resources.spawn,
                    self._moved,
                    self._crashed,
                )
                watch.start()
                stack.callback(watch.close)  # before its connections
            if connections is not None:
                self._pulse = DatabasePulse(connections.ask, resources.spawn, self._clock)
            watcher = self._watcher = Watcher(
                name,
                [*self._sources, *self._retries],
                loop,
                dispatcher,
                workers,
                concurrency,
                Limits(group.timeout, longest),
                settings.groups,
                self._clock,
                resources,
                self._pulse,
            )
            dispatcher.on_runnable(workers.wake)
            workers.start()
            try:
                loop.subscribe()
                self._phase = Phase.WORKING
                self.started.set()
                log.info("group started", group=name, topics=self._sources, concurrency=concurrency)
                while not self._stopping.is_set():
                    loop.rest(self._refusals.stays())
                    loop.turn()
                    watcher.turn()
                    if producer.fatal is not None:
                        raise GroupStopped(f"group {group.name}: the producer failed for good: {producer.fatal}")
                self._phase = Phase.DRAINING
                left = loop.drain(settings.groups.drain_seconds, watcher.turn)
            finally:
                self._stopping.set()
                dispatcher.close()
                waiting.close()
                # Appends that the broker does not take are given up: their records are undone, and read again.
                producer.close(FLUSH_SECONDS, patience=FLUSH_SECONDS / 2)
                loop.close()
                workers.join()
                self._schemas.close()
        if isinstance(self._crash, GroupStopped):
            raise self._crash
        if self._crash is not None:
            raise GroupStopped(f"group {group.name}: the runtime failed: {self._crash!r}") from self._crash
        log.info("group stopped", group=group.name, unfinished=[str(record) for record in left])
        return left

    def _make_loop(
        self,
        topic_ids: Mapping[str, str],
        dispatcher: Dispatcher,
        producer: LogProducer,
        connections: Pool | None,
        commits: Commits | None,
    ) -> Loop:
        """What the polling thread does."""
        settings, group, resources = self._settings, self._group, self._resources
        generation = self._generation.name
        return PollLoop(
            self._config(),
            {name: topic_ids[name] for name in self._sources},
            {name: topic_ids[name] for name in self._retries},
            generation,
            self._names,
            dispatcher,
            settings.groups,
            self._clock,
            producer.purge,
            resources.consumer,
            Opening(
                resources.facts(
                    generation,
                    [*self._sources, *self._retries],
                    self._sources if group.start == "latest" else (),
                    connections,
                    hold=group.on_dead_letter == "hold",
                    projection=group.projection is not None,
                ),
                generation,
                self._clock,
                resources.spawn,
            ),
            Parking(generation, self._retries[0], producer, self._names, self._clock, self._refusals),
            resources.channel(generation, producer),
            commits,
            in_order=group.transactional,
        )

    def _begin_generation(self) -> None:
        """Find out which generation this member works for; the first of a new projection is made."""
        group = self._group
        if group.projection is None:
            return
        with self._resources.pool(1, group.name) as connections, connections.connection() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (SETUP_LOCK,))
            extra = group.projection.by_settings(self._settings)
            self._generation = open_generation(
                connection, group.name, group.projection, self._number, extra, follows=self._follows
            )
            # Also for the first: it may be read again after operators have decided about letters of a later one.
            self._amended.look(connection)
        self._fence = GenerationFence(self._generation, self._crashed)

    def _moved(self, number: int) -> None:
        if self._number is None:  # else it was asked to work for this one
            self.moved_to = number
            self._stopping.set()

    def _make_dispatcher(self) -> Dispatcher:
        group = self._group
        if group.transactional:
            return Dispatcher(self._clock, PartitionLanes(), MAX_RECORDS, whole=False)
        lanes = KeyLanes(group.per_key, group.limits(self._settings))
        size = group.batched.size if group.batched else 0
        return Dispatcher(self._clock, lanes, size, ordered=group.keeps_order)

    def _set_up(self, connections: Pool) -> None:
        if self._group.on_setup is not None:
            with connections.connection() as connection:
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (SETUP_LOCK,))
                self._group.on_setup(connection)

    def _config(self) -> dict[str, Any]:
        kafka = self._settings.kafka
        return {
            **kafka.client_config(),
            "group.id": self._names.group(self._generation.name),
            "group.protocol": kafka.group_protocol,
            "client.id": f"offsetzero-{self._generation.name}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # never skip, never read again: see offsetzero.consumers.reading.positions
            "isolation.level": "read_committed",
            "enable.partition.eof": True,  # tells the position past transaction markers, where no record is
            "fetch.wait.max.ms": 50,
            **AHEAD,
        }

    def _workers(
        self,
        dispatcher: Dispatcher,
        producer: LogProducer,
        connections: Pool | None,
        commits: TransactionCommits | None,
        waiting: Waiting,
    ) -> Workers:
        settings, group, resources = self._settings, self._group, self._resources
        generation, fence = self._generation, self._fence
        retries = frozenset(self._retries)
        reader = CallReader(group, self._codec, retries, self._clock, generation.number, self._amended)
        outputs, refusals = Outputs(), self._refusals
        appender = OutputAppender(outputs) if group.transactional else Appender(producer, self._names, refusals)
        settler = Settler(
            group,
            self._policy,
            appender,
            connections,
            settings.source,
            self._clock,
            self._dice,
            name=generation.name,
            fence=fence,
            lessee=self._lessee,
        )
        names, clock = self._names, self._clock
        maker = Maker(
            group,
            settings,
            reader,
            settler,
            clock,
            names,
            producer,
            connections,
            waiting,
            generation,
            fence,
            self._sessions,
            self._lessee,
        )
        if commits is not None:
            return maker.transactional(dispatcher, resources, commits, outputs, refusals, self._crashed)
        concurrency = group.concurrency(settings)
        if group.is_async:
            return maker.loop(dispatcher, concurrency, resources, self._crashed)
        return maker.threads(dispatcher, concurrency, resources, self._crashed)

    def _crashed(self, error: BaseException) -> None:
        """A worker died of an error of ours: end the process rather than stall in silence."""
        log.error("worker crashed", group=self._group.name, exc_info=error)
        self._crash = error
        self._stopping.set()
