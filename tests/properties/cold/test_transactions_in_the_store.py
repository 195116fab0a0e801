"""X6 of the store: whoever reads committed records of its objects gets those that were decided, and no others.

Random transactions of several producers, cut into objects at any place, are read as a broker reads for a consumer, as
Spark does, and by both again after passes of compaction. `tiered verify` finds nothing wrong in any of it.
"""

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.stored_transactions import store_transactions
from tests.support.transactional_logs import (
    IDEMPOTENT,
    TransactionalLog,
    consumed,
    newest_of_each_key,
    offset_after,
    overlapping,
    random_log,
)
from tests.unit.cold.reader_lab import NO_READ_AHEAD, run_with
from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID, place_of
from tiered.cold.bucket.rewrite import RewriteOrder, batches, rewrite
from tiered.cold.bucket.segments import load_run, load_tail
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.cold.local import LocalStore
from tiered.cold.verify.segments import SegmentVerifier
from tiered.formats import native, object_key, record_batch
from tiered.formats.aborted_ranges import AbortedRanges
from tiered.formats.arrow import decode_chunk
from tiered.formats.checkpoint import CommittedSegment
from tiered.formats.record_batch import BatchHeader, Record
from tiered.formats.segment_check import FaultKind
from tiered.formats.segment_object import aborted_between
from tiered.rules.segments.compaction import LastBatch, is_aborted
from tiered.rules.segments.sampling import ChunkSample
from tiered.runtime import BlockingPool

RETENTION_MS = 100


@dataclass(frozen=True, slots=True)
class Stored:
    """The segments of one log, in a store of their own."""

    store: LocalStore
    folder: Path
    log: TransactionalLog
    segments: Sequence[CommittedSegment]

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset


@contextmanager
def stored(seed: int, *, chunk_bytes: int) -> Iterator[tuple[Stored, random.Random]]:
    chance = random.Random(seed)
    log = random_log(chance)
    with tempfile.TemporaryDirectory(prefix="tiered-transactions-") as folder:
        path = Path(folder)
        store = LocalStore(path / "objects")
        segments = store_transactions(store, path, log, chance, chunk_bytes=chunk_bytes)
        yield Stored(store, path, log, segments), chance


# Readers


def as_a_broker(made: Stored, chance: random.Random) -> dict[int, Record]:
    """Answers of every size, each from where the one before ended, and some from within."""
    found: dict[int, Record] = {}
    pool = BlockingPool("download", threads=1)
    cache = ChunkCache(made.folder / "cache", max_bytes=1 << 20, pool=pool)
    reader = ColdReader(made.store, cache, pool, read_ahead=NO_READ_AHEAD)

    async def read() -> None:
        for segment in made.segments:
            offset = segment.base_offset
            while offset < segment.end_offset:
                max_bytes = chance.choice([1, 300, 1 << 20])
                answer = await reader.read(place_of(segment), offset=offset, max_bytes=max_bytes)
                data = answer.records.read()
                named = [(each.producer_id, each.first_offset) for each in answer.aborted]
                after = offset_after(data)
                assert all(first_offset < after for _, first_offset in named), "more than the answer holds"
                found.update(consumed(data, named, offset))
                within = chance.randrange(offset, after)
                offset = within if within > offset and chance.random() < 0.3 else after

    run_with(reader, pool, read)
    return found


def as_spark(made: Stored, *, pure: bool) -> dict[int, tuple[bytes | None, bytes | None]]:
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    for segment in made.segments:
        tail = load_tail(made.store, place_of(segment))
        for chunk in tail.chunks:
            data = load_run(made.store, place_of(segment), (chunk,))
            decoded = decode_chunk(data, topic=TOPIC, partition=PARTITION, aborted=tail.aborted, pure=pure)
            for batch in decoded:
                found.update({row["offset"]: (row["key"], row["value"]) for row in batch.to_pylist()})
    return found


def check_readers(made: Stored, chance: random.Random, expected: dict[int, Record]) -> None:
    assert as_a_broker(made, chance) == expected
    content = {offset: (each.key, each.value) for offset, each in expected.items()}
    assert as_spark(made, pure=True) == content
    if native.load() is not None:
        assert as_spark(made, pure=False) == content
    verifier = SegmentVerifier(made.store, ChunkSample(), advance=lambda _: None)
    assert [verifier.check(place_of(segment)).faults for segment in made.segments] == [()] * len(made.segments)


# Compaction


