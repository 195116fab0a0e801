"""Indexes, epoch files and producer snapshots that are not what they should be."""

import struct
from dataclasses import replace

import pytest
from fastcrc import crc32

from tiered.errors import CorruptFile
from tiered.formats.leader_epoch_file import decode_leader_epochs, encode_leader_epochs
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.producer_snapshot import ProducerEntry, decode_producers, encode_producers
from tiered.formats.segment_object import AbortedIndexEntry
from tiered.formats.time_index import TimeIndex
from tiered.formats.transaction_index import TransactionIndex


def with_crc(body: bytes) -> bytes:
    return body + struct.pack(">I", crc32.iscsi(body))


def test_an_offset_index_is_kafkas_bytes() -> None:
    index = OffsetIndex()
    index.append(1005, 0)
    index.append(1090, 4200)
    assert index.to_bytes(1000).hex() == "00000005000000000000005a00001068"


def test_a_time_index_is_kafkas_bytes() -> None:
    index = TimeIndex()
    index.append(1_700_000_000_000, 1090)
    assert index.to_bytes(1000).hex() == "0000018bcfe568000000005a"


ABORTED = AbortedIndexEntry(producer_id=7, first_offset=3, last_offset=9, last_stable_offset=5)


def test_a_transaction_index_is_kafkas_bytes() -> None:
    index = TransactionIndex()
    index.append(ABORTED)
    assert index.to_bytes(10).hex() == "0000" + "".join(f"{number:016x}" for number in (7, 3, 9, 5))
    assert index.to_bytes(9) == b"", "the marker is at the end"


@pytest.mark.parametrize(
    "entry",
    [(1, 7, 3, 9, 5), (0, -7, 3, 9, 5), (0, 7, 9, 9, 5), (0, 7, 3, 9, 11), (0, 7, 3, 9, -1), (0, 0, 0, 0, 0)],
    ids=["version", "producer", "nothing in it", "stable beyond the marker", "stable below", "zeros"],
)
def test_an_entry_of_a_transaction_index_that_cannot_be_is_found(entry: tuple[int, ...]) -> None:
    with pytest.raises(CorruptFile, match="rebuilt from the batches"):
        TransactionIndex.from_bytes(struct.pack(">hqqqq", *entry))


def test_a_transaction_index_of_half_an_entry_or_out_of_order_is_refused() -> None:
    data = struct.pack(">hqqqq", 0, 7, 3, 9, 5)
    for damaged in (data[:-1], data + data):
        with pytest.raises(CorruptFile):
            TransactionIndex.from_bytes(damaged)


def test_a_search_ends_once_no_later_entry_can_count() -> None:
    index = TransactionIndex()
    for at, stable in ((9, 5), (12, 5), (15, 16), (30, 31)):
        index.append(replace(ABORTED, first_offset=at - 4, last_offset=at, last_stable_offset=stable))
    found: list[AbortedIndexEntry] = []
    assert index.find(10, 14, found), "all that began before 14 had ended by 15"
    assert [entry.last_offset for entry in found] == [12, 15]
    assert not index.find(31, 40, [])


def test_a_copy_of_a_transaction_index_is_without_what_ended_at_markers_that_went() -> None:
    index = TransactionIndex()
    for at in (9, 12, 15):
        index.append(replace(ABORTED, last_offset=at))
    found: list[AbortedIndexEntry] = []
    index.without({12, 13}).find(0, 100, found)
    assert [entry.last_offset for entry in found] == [9, 15]
    assert (len(index), len(index.without(set()))) == (3, 3)


def test_empty_indexes_answer_with_the_start() -> None:
    assert OffsetIndex().lookup(7) == 0
    assert OffsetIndex().floor_position(7) == 0
    assert OffsetIndex().last_position == 0
    assert TimeIndex().lookup(7) == -1
    assert TimeIndex().last_timestamp_ms == -1
    assert OffsetIndex().lookup(TimeIndex().lookup(7)) == 0
    assert len(OffsetIndex.from_bytes(5, b"")) == len(TimeIndex.from_bytes(5, b"")) == 0


@pytest.mark.parametrize(
    "data",
    [
        bytes(7),
        bytes(16),
        struct.pack(">4i", 1, 0, 1, 9),
        struct.pack(">4i", 1, 9, 2, 9),
        struct.pack(">2i", -1, 0),
        struct.pack(">2i", 0, -1),
    ],
)
def test_an_offset_index_out_of_order_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        OffsetIndex.from_bytes(0, data)


@pytest.mark.parametrize(
    "data",
    [
        bytes(11),
        bytes(24),
        struct.pack(">qiqi", 5, 1, 5, 2),
        struct.pack(">qiqi", 5, 2, 6, 2),
        struct.pack(">qi", -1, 0),
        struct.pack(">qi", 0, -1),
    ],
)
def test_a_time_index_out_of_order_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        TimeIndex.from_bytes(0, data)


def test_a_leader_epoch_file_is_kafkas_text() -> None:
    assert encode_leader_epochs(((0, 0), (3, 1500))) == b"0\n2\n0 0\n3 1500\n"
    assert encode_leader_epochs(()) == b"0\n0\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"0\n",
        b"1\n0\n",
        b"0\n1\n",
        b"0\n0\n0 0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\n00 0\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n0 -1\n",
        b"0\n1\n0 9223372036854775808\n",
        b"0\n1\n2147483648 0\n",
        b"0\n1\n0  0\n",
        b"0\n1\n0 0\r\n",
        b"0\n2\n1 0\n1 5\n",
        b"0\n2\n1 5\n2 4\n",
        "0\n1\n0 \u0665\n".encode(),
    ],
)
def test_what_is_no_leader_epoch_file_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        decode_leader_epochs(data)


def test_two_epochs_may_start_at_one_offset() -> None:
    assert decode_leader_epochs(b"0\n2\n1 5\n2 5\n") == ((1, 5), (2, 5))


def test_a_producer_snapshots_count_is_held_against_its_bytes() -> None:
    with pytest.raises(CorruptFile, match="do not fit"):
        decode_producers(with_crc(b"TPS\x01" + struct.pack(">I", 2**32 - 1)))


def test_a_producer_snapshot_with_a_right_crc_must_still_be_one() -> None:
    body = encode_producers([ProducerEntry(producer_id=1, producer_epoch=0)])[:-4]
    twice = b"TPS\x01" + struct.pack(">I", 2) + body[8:] * 2
    too_many_batches = body[:-1] + b"\x06"
    missing_batches = body[:-1] + b"\x05"
    for hostile in (twice, too_many_batches, missing_batches, body + b"x", body[:-1]):
        with pytest.raises(CorruptFile):
            decode_producers(with_crc(hostile))


def test_a_producer_snapshot_of_another_version_is_refused() -> None:
    with pytest.raises(CorruptFile, match="begins with"):
        decode_producers(with_crc(b"TPS\x02" + bytes(4)))
