"""Stands for Kafka's transactions: the coordinator's part, and `offsetzero.producers.transactions` on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from offsetzero.producers.transactions import AbortRequired, ProducerLost, TransactionError, Unsettled
from simulation.faults import Answer
from simulation.producer import SimProducer

if TYPE_CHECKING:
    from simulation.baton import Process
    from simulation.group import Committed
    from simulation.log import Place, Stored
    from simulation.world import World


class State(Enum):
    """Where a transaction is."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(eq=False)
class Transaction:
    """Records that nobody reads yet, and offsets that are not committed yet."""

    member: str
    state: State = State.OPEN
    failed: bool = False  # a record of it was given up
    records: list[Stored] = field(default_factory=list)
    offsets: dict[Place, Committed] = field(default_factory=dict)


class Transactions:
    """The transaction coordinator."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}

    def init(self, name: str) -> int:
        """A producer begins under this id: the one before it is fenced, and what it left open is aborted."""
        if name in self._open:
            self.end(name, commit=False)
        self._epochs[name] = self._epochs.get(name, 0) + 1
        return self._epochs[name]

    def is_current(self, name: str, epoch: int) -> bool:
        """Whether no other producer has begun under the id, and no transaction of this one took too long."""
        return self._epochs[name] == epoch

    def begin(self, name: str, member: str, seconds: float) -> Transaction:
        """Open one; it is aborted when it takes longer than that."""
        transaction = self._open[name] = Transaction(member)

        def expire() -> None:
            if transaction.state is State.OPEN:
                self.init(name)

        self._world.baton.after(seconds, expire)
        return transaction

    def has_pending(self, places: list[Place]) -> bool:
        """Whether an open transaction has offsets for one of these: which will be committed is not known yet."""
        return any(place in one.offsets for one in self._open.values() for place in places)

    def end(self, name: str, *, commit: bool) -> None:
        """Write the markers: all of it becomes visible, or nothing."""
        world, transaction = self._world, self._open.pop(name)
        transaction.state = State.COMMITTED if commit else State.ABORTED
        places = {(record.topic, record.partition) for record in transaction.records}
        for place in sorted(places):
            world.log[place].settle(transaction, keep=commit)
        world.baton.say(f"transaction of {transaction.member} is {transaction.state.name.lower()}")
        if commit:
            for record in transaction.records:
                world.laws.landed(record)
            world.coordinator.store(transaction.member, transaction.offsets)


class SimTransactionalProducer(SimProducer):
    """As `offsetzero.producers.transactions.TransactionalProducer`."""

    def __init__(self, world: World, process: Process, name: str, seconds: float) -> None:
        super().__init__(world, process)
        self._name = name
        self._seconds = seconds
        self._now: Transaction | None = None
        self._call("init")
        self._epoch = world.transactions.init(name)

    def begin(self) -> None:
        self._check()
        self._now = self._world.transactions.begin(self._name, self._process.name, self._seconds)

    def send_offsets(self, positions: list[TopicPartition], group_metadata: Any, timeout: float) -> None:
        answer = self._call("send offsets")
        transaction = self._check()
        if not self._world.coordinator.accepts(group_metadata):
            raise AbortRequired("send offsets: this member is not, or no longer, what it says")
        transaction.offsets |= {(one.topic, one.partition): (one.offset, one.metadata or "") for one in positions}
        self._answered("send offsets", answer)

    def commit(self, timeout: float) -> None:
        if self.flush(timeout):
            raise Unsettled("commit: records are under way")
        answer = self._call("commit")
        if self._now is not None and self._now.state is State.COMMITTED:
            return
        if self._check().failed:
            raise AbortRequired("commit: a record has failed")
        self._world.transactions.end(self._name, commit=True)
        self._answered("commit", answer)

    def abort(self, timeout: float) -> None:
        self.purge()
        answer = self._call("abort")
        if self._now is not None and self._now.state is State.ABORTED:
            return
        if self._check().state is State.COMMITTED:
            raise TransactionError("abort: its commit is unsettled")
        self._world.transactions.end(self._name, commit=False)
        self._answered("abort", answer)

    def close(self, timeout: float = 30.0, **_: Any) -> int:
        if self._now is not None and self._now.state is State.OPEN and self._is_current:
            self._world.transactions.end(self._name, commit=False)
        return super().close(0)

    @property
    def _is_current(self) -> bool:
        return self._world.transactions.is_current(self._name, self._epoch)

    def _put_into(self) -> Callable[[Stored], bool]:
        transaction = self._now

        def put(record: Stored) -> bool:
            if transaction is None or transaction.state is not State.OPEN:
                return False
            self._world.log[record.topic, record.partition].hold(transaction, record)
            transaction.records.append(record)
            return True

        return put

    def _given_up(self) -> None:
        if self._now is not None:
            self._now.failed = True

    def _check(self) -> Transaction:
        """The open transaction; what is asked of a new producer is only whether it is fenced."""
        if not self._is_current:
            raise ProducerLost("another producer has begun under this id, or the transaction took too long")
        return self._now or Transaction(self._process.name)

    def _call(self, what: str) -> Answer:
        self._baton.step()
        answer = self._world.faults.answer("append")
        if answer is Answer.LOST:
            raise Unsettled(f"{what}: no answer")
        return answer

    def _answered(self, what: str, answer: Answer) -> None:
        self._baton.step()
        if answer is not Answer.OK:
            raise Unsettled(f"{what}: no answer")
