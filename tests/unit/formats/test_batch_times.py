"""The times of a batch: what its records say, whatever its header claims."""

import pytest
from hypothesis import given

from tests.properties.formats.batches import mutations, segments
from tests.support.claimed_times import WRONG, broken, claiming
from tiered.errors import CorruptBatch
from tiered.formats.batch_times import claimed_times, counted_times, is_proven, proven_times, record_times
from tiered.formats.record_batch import Compression, Record, encode_batch, read_header, records

TIMES = [5_000, 9_000, 4_000]


def a_batch(codec: Compression = Compression.NONE, append_ms: int | None = None) -> bytes:
    rows = [Record(offset=index, timestamp_ms=ms, key=None, value=b"v") for index, ms in enumerate(TIMES)]
    return encode_batch(rows, compression=codec, log_append_time_ms=append_ms)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("wrong", WRONG)
def test_records_tell_the_times_that_a_header_gets_wrong(codec: Compression, wrong: str) -> None:
    times = counted_times(claiming(a_batch(codec), wrong))
    assert times == (4_000, 9_000, True, True, False)
    assert counted_times(a_batch(codec)).header_is_right


@given(segments())
def test_times_are_those_of_the_records(batches: list[tuple[bytes, list[Record]]]) -> None:
    for data, rows in batches:
        assert list(record_times(data)) == [(row.offset, row.timestamp_ms) for row in rows]


@given(mutations(a_batch()))
def test_a_damaged_batch_has_times_or_is_corrupt(data: bytes) -> None:
    try:
        times = list(record_times(data))
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            list(records(data))
    else:
        try:
            rows = list(records(data))
        except CorruptBatch:
            return  # Keys, values and headers are not looked at.
        assert times == [(row.offset, row.timestamp_ms) for row in rows]


def test_bytes_that_nobody_can_decode_have_no_times() -> None:
    with pytest.raises(CorruptBatch):
        counted_times(broken(a_batch()))


def test_a_header_proves_what_a_broker_has_checked_or_stamped() -> None:
    header = read_header(a_batch())
    assert proven_times(header) == (5_000, 9_000, False, True, True)
    assert claimed_times(header) == (5_000, 9_000, False, False, False)
    assert not is_proven(header, 1)
    assert is_proven(header, 0)
    stamped = read_header(claiming(a_batch(append_ms=7_000), "too late"))
    assert proven_times(stamped) == (8_000, 8_000, True, True, True)
    assert is_proven(stamped, 1)
