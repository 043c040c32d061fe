"""A member of the group: the real `GroupRuntime` on simulated servers, in a simulated process."""

import functools
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from offsetzero.clock import SYSTEM
from offsetzero.consumers.context import BatchContext, Context
from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.resources import Resources
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.consumers.watching.ownership import Shares
from offsetzero.producers import records
from offsetzero.retry.failures import Permanent, Transient
from offsetzero.retry.policy import Tier
from offsetzero.schemas.codec import Codec
from offsetzero.schemas.documents import DocumentDeleted
from offsetzero.schemas.runs import RunCancelled
from offsetzero.settings import Settings
from offsetzero.topics.offsets import Committed
from simulation.admin import SimFacts, committed, topic_id
from simulation.baton import Crashed, Process, Task
from simulation.clock import START, SimClock
from simulation.connection import EFFECT, SimPool
from simulation.consumer import SimConsumer
from simulation.control import SimChannel
from simulation.log import Headers, Place
from simulation.plan import Behaviour, Effects, Kind, Published
from simulation.producer import SimProducer
from simulation.transactions import SimTransactionalProducer
from simulation.world import GROUP, SOURCES, TIERS, World

_RUN = UUID(int=2)


class SimThread:
    """As `threading.Thread`."""

    def __init__(self, world: World, process: Process, run: Callable[[], None], name: str) -> None:
        self._world, self._process, self._run, self._name = world, process, run, name
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._world.baton.spawn(self._process, self._name, self._run)

    def join(self, timeout: float | None = None) -> None:
        baton = self._world.baton
        deadline = None if timeout is None else baton.now + timeout
        while self.is_alive() and (deadline is None or baton.now < deadline):
            baton.pause(0.01)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.finished


