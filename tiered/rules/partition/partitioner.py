"""Which partition a record goes to, chosen as the Java client does by default.

Owns the choice alone: equal keys must go where every other client of the topic sends them, or their order is
lost. Never knows which partitions have leaders.
"""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK_32 = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The 32-bit MurmurHash2 of `key` as a signed number, with the seed that Kafka's clients agree on."""
    length = len(key)
    h = _SEED ^ length
    tail = length & ~3
    for at in range(0, tail, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK_32
        k = (k ^ k >> 24) * _M & _MASK_32
        h = (h * _M & _MASK_32) ^ k
    if tail < length:
        h = (h ^ int.from_bytes(key[tail:], "little")) * _M & _MASK_32
    h = (h ^ h >> 13) * _M & _MASK_32
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a record with this key, 0 to `partition_count` - 1. An empty key is a key."""
    assert partition_count > 0
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def next_partition(partition: int, partition_count: int) -> int:
    """Where records without a key go once a batch for `partition` is full: each batch to one partition, in turn."""
    assert partition_count > 0
    return (partition + 1) % partition_count
