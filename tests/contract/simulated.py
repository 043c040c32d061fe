"""The contract on the log of the simulation: what is true there is true of Kafka, too, or the seeds prove little."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from contract.harness import RETRY, SOURCE, Headers, Stored

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.record import Record
from offsetzero.consumers.runtime import GroupRuntime
from offsetzero.settings import Settings
from simulation.baton import Baton, Crashed, Process
from simulation.clock import START_MS, SimClock
from simulation.consumer import SimConsumer
from simulation.group import Coordinator
from simulation.laws import Laws
from simulation.log import Stored as SimStored
from simulation.member import SimResources
from simulation.plan import Effects, Plan
from simulation.producer import SimDelivery, SimProducer
from simulation.world import World

T = TypeVar("T")

CUT_SECONDS = 6.0  # the session's time has passed by then


class OwnEvents(Laws):
    """The laws of commits, for events that no plan knows: the tests say which are done, and when."""

    def appends(self, process: Process, record: SimStored) -> None:
        pass

    def landed(self, record: SimStored) -> None:
        pass

    def _is_done(self, record: SimStored) -> bool:
        return True


class SimGate:
    """A flag; who waits for it lets the others run."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._is_open = False

    def wait(self) -> None:
        while not self._is_open:
            self._baton.pause(0.01)

    def open(self) -> None:
        self._is_open = True


class RefusingProducer(SimProducer):
    """The producer; a test can have its appends fail."""

    refuses: Callable[[], bool]

    def produce(self, topic: str, **record: Any) -> SimDelivery:
        if not self.refuses():
            return super().produce(topic, **record)
        delivery = SimDelivery(self._world, topic)
        self._open.append(delivery)
        self._baton.after(0.2, lambda: self._settle(delivery, None))
        return delivery


class TellingConsumer(SimConsumer):
    """The client, which notes that it has lost something."""

    has_lost = False

    def subscribe(self, topics: list[str], *, on_lost: Callable[..., None], **callbacks: Callable[..., None]) -> None:
        def lost(*told: Any) -> None:
            on_lost(*told)
            self.has_lost = True

        super().subscribe(topics, on_lost=lost, **callbacks)


class Resources(SimResources):
    """Of one member."""

    def __init__(self, log: "SimLog", process: Process) -> None:
        super().__init__(log.world, process)
        self._log = log

    def consumer(self, config: Mapping[str, Any]) -> Any:
        return TellingConsumer(self._world, self._process, dict(config))

    def producer(self, **_: Any) -> Any:
        made = RefusingProducer(self._world, self._process)
        made.refuses = lambda: self._log.refuses
        return made


class SimMember:
    """A member, a process of its own.

    Args:
        log: where it lives.
        group: what it runs.
        name: no other process had it.
    """

    def __init__(self, log: "SimLog", group: ConsumerGroup, name: str) -> None:
        self.error: BaseException | None = None
        self.process = Process(name)
        self._log = log
        self._left: list[Record] | None = None
        self._runtime = GroupRuntime(
            group,
            log.settings,
            clock=SimClock(log.world.baton, self.process),
            dice=log.world.baton.dice,
            resources=Resources(log, self.process),
        )
        self._task = log.world.baton.spawn(self.process, "poll", self._run)

    def has_to_give_up(self) -> bool:
        consumer = self._log.world.consumer_of(self.process)
        return consumer is not None and bool(consumer.ending)

    def has_lost(self) -> bool:
        consumer = self._log.world.consumer_of(self.process)
        return isinstance(consumer, TellingConsumer) and consumer.has_lost

    def stop(self) -> list[Record]:
        self._runtime.stop()
        self._log.until(lambda: self._task.finished, "the end of the member")
        if self.error is not None:
            raise self.error
        assert self._left is not None
        return self._left

    def _run(self) -> None:
        try:
            self._left = self._runtime.run()
        except Crashed:
            raise
        except BaseException as error:
            self.error = error


class SimLog:
    """One simulated cluster, on which nothing goes wrong by itself; a test is one of its threads.

    Args:
        seed: which thread runs next.
        classic: whether the group works by the eager protocol.
    """

    has_markers = True
    takes_last_commits = True

    def __init__(self, seed: int, *, classic: bool) -> None:
        pace, partitions, concurrency, in_flight = 0.0005, 4, 4, 5_000
        plan = Plan(
            seed,
            pace,
            partitions,
            classic,
            concurrency,
            in_flight,
            members=0,
            effects=Effects.LOG,
            batch=0,
            timeout=None,
            preempt=False,
        )
        world = self.world = World(plan)
        world.laws = OwnEvents(world)
        world.coordinator = Coordinator(world.baton, world.log, classic=classic, on_commit=world.laws.commits)
        world.faults.calm = True
        world.baton.stalls = False
        self.settings = Settings(kafka={"group_protocol": "classic" if classic else "consumer"})
        self.refuses = False
        self.partitions = plan.partitions
        self._members: list[SimMember] = []

    def play(self, script: Callable[[], None]) -> None:
        ended: list[BaseException] = []
        baton = self.world.baton

        def play() -> None:
            try:
                script()
            except Crashed:
                raise
            except BaseException as error:
                ended.append(error)
            baton.end()

        baton.spawn(Process("test"), "script", play)
        baton.run()
        print("\n".join(baton.trace))  # shown when the test fails
        for error in ended:
            raise error
        assert baton.failure is None, baton.failure

    def until(self, condition: Callable[[], T], what: str) -> T:
        baton = self.world.baton
        deadline = baton.now + 60
        while not (answer := condition()):
            assert baton.now < deadline, f"not within a minute: {what} (last answer: {answer!r})"
            baton.pause(0.02)
        return answer

    def gate(self) -> SimGate:
        return SimGate(self.world.baton)

    def join(self, group: ConsumerGroup) -> SimMember:
        member = SimMember(self, group, f"m{len(self._members)}")
        self._members.append(member)
        return member

    def lose(self, member: SimMember) -> None:
        consumer = self.world.consumer_of(member.process)
        assert consumer is not None
        consumer.cut(CUT_SECONDS)

    def append(self, partition: int, key: str, value: bytes | None, headers: Headers) -> int:
        now_ms = START_MS + round(self.world.baton.now * 1000)
        record = SimStored.of((SOURCE, partition), key.encode(), value, headers, now_ms)
        self.world.log.append(record)
        return record.offset

    def append_in_transaction(self, partition: int, key: str, value: bytes, headers: Headers, *, commit: bool) -> None:
        if commit:
            self.append(partition, key, value, headers)
        self.world.log.skip((SOURCE, partition), 1 if commit else 2)

    def commit(self, partition: int, offset: int) -> None:
        self.world.coordinator.committed[SOURCE, partition] = offset, ""

    def committed(self, partition: int, topic: str = SOURCE) -> int | None:
        found = self.world.coordinator.committed.get((topic, partition))
        return found[0] if found is not None else None

    def behind(self) -> list[str]:
        return [
            f"{topic}/{number}"
            for topic, number in self.world.log.places([SOURCE, RETRY])
            if self.committed(number, topic) != self.world.log[topic, number].end
        ]

    def read(self, topic: str) -> list[Stored]:
        return [
            Stored(one.partition, one.offset, one.key, one.value, dict(one.headers))
            for place in self.world.log.places([topic])
            for one in self.world.log[place].records
        ]

    def close(self) -> None:
        """Nothing is left: the threads have ended with the script."""
