"""Reading a split: bounded memory whatever the object's size, exact ranges, and no byte that was not checked."""

import hashlib
import itertools
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pytest

from pyspark_tiered.cold_read import first_offset_at, read_cold
from pyspark_tiered.plan import (
    ColdSplit,
    FilterBounds,
    OffsetRange,
    PartitionView,
    SplitSizes,
    splits,
)
from tests.spark.bucket import Bucket, batches_of, records
from tests.support.claimed_times import WRONG, broken, claiming
from tests.unit.cold.forged_tables import Change, boundary_moved, forged, gap_made
from tiered.cold.local import LocalStore
from tiered.errors import CorruptObject, ObjectMissing
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.record_batch import Record, encode_batch, read_header
from tiered.formats.segment_object import read_tail

MIB = 1 << 20


def split_of(bucket: Bucket, segment: CommittedSegment, *, start: int = 0, end: int = 2**62) -> ColdSplit:
    return ColdSplit(
        topic="orders",
        topic_id=bucket.topic_ids["orders"],
        partition=0,
        start_offset=start,
        end_offset=end,
        segments=(segment,),
    )


def offsets(bucket: Bucket, split: ColdSplit) -> list[int]:
    return [
        offset
        for batch in read_cold(bucket.store, split, columns=("offset",))
        for offset in batch.column(0).to_pylist()
    ]


def test_splits_of_one_object_give_each_record_once(bucket: Bucket) -> None:
    segment = bucket.add_segment("orders", 0, batches_of(records(0, 500)))
    cuts = [0, 1, 99, 100, 107, 333, 500]
    found = [
        offset
        for start, end in itertools.pairwise(cuts)
        for offset in offsets(bucket, split_of(bucket, segment, start=start, end=end))
    ]
    assert found == list(range(500))


def test_a_range_within_a_chunk_is_exact(bucket: Bucket) -> None:
    segment = bucket.add_segment("orders", 0, batches_of(records(0, 500)))
    assert offsets(bucket, split_of(bucket, segment, start=13, end=17)) == [13, 14, 15, 16]


def test_a_request_asks_for_as_much_as_the_store_wants_to_be_asked_for(bucket: Bucket) -> None:
    segment = bucket.add_segment("orders", 0, batches_of(records(0, 500)))
    asked: list[int] = []

    class Store(LocalStore):
        run_bytes = 10_000

        def get_range(self, key: str, start: int, length: int) -> bytes:
            asked.append(length)
            return super().get_range(key, start, length)

    store = Store(Path(unquote(urlsplit(bucket.store.url).path)))
    rows = sum(batch.num_rows for batch in read_cold(store, split_of(bucket, segment), columns=("offset",)))
    assert rows == 500
    assert sum(asked[1:]) == segment.log_bytes, "behind the tail"
    assert len(asked) > 2
    assert max(asked[1:]) <= 10_000


def test_another_topics_object_under_the_key_is_refused(bucket: Bucket) -> None:
    segment = bucket.add_segment("orders", 0, batches_of(records(0, 50)))
    bucket.topic_ids["orders"] = UUID(int=1)
    with pytest.raises(CorruptObject, match="the object holds another segment"):
        offsets(bucket, split_of(bucket, segment))


def test_a_missing_object_is_named(bucket: Bucket) -> None:
    segment = bucket.add_segment("orders", 0, batches_of(records(0, 50)))
    bucket.store.delete(segment.object_key)
    with pytest.raises(ObjectMissing) as caught:
        offsets(bucket, split_of(bucket, segment))
    assert f"offsets 0 to 49, object {segment.object_key}: the object is missing" in str(caught.value)
    assert "retention or compaction removed it while this job ran" in str(caught.value)
    assert "option catalog" in str(caught.value)


def test_every_altered_byte_of_the_object_is_refused(bucket: Bucket) -> None:
    segment = bucket.add_segment("orders", 0, batches_of(records(0, 40)))
    data, _ = bucket.store.get(segment.object_key, max_bytes=MIB)
    intact = offsets(bucket, split_of(bucket, segment))
    for position in range(0, len(data), 97):
        altered = bytearray(data)
        altered[position] ^= 0x10
        bucket.store.delete(segment.object_key)
        bucket.store.put(segment.object_key, bytes(altered))
        with pytest.raises(CorruptObject, match=segment.object_key):
            offsets(bucket, split_of(bucket, segment))
    bucket.store.delete(segment.object_key)
    bucket.store.put(segment.object_key, data)
    assert offsets(bucket, split_of(bucket, segment)) == intact


# Peak memory, in a process of its own: `python tests/spark/test_cold_read.py FOLDER MIB` prints it, so that a
# gibibyte can be tried by hand. What numpy and pyarrow take by themselves is not counted.


PROBE = """
import pickle, sys, pyarrow, numpy
from pyspark_tiered.cold_read import read_cold, store_of

def mib(name):
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status[name].split()[0]) // 1024

split, url = pickle.load(sys.stdin.buffer)
columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
before, rows = mib("VmRSS"), 0
for batch in read_cold(store_of(url), split, columns=columns):
    rows += batch.num_rows
    del batch
print(rows, mib("VmHWM") - before)
"""


