"""Hostile objects: whoever reads the bucket refuses them, in words that name topic, partition, offsets and key.

Each checksum is right where the damage is not to what it is made of: this is what somebody can do who may write to the
bucket. A reader answers with the records that were committed, or with an error.
"""

import re
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from pyspark_tiered.cold_read import read_cold
from pyspark_tiered.log_source import LogSource
from pyspark_tiered.options import AtTimestamps, Subscribe
from pyspark_tiered.plan import ColdSplit, OffsetRange, SplitSizes, splits
from tests.unit.cold.forged_tables import Change, boundary_moved, forged, gap_made
from tests.unit.cold.reader_lab import NO_READ_AHEAD, run_with
from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID
from tests.unit.cold.verified_store import CLUSTER_ID, RECORDS, VerifiedStore, make_store, verify
from tiered.cold.bucket.contents import read_bucket
from tiered.cold.bucket.look import look_at_partition
from tiered.cold.bucket.rewrite import RewriteOrder, rewrite
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.errors import Corrupt, CorruptObject
from tiered.formats import record_batch
from tiered.formats.checkpoint import (
    CheckpointPage,
    CommittedSegment,
    encode_checkpoint_page,
    encode_partition_checkpoint,
    page_ref,
)
from tiered.formats.chunk_table import ChunkRow, chunk_crc
from tiered.formats.object_key import partition_checkpoint_key, segment_key
from tiered.formats.segment_object import MAX_TAIL_BYTES
from tiered.rules.segments.cold_partition import ColdPartition
from tiered.runtime import BlockingPool

FIRST, END = RECORDS, 2 * RECORDS
"""The offsets of the newest segment, which is the hostile one. The log starts there."""
LAST_MS = 1_000 + RECORDS - 1
"""The time of its last record, which lies in its last chunk."""
CHUNK_BYTES = 8192
ELSEWHERE = UUID(int=1)

Reader = Callable[[VerifiedStore, Path], Sequence[int]]
"""Reads as a part of the product does: the offsets that it was given. Raises Corrupt."""


def partition_of(bucket: VerifiedStore) -> ColdPartition:
    """What a read replica finds in the checkpoints, and a broker in SQL."""
    return look_at_partition(bucket.store, TOPIC, TOPIC_ID, PARTITION, None).partition


def with_cold_reader(bucket: VerifiedStore, folder: Path, read: Callable[[ColdReader], Awaitable[None]]) -> None:
    pool = BlockingPool("download", threads=2)
    cache = ChunkCache(folder / "cache", max_bytes=1 << 20, pool=pool)
    reader = ColdReader(bucket.store, cache, pool, read_ahead=NO_READ_AHEAD)
    errors: list[Corrupt] = []

    async def test() -> None:
        try:
            await read(reader)
        except Corrupt as error:
            errors.append(error)

    run_with(reader, pool, test)
    if errors:
        raise errors[0]


def fetched(bucket: VerifiedStore, folder: Path) -> Sequence[int]:
    found: list[int] = []

    async def read(reader: ColdReader) -> None:
        partition = partition_of(bucket)
        for segment in partition.segments:
            offset = segment.base_offset
            while offset < segment.end_offset:
                found_at = await reader.read(partition.place_of(segment), offset=offset, max_bytes=1 << 20)
                part = found_at.records
                for _, header in record_batch.exact_batches(part.read(), 0, part.length):
                    found.extend(range(header.base_offset, header.end_offset))
                offset = found[-1] + 1

    with_cold_reader(bucket, folder, read)
    return found


def looked_up_by_time(bucket: VerifiedStore, folder: Path) -> Sequence[int]:
    found: list[int] = []

    async def read(reader: ColdReader) -> None:
        partition = partition_of(bucket)
        for segment in partition.segments:
            place = partition.place_of(segment)
            at = await reader.offset_for_timestamp(place, timestamp_ms=LAST_MS, start_offset=FIRST)
            found.extend([] if at is None else [at[0]])

    with_cold_reader(bucket, folder, read)
    return found


def verified(bucket: VerifiedStore, _folder: Path) -> Sequence[int]:
    for each in verify(bucket.store).problems:
        fault = each.fault
        raise CorruptObject(
            f"topic {each.topic} partition {each.partition} offsets {fault.first_offset} to {fault.last_offset}, "
            f"object {each.object_key}: {fault.message}"
        )
    return range(FIRST, END)


