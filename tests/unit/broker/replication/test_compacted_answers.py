"""What a follower takes of a leader whose log is compacted, and its own is not so far yet."""

import pytest

from tiered.broker.partitions.replica_log import checked_runs
from tiered.errors import CorruptBatch
from tiered.formats.batch_filter import the_hole
from tiered.formats.record_batch import Record, encode_batch


def record_at(offset: int, leader_epoch: int = 2) -> bytes:
    record = Record(offset=offset, timestamp_ms=0, key=b"k", value=b"v")
    return encode_batch([record], base_offset=offset, leader_epoch=leader_epoch)


def test_a_follower_takes_what_it_lacks_of_the_batch_that_stands_for_many() -> None:
    sent = the_hole(5, 19, 2) + record_at(20)
    first, second = checked_runs(memoryview(sent), expected_offset=12, latest_epoch=2, leader_epoch=3, name="t-0")
    assert bytes(first.buffer) == the_hole(12, 19, 2)
    assert (first.end_offset, second.end_offset) == (20, 21)
    assert second.size_bytes == len(record_at(20))


def test_only_an_empty_batch_may_begin_before_what_is_asked_for() -> None:
    with pytest.raises(CorruptBatch, match="the leader sent offset 12 where 13 follows"):
        checked_runs(memoryview(record_at(12)), expected_offset=13, latest_epoch=2, leader_epoch=3, name="t-0")
    with pytest.raises(CorruptBatch, match="the leader sent offset 5 where 20 follows"):
        checked_runs(memoryview(the_hole(5, 19, 2)), expected_offset=20, latest_epoch=2, leader_epoch=3, name="t-0")


def test_an_empty_batch_of_a_wrong_epoch_or_a_wrong_crc_is_refused() -> None:
    hole = the_hole(5, 19, 1)
    with pytest.raises(CorruptBatch, match="leader epoch 1"):
        checked_runs(memoryview(hole), expected_offset=12, latest_epoch=2, leader_epoch=3, name="t-0")
    damaged = bytearray(hole)
    damaged[30] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        checked_runs(memoryview(damaged), expected_offset=12, latest_epoch=1, leader_epoch=3, name="t-0")