def peak_of_a_read(folder: Path, object_mib: int) -> tuple[int, int]:
    """(rows, MiB that the process grew by at its peak) for one object of that size."""
    from tiered.cold.opening import open_store

    bucket = Bucket(store=open_store(f"file://{folder}/store"), chunk_bytes=MIB)
    value = hashlib.sha512(b"x").digest() * 16  # 1 KiB
    batch = encode_batch([Record(offset=at, timestamp_ms=1, key=None, value=value) for at in range(900)], base_offset=0)
    # A batch's checksum begins behind its base offset.
    batches = [base.to_bytes(8, "big") + batch[8:] for base in range(0, object_mib * MIB // 1050, 900)]
    segment = bucket.add_segment("orders", 0, batches)
    count = len(batches) * 900
    batches.clear()
    everything = split_of(bucket, segment)
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=pickle.dumps((everything, bucket.url)),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    rows_read, grown_mib = map(int, done.stdout.split())
    assert rows_read == count
    return rows_read, grown_mib


def test_a_large_object_is_read_with_little_memory(tmp_path: Path) -> None:
    _, grown_mib = peak_of_a_read(tmp_path, 256)
    assert grown_mib < 100


if __name__ == "__main__":
    print("rows, MiB at the peak:", *peak_of_a_read(Path(sys.argv[1]), int(sys.argv[2])))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (partial(boundary_moved, number=1, offsets=-5), "before"),
        (partial(boundary_moved, number=1, offsets=5), "behind"),
        (partial(boundary_moved, number=1, offsets=5), "before"),
        (partial(gap_made, number=1, offsets=5), "before"),
    ],
)
def test_a_table_with_other_offsets_leaves_no_record_out(bucket: Bucket, change: Change, wanted: str) -> None:
    """The chunks and their root are right. By their offsets a split takes those that it needs."""
    segment = bucket.add_segment("orders", 0, batches_of(records(0, 1500)))
    data, _ = bucket.store.get(segment.object_key, max_bytes=1 << 22)
    third = read_tail(data, len(data)).chunks[2].first_offset
    start, end = (third - 5, third) if wanted == "before" else (third, third + 5)
    assert offsets(bucket, split_of(bucket, segment, start=start, end=end)) == list(range(start, end))
    bucket.store.delete(segment.object_key)
    bucket.store.put(segment.object_key, forged(data, change))
    with pytest.raises(CorruptObject, match="offsets"):
        offsets(bucket, split_of(bucket, segment, start=start, end=end))


@pytest.mark.parametrize("wrong", WRONG)
def test_no_record_is_left_out_for_a_time_that_nobody_has_proven(bucket: Bucket, wrong: str) -> None:
    times = [1_000 + 20 * number for number in range(12)]
    rows = [Record(offset=offset, timestamp_ms=ms, key=None, value=b"v" * 900) for offset, ms in enumerate(times)]
    batches = [encode_batch(rows[start : start + 3], base_offset=start) for start in range(0, 12, 3)]
    old = bucket.add_segment("orders", 0, [bytes(claiming(batch, wrong)) for batch in batches], is_old=True)
    bucket.publish()
    view = PartitionView(
        topic="orders",
        topic_id=bucket.topic_ids["orders"],
        partition=0,
        log_start_offset=0,
        cold_end_offset=12,
        end_offset=12,
    )
    for wanted_ms in times:
        expected = times.index(wanted_ms)
        assert first_offset_at(bucket.store, view, [old], wanted_ms) == expected
        bounds = FilterBounds(first_timestamp_ms=wanted_ms, last_timestamp_ms=wanted_ms)
        everything = OffsetRange(view=view, start_offset=0, end_offset=12)
        (split,) = splits([(everything, [old])], [], SplitSizes(split_bytes=MIB), bounds)
        assert isinstance(split, ColdSplit)
        assert expected in offsets(bucket, split)
    assert first_offset_at(bucket.store, view, [old], times[-1] + 1) == -1


@pytest.mark.parametrize("pure", [False, True])
def test_a_batch_that_nobody_can_decode_is_named_and_stepped_over_where_told(
    bucket: Bucket, pure: bool, caplog: pytest.LogCaptureFixture
) -> None:
    batches = batches_of(records(0, 500))
    number = len(batches) // 2
    bad = read_header(batches[number])
    batches[number] = bytes(broken(batches[number]))
    segment = bucket.add_segment("orders", 0, batches, is_old=True)
    split = split_of(bucket, segment)
    with pytest.raises(
        CorruptObject, match=f"topic orders partition 0 .* offsets {bad.base_offset} to {bad.last_offset} "
    ):
        list(read_cold(bucket.store, split, columns=("offset",), pure=pure))
    assert caplog.records == []
    found = [
        offset
        for batch in read_cold(bucket.store, split, columns=("offset",), pure=pure, skip_bad_batches=True)
        for offset in batch.column(0).to_pylist()
    ]
    assert found == [offset for offset in range(500) if not bad.base_offset <= offset <= bad.last_offset]
    (warning,) = [each.getMessage() for each in caplog.records]
    assert f"partition orders-0: stepped over offsets {bad.base_offset} to {bad.last_offset}" in warning
