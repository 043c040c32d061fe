"""Offsets of transactions never go back, whatever ended while one was on its way."""

from types import SimpleNamespace
from typing import Any

from offsetzero.clock import SYSTEM
from offsetzero.consumers.reading.transaction_commits import TransactionCommits
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import Append, Refusals
from offsetzero.consumers.working.blame import Handled
from offsetzero.consumers.working.kafka_commits import KafkaCommits
from offsetzero.consumers.working.run import Ending
from offsetzero.topics.names import Names


class Producer:
    """In place of a transactional one: remembers what was committed."""

    def __init__(self) -> None:
        self.appended: list[bytes | None] = []
        self.offsets: list[tuple[str, int, int]] = []

    def begin(self) -> None: ...

    def produce(self, topic: str, **given: Any) -> Any:
        self.appended.append(given["value"])
        return SimpleNamespace(done=lambda: False)

    def send_offsets(self, places: list[Any], metadata: Any, timeout: float) -> None:
        self.offsets += [(place.topic, place.partition, place.offset) for place in places]

    def flush(self, timeout: float) -> int:
        return 0

    def commit(self, timeout: float) -> None: ...


def test_a_stay_that_resumes_behind_a_late_transaction_does_not_take_its_offsets_back() -> None:
    """A sibling was revoked while a transaction was on its way: the partition is read on from before it."""
    producer, commits = Producer(), TransactionCommits("audit", Names(""), SYSTEM)
    consumer: Any = SimpleNamespace(consumer_group_metadata=lambda: "nobody")
    commits.attach(consumer)
    consumer.consumer_group_metadata = lambda: "member"
    commits.refresh(consumer)
    given: Any = producer
    transactions = KafkaCommits(
        "audit", lambda _: given, commits, lambda _: {}, lambda _: (), Names(""), Refusals("audit", SYSTEM), SYSTEM
    )

    def handled(stay: OwnedPartition, offset: int) -> Handled:
        output = Append("out", b"k", str(offset).encode(), [])
        return Handled(Record(stay, offset, b"k", b"v", [], 0), Ending.DONE, [output])

    first = OwnedPartition("documents", "id", 0)
    first.begin(0, None)
    transactions.commit([handled(first, 4), handled(first, 5)])
    first.revoke()
    resumed = OwnedPartition("documents", "id", 0, resume_at=4)
    resumed.begin(4, 2)  # markers of transactions lie between; the facts are older than the commit
    commits.commit(consumer, [resumed])
    assert not transactions.is_behind
    transactions.commit([handled(resumed, 4)])
    transactions.commit([handled(resumed, 5)])
    transactions.commit([handled(resumed, 6)])
    assert producer.appended == [b"4", b"5", b"6"], "each output once"
    assert producer.offsets == [("documents", 0, 6), ("documents", 0, 7)]
