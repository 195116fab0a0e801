"""Records are sorted into batches that are neither too long nor too large, and none is lost."""

from hypothesis import given
from hypothesis import strategies as st

from tiered.formats.record_batch import Record
from tiered.peer.producer import Gathering
from tiered.rules.partition.partitioner import partition_for_key


def record(value: bytes, key: bytes | None = None) -> Record:
    return Record(offset=0, timestamp_ms=1, key=key, value=value)


def gathering(partitions: int = 3, *, records: int = 4, size_bytes: int = 1000) -> Gathering:
    return Gathering(partitions, max_records=records, max_bytes=size_bytes, sticky=1)


def test_records_without_key_fill_one_batch_and_then_the_next_partitions() -> None:
    gathered = gathering()
    for number in range(12):
        gathered.add(record(b"%d" % number))
    taken = gathered.take(everything=False)
    assert [len(batch.records) for batch in taken] == [4, 4, 4]
    assert sorted(batch.partition for batch in taken) == [0, 1, 2]
    assert [each.offset for each in taken[0].records] == [0, 1, 2, 3]


def test_what_waited_long_enough_goes_before_it_is_full() -> None:
    gathered = gathering()
    gathered.add(record(b"x"))
    assert gathered.take(everything=False) == []
    assert gathered.records == 1
    assert gathered.size_bytes > 1
    assert len(gathered.take(everything=True)) == 1
    assert gathered.records == 0
    assert gathered.take(everything=True) == []


def test_keys_decide_where_records_go() -> None:
    gathered = gathering(7)
    keys = [b"%d" % number for number in range(50)]
    for key in keys:
        gathered.add(record(b"", key))
    taken = gathered.take(everything=True)
    assert all(partition_for_key(each.key or b"", 7) == batch.partition for batch in taken for each in batch.records)
    assert sorted(each.key or b"" for batch in taken for each in batch.records) == sorted(keys)


def test_a_partition_that_was_named_takes_everything() -> None:
    gathered = gathering()
    for key in (None, b"a", b"b"):
        gathered.add(record(b"", key), 2)
    assert [batch.partition for batch in gathered.take(everything=True)] == [2]


@given(st.lists(st.tuples(st.none() | st.binary(max_size=3), st.integers(0, 1500)), max_size=60))
def test_every_record_is_in_one_batch_within_the_bounds(asked: list[tuple[bytes | None, int]]) -> None:
    gathered = gathering()
    for number, (key, size_bytes) in enumerate(asked):
        gathered.add(record(b"%d:" % number + b"x" * size_bytes, key))
    taken = gathered.take(everything=True)
    assert (gathered.records, gathered.size_bytes) == (0, 0)
    for batch in taken:
        assert 1 <= len(batch.records) <= 4
        assert batch.size_bytes <= 1000 or len(batch.records) == 1
        assert [each.offset for each in batch.records] == list(range(len(batch.records)))
    numbers = [int((each.value or b"").partition(b":")[0]) for batch in taken for each in batch.records]
    assert sorted(numbers) == list(range(len(asked)))