def rewritten(bucket: VerifiedStore, _folder: Path) -> Sequence[int]:
    partition = partition_of(bucket)
    for segment in partition.segments:
        object_id = UUID(int=7)
        order = RewriteOrder(
            cluster_id=CLUSTER_ID,
            place=partition.place_of(segment),
            object_key=segment_key(
                TOPIC, TOPIC_ID, PARTITION, segment.base_offset, segment.end_offset, segment.leader_epoch, object_id
            ),
            chunk_bytes=CHUNK_BYTES,
            now_ms=1_000,
            delete_retention_ms=0,
            timeout_ms=60_000,
            last_batches={},
        )
        with tempfile.TemporaryFile() as scratch:
            done = rewrite(bucket.store, order, (), scratch)
        assert done is not None
        assert done.removed_records == segment.record_count
    return range(FIRST, END)


def restored(bucket: VerifiedStore, _folder: Path) -> Sequence[int]:
    found = read_bucket(bucket.store, parallel=1).partitions[TOPIC_ID, PARTITION]
    if found.fault is not None:
        raise CorruptObject(found.fault)
    return [offset for row in found.segments for offset in range(row.base_offset, row.end_offset)]


def read_by_spark(bucket: VerifiedStore, _folder: Path) -> Sequence[int]:
    source = LogSource(Subscribe(topics=(TOPIC,)), bucket.store, None)
    view = source.views()[TOPIC, PARTITION]
    everything = OffsetRange(view=view, start_offset=view.log_start_offset, end_offset=view.cold_end_offset)
    found: list[int] = []
    for split in splits([(everything, source.segments(everything))], [], SplitSizes(split_bytes=1 << 20)):
        assert isinstance(split, ColdSplit)
        for batch in read_cold(bucket.store, split, columns=("offset",)):
            found += batch.column(0).to_pylist()
    return found


def looked_up_by_spark(bucket: VerifiedStore, _folder: Path) -> Sequence[int]:
    source = LogSource(Subscribe(topics=(TOPIC,)), bucket.store, None)
    views = source.views()
    at = AtTimestamps(timestamp_ms=LAST_MS)
    return [source.resolve(at, views, option="startingTimestamp", no_match="latest")[TOPIC, PARTITION]]


EVERYTHING, LAST = range(FIRST, END), [END - 1]
READERS_OF_CHUNKS: dict[str, tuple[Reader, Sequence[int]]] = {
    "a Fetch": (fetched, EVERYTHING),
    "ListOffsets": (looked_up_by_time, LAST),
    "tiered verify": (verified, EVERYTHING),
    "compaction": (rewritten, EVERYTHING),
    "Spark": (read_by_spark, EVERYTHING),
    "Spark by time": (looked_up_by_spark, LAST),
}
READERS = READERS_OF_CHUNKS | {"restore": (restored, EVERYTHING)}
READERS_OF_PAGES = ("a Fetch", "tiered verify", "restore", "Spark")


@pytest.fixture
def bucket(tmp_path: Path) -> VerifiedStore:
    (tmp_path / "logs").mkdir()
    made = make_store(tmp_path / "bucket", tmp_path / "logs", segments=2)
    made.write_head(log_start_offset=FIRST)
    return made


@pytest.mark.parametrize("who", READERS)
def test_what_was_committed_is_read(bucket: VerifiedStore, tmp_path: Path, who: str) -> None:
    reader, wanted = READERS[who]
    assert list(reader(bucket, tmp_path)) == list(wanted)


def refused(bucket: VerifiedStore, folder: Path, who: str, key: str) -> str:
    """The refusal's words, which name everything."""
    with pytest.raises(Corrupt) as refusal:
        READERS[who][0](bucket, folder)
    said = str(refusal.value)
    assert TOPIC in said or str(TOPIC_ID) in said
    assert f"partition {PARTITION}" in said
    assert key in said
    named = re.search(r"offsets (\d+) to (\d+)", said)
    assert named, said
    assert 0 <= int(named[1]) <= int(named[2]) < END
    return said


# What the object says of itself


