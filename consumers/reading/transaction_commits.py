"""What transactions need of the consumer, which another thread polls: its membership, and its partitions' positions."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer

from offsetzero.clock import Clock
from offsetzero.consumers.reading.commits import Commits
from offsetzero.consumers.record import OwnedPartition
from offsetzero.topics.names import Names


class Left(Exception):
    """This process leaves the group: what is not committed will be read again by others."""


class TransactionCommits(Commits):
    """In the place of `Commits`: nothing is committed but by transactions, in another thread.

    A commit of the consumer's own and one of a transaction take different ways to the coordinator, and the one that
    is written last wins: offsets could go back.

    Args:
        group: for log lines.
        names: of topics on the cluster.
        clock: bounds waits.
    """

    def __init__(self, group: str, names: Names, clock: Clock) -> None:
        super().__init__(group, names, clock, lambda _places: None)
        self.settled: Mapping[OwnedPartition, int] = {}
        """Up to where each partition is done, markers of transactions behind its last record included."""
        self._member: Any = None
        self._nobody: Any = None
        self._guard = threading.Condition()
        self._is_last = self._is_finished = self._has_left = False

    # --- for the polling thread

    def attach(self, consumer: Consumer) -> None:
        """Before it joins the group: then it is known as nobody."""
        self._nobody = self._member = consumer.consumer_group_metadata()

    def refresh(self, consumer: Consumer) -> None:
        """Learn how the group knows this member now.

        Once a round, and not when it is needed: the client lets one thread in at a time, and that is the polling one.
        """
        self._member = consumer.consumer_group_metadata()

    def commit(self, consumer: Consumer, stays: Iterable[OwnedPartition], *, leaving: bool = False) -> None:
        """Let the next transaction commit where these stand."""
        found = ((stay, stay.committable()) for stay in stays)
        kept = {stay: offset for stay, offset in self.settled.items() if stay.active}
        self.settled = kept | {stay: offset for stay, offset in found if offset is not None}

    def commit_now(self, consumer: Consumer, stays: Iterable[OwnedPartition]) -> None:
        """Nothing: what ran was awaited, with its transaction."""

    def catch_up(self, consumer: Consumer, seconds: float) -> bool:
        """At once: what `commit` is told is not sent by this thread."""
        return True

    def settle(self, consumer: Consumer, seconds: float) -> bool:
        """Wait for the last transaction, `seconds` at most; none follows."""
        with self._guard:
            self._is_last = True
            self._guard.notify_all()
            self._clock.wait(self._guard, lambda: self._is_finished, seconds)
            self._has_left = True
            return self._is_finished

    # --- for the thread of the transactions

    def await_last(self) -> None:
        """Wait until `settled` says where everything stands at the end."""
        with self._guard:
            self._clock.wait(self._guard, lambda: self._is_last)

    def finish(self) -> None:
        """No transaction follows."""
        with self._guard:
            self._is_finished = True
            self._guard.notify_all()

    def metadata(self) -> Any:
        """How the group knew this member in the last round; None when it did not, for a while.

        A commit with the metadata of nobody would not be fenced: brokers take it for one of a consumer without group
        management.

        Raises:
            Left: the consumer is about to be closed.
        """
        if self._has_left:
            raise Left
        return None if self._member == self._nobody else self._member
