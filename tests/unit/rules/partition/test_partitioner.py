"""Keys go where the Java client sends them: its hash, held to its own published test vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.partition.partitioner import murmur2, next_partition, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_java_clients(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@pytest.mark.parametrize("key", [b"", b"a", b"\xff\xfe\xfd", bytes(range(256)), "grüße".encode()])
@pytest.mark.parametrize("partition_count", [1, 2, 7, 50])
def test_keys_go_where_another_client_sends_them(key: bytes, partition_count: int) -> None:
    from kafka.partitioner.default import murmur2 as reference

    assert partition_for_key(key, partition_count) == (reference(key) & 0x7FFFFFFF) % partition_count


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_every_key_has_a_partition_that_exists(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_for_key(key, partition_count) < partition_count


def test_records_without_key_visit_every_partition_in_turn() -> None:
    visited, partition = [], 2
    for _ in range(4):
        partition = next_partition(partition, 4)
        visited.append(partition)
    assert visited == [3, 0, 1, 2]