def shifted(rows: Sequence[ChunkRow]) -> Sequence[ChunkRow]:
    return [replace(row, first_offset=row.first_offset + 10, last_offset=row.last_offset + 10) for row in rows]


def one_more(rows: Sequence[ChunkRow]) -> Sequence[ChunkRow]:
    return [replace(rows[0], record_count=rows[0].record_count + 1), *rows[1:]]


def unchanged(rows: Sequence[ChunkRow]) -> Sequence[ChunkRow]:
    return rows


def told(data: bytes, *, change: Change = unchanged, **said: object) -> bytes:
    return forged(data, change, **said)


TAILS: dict[str, Callable[[bytes], bytes]] = {
    "another topic's": partial(told, topic_id=ELSEWHERE),
    "another partition's": partial(told, partition=PARTITION + 1),
    "of other offsets": partial(told, change=shifted, base_offset=FIRST + 10, end_offset=END + 10),
    "of another chain": partial(told, previous_root_sha256=b"\xab" * 32),
    "with other counts": partial(told, change=one_more, record_count=RECORDS + 1),
    "with a gap in its table": partial(told, change=partial(gap_made, number=1, offsets=5)),
    "cut off": lambda data: data[:-10],
    "with a bit of its tail flipped": lambda data: data[:-200] + bytes([data[-200] ^ 1]) + data[-199:],
}


@pytest.mark.parametrize("who", READERS)
@pytest.mark.parametrize("what", TAILS)
def test_a_tail_that_is_not_the_committed_one_is_refused(
    bucket: VerifiedStore, tmp_path: Path, what: str, who: str
) -> None:
    path = bucket.path(1)
    path.write_bytes(TAILS[what](path.read_bytes()))
    refused(bucket, tmp_path, who, bucket.rows[1].object_key)


@pytest.mark.parametrize("who", READERS)
def test_another_segment_of_the_partition_in_its_place_is_refused(
    bucket: VerifiedStore, tmp_path: Path, who: str
) -> None:
    """The row gives the other's size too, so that its tail is found."""
    old, new = bucket.rows
    bucket.path(1).write_bytes(bucket.path(0).read_bytes())
    bucket.write_head([replace(new, size_bytes=old.size_bytes, log_bytes=old.log_bytes)], log_start_offset=FIRST)
    assert "the object holds another segment" in refused(bucket, tmp_path, who, new.object_key)


@pytest.mark.parametrize("who", READERS)
def test_a_row_that_claims_a_tail_beyond_the_bound_is_refused(bucket: VerifiedStore, tmp_path: Path, who: str) -> None:
    """Nothing is asked for, and nothing allocated for it."""
    row = bucket.rows[1]
    bucket.write_head([replace(row, size_bytes=row.log_bytes + MAX_TAIL_BYTES + 1)], log_start_offset=FIRST)
    assert f"{MAX_TAIL_BYTES + 1} bytes" in refused(bucket, tmp_path, who, row.object_key)


# What its chunks are


@pytest.mark.parametrize("who", READERS_OF_CHUNKS)
def test_an_altered_chunk_is_refused(bucket: VerifiedStore, tmp_path: Path, who: str) -> None:
    bucket.flip(1, bucket.tail(1).chunks[-1].position + 100)
    assert re.search("SHA-256|CRC-64", refused(bucket, tmp_path, who, bucket.rows[1].object_key))


@pytest.mark.parametrize("who", READERS_OF_CHUNKS)
def test_an_altered_chunk_of_an_object_without_crcs_is_refused_by_its_sha256(
    bucket: VerifiedStore, tmp_path: Path, who: str
) -> None:
    """As objects were before decision 0025."""
    bucket.flip(1, bucket.tail(1).chunks[-1].position + 100)
    path, row = bucket.path(1), bucket.rows[1]
    older = told(path.read_bytes(), change=lambda rows: [replace(each, crc64=None) for each in rows])
    path.write_bytes(older)
    bucket.write_head([bucket.rows[0], replace(row, size_bytes=len(older))], log_start_offset=FIRST)
    assert "SHA-256" in refused(bucket, tmp_path, who, row.object_key)


