"""Passes over the cold tier keep what compaction promises, whatever was written, hot-compacted before, and marked.

The newest record of each key stays, older ones go, offsets follow each other without a gap, nothing that stays is
changed, and a tombstone goes only after its retention since a pass over this tier met it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tiered.formats.batch_filter import RawRecord, filtered, keyed_records
from tiered.formats.record_batch import Compression, Record, encode_batch, exact_batches, records, verify_crc
from tiered.rules.segments.batch_compaction import OffsetSet, SegmentCleaning

RETENTION_MS = 100
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"", None]), st.booleans()), min_size=1, max_size=4),
        st.sampled_from([Compression.NONE, Compression.ZSTD]),
        st.integers(0, 2),  # the leader epoch goes up by so much
        st.booleans(),  # a broker's pass marked its tombstones
    ),
    min_size=1,
    max_size=12,
)


@dataclass
class Segment:
    base_offset: int
    end_offset: int
    log: bytes
    is_marked: bool = False


def written(
    batches: Sequence[tuple[list[tuple[bytes | None, bool]], Compression, int, bool]], cut: int
) -> list[Segment]:
    """Segments of `cut` batches each."""
    segments: list[Segment] = []
    offset = epoch = 0
    for number, (content, codec, step, is_hot_marked) in enumerate(batches):
        epoch += step
        rows = [
            Record(
                offset=offset + index,
                timestamp_ms=1_000 + offset + index,
                key=key,
                value=None if is_tombstone else b"value-%d" % (offset + index),
                headers=(),
            )
            for index, (key, is_tombstone) in enumerate(content)
        ]
        batch = encode_batch(rows, base_offset=offset, compression=codec, leader_epoch=epoch)
        if is_hot_marked:
            batch = filtered(batch, 0, lambda _record: True, delete_horizon_ms=0) or batch
        if number % cut == 0:
            segments.append(Segment(offset, offset, b""))
        offset += len(rows)
        segments[-1].log += batch
        segments[-1].end_offset = offset
    return segments


def raw(segments: Iterable[Segment]) -> list[RawRecord]:
    return [
        record
        for segment in segments
        for position, header in exact_batches(segment.log, 0, len(segment.log))
        if header.record_count
        for record in keyed_records(segment.log, position)
    ]


def decoded(segments: Iterable[Segment]) -> dict[int, Record]:
    return {
        record.offset: record
        for segment in segments
        for position, header in exact_batches(segment.log, 0, len(segment.log))
        if header.record_count
        for record in records(segment.log, position)
    }


def one_pass(segments: Sequence[Segment], now_ms: int, count: int) -> list[Segment]:
    """The first `count` segments cleaned by what is known of all, as waves leave them when the job dies on its way."""
    newest = {record.key: record.offset for record in raw(segments) if record.key is not None}
    after: list[Segment] = []
    for segment in segments:
        if len(after) == count:
            return [*after, *segments[count:]]
        offsets = OffsetSet(segment.base_offset, segment.end_offset)
        for offset in newest.values():
            if segment.base_offset <= offset < segment.end_offset:
                offsets.add(offset)
        cleaning = SegmentCleaning(
            offsets,
            aborted=(),
            last_batches={},
            is_marked=segment.is_marked,
            now_ms=now_ms,
            delete_retention_ms=RETENTION_MS,
        )
        pieces: list[bytes | memoryview] = []
        for position, header in exact_batches(segment.log, 0, len(segment.log)):
            pieces += cleaning.take(segment.log, position, header)
        pieces += cleaning.rest()
        log = b"".join(pieces)
        assert cleaning.is_changed == (log != segment.log)
        now = Segment(segment.base_offset, segment.end_offset, log, is_marked=True)
        after.append(now if cleaning.is_changed else segment)
    return after


def check_offsets(segments: Iterable[Segment]) -> None:
    for segment in segments:
        expected = segment.base_offset
        for position, header in exact_batches(segment.log, 0, len(segment.log)):
            verify_crc(segment.log, position, header.size_bytes)
            assert header.base_offset == expected
            expected = header.end_offset
        assert expected == segment.end_offset


@given(batches=BATCHES, cut=st.integers(1, 4), stopped_after=st.integers(0, 12))
@settings(deadline=None)
def test_passes_leave_the_newest_of_each_key_and_nothing_older(
    batches: list[tuple[list[tuple[bytes | None, bool]], Compression, int, bool]], cut: int, stopped_after: int
) -> None:
    before = written(batches, cut)
    all_of_it = decoded(before)
    newest: dict[bytes, Record] = {record.key: record for record in all_of_it.values() if record.key is not None}

    # A job that dies between two waves has taken nothing that is needed.
    begun = one_pass(before, 1_000, stopped_after)
    check_offsets(begun)
    assert {record.offset for record in newest.values()} <= decoded(begun).keys()

    once = one_pass(begun, 2_000, len(before))
    check_offsets(once)
    # Also where a broker marked a tombstone long ago: only since now is nothing left here of what it deletes.
    early = {each for each, segment in enumerate(begun) if segment.is_marked}
    kept = decoded(once)
    for record in newest.values():
        if record.value is not None or not early:
            assert kept[record.offset] == record
    assert kept.items() <= all_of_it.items()
    assert kept.keys() <= {record.offset for record in newest.values()}

    # Too early for what was marked at 2,000: nothing changes any more.
    again = one_pass(once, 2_000 + RETENTION_MS - 1, len(before))
    assert [segment.log for segment in again] == [segment.log for segment in once]
    last = one_pass(again, 2_000 + RETENTION_MS, len(before))
    check_offsets(last)
    assert decoded(last) == {record.offset: record for record in newest.values() if record.value is not None}
    assert one_pass(last, 10**9, len(before)) == last
