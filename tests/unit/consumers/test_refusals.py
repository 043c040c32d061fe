"""Which partitions rest because the broker does not take what follows from their failures."""

from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.working.appends import Refusals
from support import ManualClock


def stay_of(records: list[Record]) -> set[OwnedPartition]:
    return {record.owned for record in records}


def two() -> tuple[Record, Record]:
    first, second = (OwnedPartition("documents", "id", number) for number in range(2))
    return Record(first, 0, b"k", b"v", [], 0), Record(second, 0, b"k", b"v", [], 0)


def test_a_partition_rests_until_the_append_is_taken() -> None:
    clock, (one, other) = ManualClock(), two()
    refusals = Refusals("audit", clock)
    refusals.add(one, "audit.dlq", "no such topic")
    clock.advance(5)
    refusals.add(one, "audit.dlq", "no such topic")
    refusals.add(other, "audit.retry-1m", "no answer")
    assert refusals.stays() == stay_of([one, other])
    assert refusals.told() == [
        "audit.dlq has refused what follows from 1 records for 5 s: no such topic",
        "audit.retry-1m has refused what follows from 1 records for 0 s: no answer",
    ]
    refusals.remove(one)
    assert refusals.stays() == stay_of([other])
    refusals.remove(other)
    assert not refusals.stays()
    assert refusals.told() == []


def test_what_was_done_or_revoked_meanwhile_holds_nothing_up() -> None:
    """An append without an answer had landed, its copy was read, and the partition rested for ever."""
    one, other = two()
    refusals = Refusals("audit", ManualClock())
    refusals.add(one, "audit.retry-1m", "no answer")
    refusals.add(other, "audit.retry-1m", "no answer")
    one.done = True
    assert refusals.stays() == stay_of([other])
    other.owned.revoke()
    assert not refusals.stays()


def test_of_appends_to_a_topic_that_refuses_them_one_is_tried_at_a_time() -> None:
    one, other = two()
    refusals = Refusals("audit", ManualClock())
    assert refusals.begin("audit.dlq")
    assert refusals.begin("audit.dlq"), "nothing is known of it yet"
    refusals.add(one, "audit.dlq", "no answer")
    refusals.add(other, "audit.dlq", "no answer")
    refusals.end("audit.dlq")
    refusals.end("audit.dlq")
    assert refusals.begin("audit.dlq")
    assert not refusals.begin("audit.dlq")
    assert refusals.begin("audit.retry-1m"), "another topic"
    refusals.end("audit.dlq")
    assert refusals.begin("audit.dlq")