@pytest.mark.parametrize("who", ["tiered verify", "compaction"])
def test_a_forged_chunk_with_its_right_crc_is_refused_by_who_proves(
    bucket: VerifiedStore, tmp_path: Path, who: str
) -> None:
    """A CRC can be made up for any bytes, so what is verified, and what becomes new truth, is held against SHA-256."""
    path, last = bucket.path(1), bucket.tail(1).chunks[-1]
    leader_epoch = 12  # The batch's own CRC does not cover it.
    bucket.flip(1, last.position + leader_epoch)
    right = chunk_crc(path.read_bytes()[last.position :][: last.length])
    path.write_bytes(told(path.read_bytes(), change=lambda rows: [*rows[:-1], replace(rows[-1], crc64=right)]))
    assert "SHA-256" in refused(bucket, tmp_path, who, bucket.rows[1].object_key)


@pytest.mark.parametrize("who", READERS_OF_CHUNKS)
def test_a_wrong_crc_of_a_right_chunk_is_refused(bucket: VerifiedStore, tmp_path: Path, who: str) -> None:
    """By all but compaction, which writes it anew with its right one."""
    path = bucket.path(1)
    path.write_bytes(told(path.read_bytes(), change=lambda rows: [*rows[:-1], replace(rows[-1], crc64=7)]))
    if who == "compaction":
        assert list(rewritten(bucket, tmp_path)) == list(EVERYTHING)
    else:
        assert "CRC-64" in refused(bucket, tmp_path, who, bucket.rows[1].object_key)


@pytest.mark.parametrize("who", READERS_OF_CHUNKS)
@pytest.mark.parametrize("offsets", [5, -5])
def test_a_table_that_gives_chunks_other_offsets_is_refused(
    bucket: VerifiedStore, tmp_path: Path, offsets: int, who: str
) -> None:
    """The root proves the chunks' hashes alone. By the offsets beside them a reader chooses what it reads."""
    path = bucket.path(1)
    last_but_one = len(bucket.tail(1).chunks) - 2
    change = partial(boundary_moved, number=last_but_one, offsets=offsets)
    path.write_bytes(forged(path.read_bytes(), change))
    refused(bucket, tmp_path, who, bucket.rows[1].object_key)


# What the checkpoints say


def with_page(bucket: VerifiedStore, page: CheckpointPage) -> str:
    """Publishes a head that names the page for the first segment; the page's key."""
    head = bucket.write_head(page_entries=1)
    reference = page_ref(page)
    bucket.store.put(reference.key, encode_checkpoint_page(page))
    forged_head = replace(head, pages=(reference,))
    bucket.store.put(partition_checkpoint_key(TOPIC_ID, PARTITION), encode_partition_checkpoint(forged_head))
    return reference.key


@pytest.mark.parametrize("who", READERS_OF_PAGES)
@pytest.mark.parametrize(("topic_id", "partition"), [(ELSEWHERE, PARTITION), (TOPIC_ID, PARTITION + 1)])
def test_a_page_of_another_partition_is_refused(
    bucket: VerifiedStore, tmp_path: Path, topic_id: UUID, partition: int, who: str
) -> None:
    """Its rows are right: who believes it would take others' too."""
    key = with_page(bucket, CheckpointPage(topic_id=topic_id, partition=partition, segments=(bucket.rows[0],)))
    if who == "tiered verify":
        key = partition_checkpoint_key(TOPIC_ID, PARTITION)  # It says under which head it found the page.
    assert "another partition" in refused(bucket, tmp_path, who, key)


def foreign(row: CommittedSegment) -> CommittedSegment:
    key = segment_key(TOPIC, ELSEWHERE, PARTITION, row.base_offset, row.end_offset, row.leader_epoch, row.object_id)
    return replace(row, object_key=key)


@pytest.mark.parametrize("who", READERS_OF_PAGES)
@pytest.mark.parametrize("where", ["page", "head"])
def test_a_row_that_names_another_topics_object_is_refused(
    bucket: VerifiedStore, tmp_path: Path, where: str, who: str
) -> None:
    old, new = bucket.rows
    if where == "page":
        row = foreign(old)
        with_page(bucket, CheckpointPage(topic_id=TOPIC_ID, partition=PARTITION, segments=(row,)))
    else:
        row = foreign(new)
        bucket.write_head([old, row])
    assert "the key of another segment" in refused(bucket, tmp_path, who, row.object_key)
