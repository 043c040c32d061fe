"""Where keys are, compared with another client, and with the vectors of Kafka's own test."""

import aiokafka.partitioner
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.topics.partitioner import _murmur2, partition_of


@given(st.binary(max_size=40), st.integers(1, 1_000))
def test_a_key_is_where_another_client_puts_it(key: bytes, count: int) -> None:
    partitions = list(range(count))
    assert partition_of(key, count) == aiokafka.partitioner.DefaultPartitioner()(key, partitions, partitions)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafka(key: bytes, hashed: int) -> None:
    """The vectors of `UtilsTest.testMurmur2` in Apache Kafka."""
    assert _murmur2(key) == hashed & 0xFFFFFFFF
