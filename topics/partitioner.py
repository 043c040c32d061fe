"""Where a key is: the partition that murmur2 gives it, as every producer of ours, and Java's, has it."""

_M, _SEED, _R = 0x5BD1E995, 0x9747B28C, 24
_32 = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key's records (`BuiltInPartitioner.partitionForKey` of Kafka's Java client).

    Args:
        key: as it is in the record.
        partitions: how many the topic has.
    """
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    whole = len(data) // 4 * 4
    found = _SEED ^ len(data)
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _32
        word = (word ^ word >> _R) * _M & _32
        found = found * _M & _32 ^ word
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * _M & _32
    found = (found ^ found >> 13) * _M & _32
    return found ^ found >> 15