def compacted(made: Stored, last_batches: dict[int, LastBatch], now_ms: int) -> Stored:
    """After a pass over all segments."""
    newest: dict[bytes | None, int] = {}
    for segment in made.segments:
        tail = load_tail(made.store, place_of(segment))
        aborted = AbortedRanges(tail.aborted)
        for data, position, header in batches(made.store, place_of(segment), tail.chunks):
            if not header.is_control and not is_aborted(header, aborted) and header.record_count:
                newest.update({each.key: each.offset for each in record_batch.records(data, position)})
    after = []
    for segment in made.segments:
        object_id = UUID(int=segment.object_id.int + (1 << 64))
        key = object_key.segment_key(TOPIC, TOPIC_ID, PARTITION, segment.base_offset, segment.end_offset, 1, object_id)
        order = RewriteOrder(
            cluster_id="cluster-1",
            place=place_of(segment),
            object_key=key,
            chunk_bytes=300,
            now_ms=now_ms,
            delete_retention_ms=RETENTION_MS,
            timeout_ms=60_000,
            last_batches=last_batches,
        )
        wanted = [each for each in newest.values() if segment.base_offset <= each < segment.end_offset]
        with tempfile.TemporaryFile() as scratch:
            done = rewrite(made.store, order, wanted, scratch)
        if done is None:
            after.append(segment)
            continue
        after.append(
            replace(
                segment,
                object_key=key,
                object_id=object_id,
                size_bytes=done.size_bytes,
                log_bytes=done.log_bytes,
                min_timestamp_ms=done.min_timestamp_ms,
                max_timestamp_ms=done.max_timestamp_ms,
                record_count=done.record_count,
                root_sha256=done.root_sha256,
                uploaded_root_sha256=segment.uploaded_root_sha256 or segment.root_sha256,
            )
        )
    return replace(made, segments=after)


def markers(made: Stored) -> set[int]:
    """The offsets of those that are there."""
    return {header.base_offset for _, header in headers(made) if header.is_control}


def headers(made: Stored) -> list[tuple[int, BatchHeader]]:
    """Each batch with the number of its segment."""
    return [
        (number, header)
        for number, segment in enumerate(made.segments)
        for _, _, header in batches(made.store, place_of(segment), load_tail(made.store, place_of(segment)).chunks)
    ]


def check_markers(before: Stored, after: Stored) -> None:
    """What is left of a transaction still has its end, if that was in the same segment: else it would look open."""
    ends: dict[int, int] = {}
    waiting: dict[tuple[int, int], list[int]] = {}
    for number, header in headers(before):
        theirs = waiting.setdefault((number, header.producer_id), [])
        if header.is_control:
            ends.update(dict.fromkeys(theirs, header.base_offset))
            theirs.clear()
        elif header.is_transactional:
            theirs.append(header.base_offset)
    left = {h.base_offset for _, h in headers(after) if h.is_transactional and not h.is_control}
    assert {ends[offset] for offset in left & ends.keys()} <= markers(after)


# Claims


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), chunk_bytes=st.sampled_from([100, 400, 1 << 20]))
def test_every_reader_of_the_store_gets_what_was_committed(seed: int, chunk_bytes: int) -> None:
    with stored(seed, chunk_bytes=chunk_bytes) as (made, chance):
        if made.segments:
            check_readers(made, chance, made.log.committed(made.end_offset))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), is_active=st.booleans())
def test_after_compaction_they_get_the_newest_of_what_was_committed(seed: int, is_active: bool) -> None:
    with stored(seed, chunk_bytes=400) as (made, chance):
        if not made.segments:
            return
        committed = made.log.committed(made.end_offset)
        last = {1: LastBatch(0, made.end_offset - 1), 2: LastBatch(0, None), IDEMPOTENT: LastBatch(0, None)}
        active = last if is_active else {}
        newest = {record.key: record for _, record in sorted(committed.items())}
        once = compacted(made, active, now_ms=1_000)
        check_readers(once, chance, {record.offset: record for record in newest.values()})
        assert markers(once) == markers(made), "their horizon has not come"
        later = once
        for _ in range(2):  # A marker whose last batch went with the second pass is marked by the next.
            later = compacted(later, active, now_ms=1_000 + RETENTION_MS)
        check_readers(later, chance, newest_of_each_key(committed.values()))
        check_markers(made, later)
        last_one = compacted(later, active, now_ms=10**9)
        check_markers(made, last_one)
        check_readers(last_one, chance, newest_of_each_key(committed.values()))
        if not is_active:
            offsets = newest_of_each_key(committed.values()).keys()
            assert len(markers(last_one)) <= len(offsets), "a marker outlives its transaction and its horizon"


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_the_aborted_transactions_of_a_range_are_those_that_lie_in_it(seed: int, data: st.DataObject) -> None:
    log = random_log(random.Random(seed))
    end_offset = data.draw(st.integers(1, max(1, log.last_stable_offset)))
    start_offset = data.draw(st.integers(0, end_offset - 1))
    assert aborted_between(log.entries, start_offset, end_offset) == overlapping(log, start_offset, end_offset)


def test_objects_that_name_no_aborted_transaction_are_found(tmp_path: Path) -> None:
    log = random_log(random.Random(5), ends_nothing=False)
    store = LocalStore(tmp_path / "objects")
    segments = store_transactions(store, tmp_path, log, random.Random(5), chunk_bytes=400, forgets_aborted=True)
    verifier = SegmentVerifier(store, ChunkSample(), advance=lambda _: None)
    found = {fault.kind for segment in segments for fault in verifier.check(place_of(segment)).faults}
    assert found == {FaultKind.ABORTED}
