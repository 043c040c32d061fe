"""Puts the workers of a group together, each kind of group with its own effects."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from offsetzero.clock import Clock
from offsetzero.consumers.context import Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.reading.transaction_commits import TransactionCommits
from offsetzero.consumers.resources import Resources
from offsetzero.consumers.working.appends import Refusals
from offsetzero.consumers.working.batches import BatchHandling
from offsetzero.consumers.working.calls import Call, CallReader
from offsetzero.consumers.working.database import DatabaseEffects
from offsetzero.consumers.working.dispatch import Dispatcher
from offsetzero.consumers.working.effects import AtLeastOnce, Effects, Threads
from offsetzero.consumers.working.handling import AsyncHandling, Handling, Parts
from offsetzero.consumers.working.kafka_commits import KafkaCommits
from offsetzero.consumers.working.kafka_transaction import TRANSACTION_SECONDS
from offsetzero.consumers.working.loop_workers import LoopWorkers
from offsetzero.consumers.working.settle import Settler
from offsetzero.consumers.working.standing import Fence
from offsetzero.consumers.working.steps import Lessee
from offsetzero.consumers.working.tally import Tally
from offsetzero.consumers.working.transactional import OutputEffects, Outputs, TransactionHandling, TransactionWorkers
from offsetzero.consumers.working.waiting import Waiting
from offsetzero.consumers.working.workers import ThreadWorkers
from offsetzero.generation import Generation
from offsetzero.producers.log import LogProducer
from offsetzero.producers.transactions import TransactionalProducer
from offsetzero.schemas.ids import uuid7
from offsetzero.settings import Settings
from offsetzero.store.database import AsyncPool, Pool
from offsetzero.store.starts import Place
from offsetzero.topics.names import Names
from offsetzero.topics.offsets import Committed

MAX_THREADS = 32  # for the sync parts of an async group


class Maker:
    """Has what all workers of a group share.

    Args:
        group: the declaration.
        settings: given to handlers.
        reader: reads records.
        settler: carries out what follows from a failure.
        clock: for how long handlings take.
        names: topic names on the cluster.
        producer: of this group.
        pool: connections for sync functions; None in a group without a database.
        waiting: of those that wait for a provider.
        generation: of the group.
        fence: what its transactions have besides.
        sessions: the name of its connections.
        lessee: as the group's step of runs is leased; None for a group that is no step.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        settings: Settings,
        reader: CallReader,
        settler: Settler,
        clock: Clock,
        names: Names,
        producer: LogProducer,
        pool: Pool | None,
        waiting: Waiting,
        generation: Generation,
        fence: Fence,
        sessions: str,
        lessee: Lessee | None,
    ) -> None:
        self._group = group
        self._settings = settings
        self._reader = reader
        self._settler = settler
        self._clock = clock
        self._names = names
        self._producer = producer
        self._pool = pool
        self._waiting = waiting
        self._generation = generation
        self._fence = fence
        self._sessions = sessions
        self._lessee = lessee

    def threads(
        self, dispatcher: Dispatcher, count: int, resources: Resources, crashed: Callable[[BaseException], None]
    ) -> ThreadWorkers:
        """Workers of a group whose functions are all sync."""
        settings, pool = self._settings, self._pool
        effects: Effects = (
            DatabaseEffects(self._group, settings, pool, fence=self._fence, lessee=self._lessee)
            if pool is not None
            else AtLeastOnce(self._producer, self._names, settings)
        )

        def handling() -> Handling | BatchHandling:
            if (batch := self._group.batched) is not None:
                return BatchHandling(self._parts(effects), batch, ordered=self._group.keeps_order)
            return Handling(self._parts(effects), dispatcher.release)

        return ThreadWorkers(dispatcher, handling, count, crashed, self._clock, resources.spawn, self._resize)

    def loop(
        self, dispatcher: Dispatcher, count: int, resources: Resources, crashed: Callable[[BaseException], None]
    ) -> LoopWorkers:
        """Workers of a group that has an async function."""
        executor = ThreadPoolExecutor(min(count, MAX_THREADS), thread_name_prefix="handler")
        threads = Threads(executor)
        settings, pool = self._settings, self._pool
        effects: Effects
        opened: Callable[[], Coroutine[Any, Any, None]] = _nothing
        closed: Callable[[], Coroutine[Any, Any, None]] = _nothing
        async_pool: AsyncPool | None = None
        if pool is not None:
            generation, size = self._generation, min(count, MAX_THREADS)
            schema = generation.schema if self._group.projection is not None else None
            async_pool = resources.async_pool(size, self._sessions, schema)
            effects = DatabaseEffects(self._group, settings, pool, async_pool, threads, self._fence, self._lessee)
            opened, closed = async_pool.open, async_pool.close
        else:
            effects = AtLeastOnce(self._producer, self._names, settings, threads)
        handling = AsyncHandling(self._parts(effects), threads, begins_in_loop=pool is None)

        async def resize(by: int) -> None:
            executor._max_workers += by  # looked at by each call of `submit`
            executor.submit(_nothing_more)
            self._resize(by)
            if async_pool is not None:
                await async_pool.resize(async_pool.min_size, async_pool.max_size + by)

        return LoopWorkers(
            dispatcher, handling, count, executor, opened, closed, crashed, self._clock, resources.spawn, resize
        )

    def _resize(self, by: int) -> None:
        if self._pool is not None:
            self._pool.resize(self._pool.min_size, self._pool.max_size + by)

    def transactional(
        self,
        dispatcher: Dispatcher,
        resources: Resources,
        commits: TransactionCommits,
        outputs: Outputs,
        refusals: Refusals,
        crashed: Callable[[BaseException], None],
    ) -> TransactionWorkers:
        """The worker of a Kafka-transactional group; its settler adds to the same outputs."""
        name = f"{self._group.name}-{uuid7()}"  # of this process alone: the group fences, by KIP-447

        def producer(number: int) -> TransactionalProducer:
            return resources.transactional_producer(f"{name}-{number}", TRANSACTION_SECONDS)

        def committed(places: Sequence[Place]) -> Mapping[Place, Committed]:
            return resources.committed(self._group.name, places)

        transactions = KafkaCommits(
            self._group.name, producer, commits, committed, resources.short, self._names, refusals, self._clock
        )
        effects = OutputEffects(outputs, self._producer, self._names, self._settings)
        handling = TransactionHandling(self._parts(effects), outputs, transactions)
        return TransactionWorkers(dispatcher, handling, transactions, commits, crashed, self._clock, resources.spawn)

    def _parts(self, effects: Effects) -> Parts:
        """For one worker, which counts by itself."""
        tally = Tally(self._generation.name)
        return Parts(self._reader, effects, self._settler, self._waiting, self._context, self._clock, tally)

    def _context(self, call: Call) -> Context:
        return Context(call, self._settings, self._pool, self._waiting)


async def _nothing() -> None:
    pass


def _nothing_more() -> None:
    """Submitted for its side effect: a thread more, if there may be one."""
