"""In which generation an event counts, and what --force means for a group: both are decided without I/O."""

import hashlib

import pytest
from unit.consumers.test_calls import GROUP, record

from offsetzero.consumers.group import ConsumerGroup
from offsetzero.consumers.projection import Projection
from offsetzero.consumers.record import OwnedPartition, Record
from offsetzero.consumers.replaying.forcing import Forcing, meant
from offsetzero.consumers.working.calls import Call, CallReader
from offsetzero.errors import ConfigurationError
from offsetzero.retry import headers as retry_headers
from offsetzero.retry.failures import FailureClass
from offsetzero.retry.headers import Hop, Origin
from offsetzero.schemas.codec import Codec
from offsetzero.store.amendments import Amendments
from offsetzero.store.forced import Forced, ForcedSpan

SECOND = ForcedSpan(2, "id", 0, 10, 20)
THIRD = ForcedSpan(3, "id", 0, 15, 30, key=b"k")
FOURTH = ForcedSpan(4, "id", 1, 0, 5, event_type="run.failed")
ALL = Forced([SECOND, THIRD, FOURTH])


@pytest.mark.parametrize(
    ("topic_id", "partition", "offset", "key", "event_type", "generation"),
    [
        ("id", 0, 9, b"k", "a", 1),
        ("id", 0, 10, b"k", "a", 2),
        ("id", 0, 15, b"k", "a", 3),  # the last one of two
        ("id", 0, 15, b"other", "a", 2),
        ("id", 0, 20, None, "a", 1),
        ("id", 0, 29, b"k", None, 3),
        ("id", 0, 30, b"k", "a", 1),
        ("made again", 0, 15, b"k", "a", 1),
        ("id", 1, 4, None, "run.failed", 4),
        ("id", 1, 4, None, "run.succeeded", 1),
        ("id", 1, 4, None, None, 1),  # what cannot be read is of no type
        ("id", 2, 4, None, "run.failed", 1),
    ],
)
def test_an_event_counts_in_the_last_generation_that_has_its_record(
    topic_id: str, partition: int, offset: int, key: bytes | None, event_type: str | None, generation: int
) -> None:
    assert ALL.generation_of(topic_id, partition, offset, key, event_type) == generation


def test_a_partition_has_what_concerns_it_or_nothing() -> None:
    assert ALL.of_partition(1) == Forced([FOURTH])
    assert ALL.of_partition(2) is None


def read(one: Record, forced: Forced | None) -> Call:
    one.owned.forced = forced
    return CallReader(GROUP, Codec(), frozenset({"audit.retry-1m"})).read(one)


def test_a_copy_counts_where_the_record_does_that_it_was_made_of() -> None:
    forced = Forced([ForcedSpan(2, "topic-id", 2, 7, 8)])
    first = read(record(None, "document.uploaded"), forced)
    made = record(None, "document.uploaded", "audit.retry-1m")
    hop = Hop(Origin("topic-id", "documents", 2, 7), attempt=2, hop=1, redrive_no=1, timestamp_ms=99)
    stay = OwnedPartition("audit.retry-1m", "another-id", 2)
    copy = Record(stay, 500, made.key, None, retry_headers.write(made.headers, hop, None, "audit"), 99)
    again = read(copy, forced)
    assert (first.generation, again.generation, again.identity.redrive_no) == (2, 2, 1)
    assert first.idempotency_key != read(record(None, "document.uploaded"), None).idempotency_key
    assert read(record(None, "document.uploaded"), Forced([ForcedSpan(2, "topic-id", 2, 8, 9)])).generation == 1
    assert (first.known_as, again.known_as) == (1, 1), "its topics and its holds are those of the group"


def test_what_an_operator_has_discarded_stays_so_in_a_generation_that_reads_it_again() -> None:
    decided = Amendments({}, hashlib.sha256(b"2:/s1").digest()[:16])
    again = read(record(b"x", "document.uploaded"), Forced([ForcedSpan(2, "topic-id", 2, 7, 8)], decided))
    assert again.failure is not None
    assert again.failure.failure_class is FailureClass.DISCARDED
    before = read(record(b"x", "document.uploaded"), Forced([ForcedSpan(2, "topic-id", 2, 8, 9)], decided))
    assert before.failure is not None
    assert before.failure.failure_class is FailureClass.POISON


def test_force_makes_a_projection_anew_opens_a_generation_of_others_and_is_refused_where_it_means_nothing() -> None:
    projection = ConsumerGroup("names", projection=Projection("CREATE TABLE names ()"))
    assert meant(projection, whole=True) is Forcing.REBUILD
    with pytest.raises(ConfigurationError, match="cannot have a part of it twice"):
        meant(projection, whole=False)
    for whole in (True, False):
        assert meant(ConsumerGroup("mails"), whole=whole) is Forcing.GENERATION
        with pytest.raises(ConfigurationError, match="keeps no outcomes"):
            meant(ConsumerGroup("mails", database=False), whole=whole)
