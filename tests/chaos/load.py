"""The events of a plan on their way, and the verdict on what became of them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

from chaos.plan import Plan
from chaos.stand import Stand
from chaos.subjects import GROUP

from offsetzero import DocumentUploaded, Publisher
from offsetzero.clock import SYSTEM
from offsetzero.topics import lag
from support import wait_until


class Load:
    """Publishes a plan's events, in their order, and counts their effects.

    Args:
        plan: which.
        stand: where to, and where the effects are.
    """

    def __init__(self, plan: Plan, stand: Stand) -> None:
        self._plan = plan
        self._stand = stand
        self._publisher = Publisher(stand.settings)
        self._published = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._publisher.close(0)

    def publish(self, count: int) -> None:
        """Have the first `count` events published; returns before the broker has them."""
        for key, sequence in self._plan.events[self._published : count]:
            self._publisher.publish(_event(key, sequence))
            self._published += 1

    def publish_rest(self) -> None:
        """Publish what is left; returns when the broker has all."""
        self.publish(len(self._plan.events))
        assert self._publisher.close(120) == 0

    def handled(self) -> int:
        """Effects until now."""
        return int(self._query("SELECT count(*) FROM effects")[0][0])

    def handled_by(self) -> set[int]:
        """The process ids of members that had effects."""
        return {row[0] for row in self._query("SELECT DISTINCT member FROM effects")}

    def await_effects(self, count: int, deadline: float = 120) -> None:
        """Wait for so many."""
        wait_until(lambda: self.handled() >= count, deadline, what=f"{count} effects", interval=0.1)

    def await_all(self, check: Callable[[], None]) -> None:
        """Wait for an effect of every event, and lag 0 in every partition of every topic of the group."""

        def done() -> bool:
            check()
            return self.handled() >= len(self._plan.events) and not self.behind()

        wait_until(done, 300, what="the effects of all events, and lag 0", interval=0.3)

    def behind(self) -> list[str]:
        """The partitions with a lag."""
        return [f"{one.topic}/{one.partition}: {one.lag}" for one in self._offsets() if one.lag]

    def verdict(self) -> list[str]:
        """What is wrong with what happened: lost, doubled, out of order, retried, dead-lettered."""
        wrong = []
        found: dict[UUID, list[int]] = dict(
            self._query("SELECT key, array_agg(sequence ORDER BY n) FROM effects GROUP BY key")
        )
        for key, expected in self._plan.expected.items():
            if (got := found.pop(key, [])) != expected:
                wrong.append(f"key {key}: {_difference(expected, got)}")
        wrong += [f"key {key}: nobody published it" for key in found]
        attempts = self._query("SELECT DISTINCT attempt FROM effects WHERE attempt <> 1")
        wrong += [f"attempt {attempt}" for (attempt,) in attempts]
        own = [f"{GROUP}.retry-1m", f"{GROUP}.retry-10m", f"{GROUP}.dlq"]
        wrong += [
            f"{one.high} records in {one.topic}/{one.partition}"
            for one in lag.group_offsets(self._stand.settings, GROUP, own)
            if one.high
        ]
        return wrong

    def _offsets(self) -> Sequence[lag.PartitionLag]:
        return lag.group_offsets(self._stand.settings, GROUP)

    def _query(self, sql: str) -> list[Any]:
        with self._stand.connect() as database:  # another one each time: the server may have been killed since
            return database.execute(sql).fetchall()


def _event(key: UUID, sequence: int) -> DocumentUploaded:
    return DocumentUploaded(
        document_id=key,
        tenant_id="acme",
        run_id=uuid4(),
        name="a.pdf",
        content_type="application/pdf",
        uri="file:///nowhere",
        size_bytes=sequence,
        sha256="0" * 64,
        uploaded_at=SYSTEM.now(),
    )


def _difference(expected: Sequence[int], got: Sequence[int]) -> str:
    lost = sorted(set(expected) - set(got))
    doubled = sorted(one for one in set(got) if got.count(one) > 1)
    turned = [(one, after) for one, after in pairwise(got) if after < one]
    return f"{len(expected)} events, {len(got)} effects; lost {lost}, doubled {doubled}, turned round {turned}"