class SimResources(Resources):
    """What the runtime takes from outside."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def spawn(self, run: Callable[[], None], name: str) -> Any:
        return SimThread(self._world, self._process, run, name)

    def consumer(self, config: Mapping[str, Any]) -> Any:
        return SimConsumer(self._world, self._process, dict(config))

    def producer(self, **_: Any) -> Any:
        return SimProducer(self._world, self._process)

    def transactional_producer(self, transactional_id: str, seconds: float) -> Any:
        # The id is random: two members must not share one, and equal seeds must have equal ones.
        return SimTransactionalProducer(self._world, self._process, self._process.name, seconds)

    def channel(self, group: str, producer: Any) -> Any:
        return SimChannel(self._world, self._process)

    def committed(self, group: str, places: Sequence[Place]) -> Mapping[Place, Committed]:
        return committed(self._world, places)

    def pool(self, size: int, name: str, schema: str | None = None) -> Any:
        return SimPool(self._world, self._process)

    def facts(
        self,
        group: str,
        topics: Sequence[str],
        latest: Sequence[str],
        connections: Any,
        *,
        hold: bool = False,
        projection: bool = False,
    ) -> Any:
        return SimFacts(self._world, group, topics, latest, connections, hold=hold)

    def ends(self, places: Sequence[Place]) -> Mapping[Place, int]:
        self._world.baton.step()
        return {place: self._world.log[place].end for place in places}

    def short(self, topics: Collection[str]) -> Collection[Place]:
        return ()

    def shares(self, group: str, topics: Collection[str], member_id: str) -> Shares | None:
        self._world.baton.step()
        return self._world.coordinator.shares(member_id)

    def topics(self, group: str, sources: Sequence[str], tiers: Sequence[str]) -> dict[str, str]:
        return {name: topic_id(name) for name in [*sources, *(f"{group}.{tier}" for tier in [*tiers, "redrive"])]}


class SimMember:
    """One process, from its start to its end.

    Args:
        world: where it lives.
        name: no other process had it.
    """

    def __init__(self, world: World, name: str) -> None:
        plan = world.plan
        self.process = Process(name)
        self._world = world
        settings = Settings(
            kafka={"group_protocol": "classic" if plan.classic else "consumer", "partitions": plan.partitions},
            groups={
                "concurrency": plan.concurrency,
                "bulk_concurrency": plan.in_bulk or plan.concurrency,
                "per_tenant": plan.per_tenant,
                "max_in_flight": plan.max_in_flight,
                "max_in_flight_bytes": plan.max_bytes,
                "drain_seconds": 100.0,  # longer than any handler
            },
        )
        self._runtime = GroupRuntime(
            _group(world, self.process),
            settings,
            clock=SimClock(world.baton, self.process),
            dice=random.Random(f"{plan.seed} {name}"),
            resources=SimResources(world, self.process),
        )
        self.stopping = False
        self._thread = world.baton.spawn(self.process, "poll", self._run)

    @property
    def running(self) -> bool:
        """Whether any of its threads is there."""
        return any(not task.finished for task in self.process.tasks)

    def stop(self) -> None:
        """As SIGTERM does."""
        self._world.baton.say(f"{self.process.name} is told to stop")
        self.stopping = True
        self._runtime.stop()

    def kill(self) -> None:
        """As SIGKILL does."""
        world = self._world
        world.baton.say(f"{self.process.name} is killed")
        self.stopping = True
        world.baton.crash(self.process)
        world.baton.after(world.baton.dice.random(), lambda: world.database.forget(self.process))
        if (consumer := world.consumer_of(self.process)) is not None:
            consumer.die()

    def _run(self) -> None:
        baton = self._world.baton
        left = self._runtime.run()
        baton.say(f"{self.process.name} has ended")
        if left:
            baton.fail(f"{self.process.name} ended with handlers at work on {[str(record) for record in left]}")
        if not self.stopping:
            baton.fail(f"{self.process.name} ended by itself")


KINDS: dict[Effects, dict[str, Any]] = {
    Effects.DATABASE: {},
    Effects.LOG: {"database": False},
    Effects.TRANSACTION: {"transactional": True},
}


def _group(world: World, process: Process) -> ConsumerGroup:
    """The group as a user declares it; what its handlers do is in the plan."""
    tiers = [Tier(name, delay) for name, delay in TIERS.items()]
    kind = KINDS[world.plan.effects] | ({"on_dead_letter": "hold"} if world.plan.hold else {})
    group = ConsumerGroup(GROUP, topics=SOURCES, tiers=tiers, timeout=world.plan.timeout, **kind)
    events = world.plan.by_id

    def act(ctx: Context, connection: Any) -> None:
        event_id = ctx.meta.id
        behaviour = events[event_id].behaviour
        if ctx.handled.hop.redrive_no > 0:  # type: ignore[attr-defined]  # an operator has mended what was wrong
            behaviour = Behaviour(Kind.FINE)
        world.baton.check(world.baton.current)
        world.laws.handles(process, event_id)
        world.baton.say(f"handles {event_id}, attempt {ctx.attempt}")
        try:
            if connection is not None:
                connection.execute(EFFECT, (event_id,))
            world.baton.pause(behaviour.seconds)
            if behaviour.kind is Kind.KILLS:
                world.laws.kills(process, event_id)
                world.on_killing(process)
                world.baton.check(world.baton.current)
            if behaviour.kind is Kind.PERMANENT:
                if connection is None:
                    world.laws.ends(event_id, "failed")  # nothing else will say so
                raise Permanent("sender", "simulated")
            if ctx.attempt <= behaviour.times:
                raise Transient("busy", "simulated") if behaviour.kind is Kind.FAILS else ValueError("simulated")
            if connection is None:
                ctx.publish(RunCancelled(run_id=_RUN, tenant_id="t", document_id=_RUN, finished_at=START))
        except Crashed:
            raise
        except Exception as error:
            world.baton.say(f"handler of {event_id} raises {type(error).__name__}")
            raise
        finally:
            world.laws.handled(process, event_id)

    if world.plan.batch:

        @group.batch(DocumentDeleted, size=world.plan.batch)
        def on_many(events: list[DocumentDeleted], ctx: BatchContext) -> None:
            for one in ctx.contexts:
                act(one, ctx.connection)

        return group

    @group.handler(DocumentDeleted)
    def on_deleted(event: DocumentDeleted, ctx: Context) -> None:
        act(ctx, ctx.connection)

    @group.tombstone
    def on_tombstone(key: str | None, ctx: Context) -> None:
        act(ctx, ctx.connection)

    return group


@functools.cache
def _template() -> tuple[bytes, Headers]:
    event = DocumentDeleted(document_id=UUID(int=1), tenant_id="t", deleted_at=SYSTEM.now())
    record = records.build(Codec(), event, {"event_id": "e", "time": SYSTEM.now()})
    return record.value or b"", list(record.headers)


def record_of(event: Published) -> tuple[bytes | None, Headers]:
    """The value and the headers of an event in the log."""
    value, template = _template()
    own = {"ce_id": event.event_id.encode(), "ce_tenantid": event.tenant}
    headers = [(name, own.get(name, given)) for name, given in template]
    if event.behaviour.kind is Kind.POISON:
        return value[:-1], headers
    if event.behaviour.kind is Kind.TOMBSTONE:
        return None, [(name, given) for name, given in headers if name not in ("content-type", "ce_dataschema")]
    return value, headers
