"""The segments that compaction may look at, when it is due, and the fate of each record and batch.

Owns these decisions for one partition. Pure: values and the time in, decisions out; `hot.compaction` carries them out.
Must never let a record go whose key has no newer one below the same bound, nor the last batch of a producer that may
still write: its sequence tells duplicates. Nor a marker while a batch of its transaction stays: without it the
transaction would look open.

Kafka's meaning throughout (KIP-58, KIP-354, KIP-534): the clean part of a log was compacted before, the dirty part
follows it, and what is active, not stable or too young follows that. The newest offset of each key of the dirty part
is found out first; then everything below the part's end is looked at again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tiered.formats.aborted_ranges import AbortedRanges
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.formats.record_batch import BatchHeader
from tiered.rules.segments.tiering import LocalSegment, aged_from_ms

NOT_FOUND = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The result of earlier passes over a log: everything below `clean_end_offset` has one record of each key, and
    tombstones or markers that may go from `tombstones_due_ms` on; None when there are none."""

    clean_end_offset: int = 0
    tombstones_due_ms: int | None = None


class CompactionReason(StrEnum):
    """Why a partition is compacted now, or not."""

    DIRTY = "more of it than min.cleanable.dirty.ratio was not compacted yet"
    LATE = "a record waits for longer than max.compaction.lag.ms"
    TOMBSTONES = "tombstones have outlived delete.retention.ms"
    CLEAN = "too little of it was not compacted yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The dirty part `[first_dirty_offset, end_offset)` of a log, and whether it is compacted now."""

    first_dirty_offset: int
    end_offset: int
    dirty_bytes: int
    clean_bytes: int
    why: CompactionReason

    @property
    def is_due(self) -> bool:
        return self.why is not CompactionReason.CLEAN

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(1, self.dirty_bytes + self.clean_bytes)


def due(
    segments: Sequence[LocalSegment],
    compacted: Compacted,
    *,
    log_start_offset: int,
    high_watermark: int,
    last_stable_offset: int,
    min_dirty_ratio: float,
    min_lag_ms: int,
    max_lag_ms: int,
    keeps_tombstones: bool = False,
    now_ms: int,
) -> Due:
    """The dirty part of these segments (by base offset, the active one last), and whether a pass is due.

    Only closed segments count that are wholly below `last_stable_offset` and `high_watermark`, and no segment from
    the first on that is younger (`aged_from_ms`) than `min_lag_ms`. With `keeps_tombstones` no pass is due for their
    sake.
    """
    start_offset = segments[0].base_offset if segments else 0
    stable_end_offset = min(high_watermark, last_stable_offset)
    end_offset = start_offset
    first_dirty_offset = max(compacted.clean_end_offset, start_offset, log_start_offset)
    clean_bytes = dirty_bytes = 0
    oldest_dirty_ms: int | None = None
    for segment in segments:
        if not segment.closed or segment.end_offset > stable_end_offset:
            break
        is_dirty = segment.end_offset > first_dirty_offset
        if is_dirty and min_lag_ms > 0 and aged_from_ms(segment) > now_ms - min_lag_ms:
            break
        end_offset = segment.end_offset
        if is_dirty:
            dirty_bytes += segment.size_bytes
            if oldest_dirty_ms is None:
                oldest_dirty_ms = segment.created_ms
        else:
            clean_bytes += segment.size_bytes
    found = Due(
        first_dirty_offset=min(first_dirty_offset, end_offset),
        end_offset=end_offset,
        dirty_bytes=dirty_bytes,
        clean_bytes=clean_bytes,
        why=CompactionReason.CLEAN,
    )
    why = CompactionReason.CLEAN
    if oldest_dirty_ms is not None and now_ms - oldest_dirty_ms > max_lag_ms:
        why = CompactionReason.LATE
    elif dirty_bytes and found.dirty_ratio > min_dirty_ratio:
        why = CompactionReason.DIRTY
    elif (
        not keeps_tombstones
        and compacted.tombstones_due_ms is not None
        and compacted.tombstones_due_ms <= now_ms
        and clean_bytes
    ):
        why = CompactionReason.TOMBSTONES
    return Due(
        first_dirty_offset=found.first_dirty_offset,
        end_offset=end_offset,
        dirty_bytes=dirty_bytes,
        clean_bytes=clean_bytes,
        why=why,
    )


def most_urgent(found: Iterable[tuple[int, Due]]) -> int | None:
    """The number of the partition to compact next, among those that are due: late ones, then by their dirty share."""
    due_now = [(number, each) for number, each in found if each.is_due]
    if not due_now:
        return None
    return max(due_now, key=lambda pair: (pair[1].why is CompactionReason.LATE, pair[1].dirty_ratio))[0]


def is_aborted(header: BatchHeader, aborted: AbortedRanges) -> bool:
    """Whether the batch has records of an aborted transaction: consumers skip them, and so does compaction."""
    return header.is_transactional and not header.is_control and aborted.hold(header.producer_id, header.base_offset)


def keeps_record(
    *,
    offset: int,
    newest_offset: int,
    has_key: bool,
    has_value: bool,
    delete_horizon_ms: int | None,
    now_ms: int,
) -> bool:
    """Whether a record below the map's end stays. `newest_offset` is where its key was seen last, -1 if it was not.

    A record without a key can be nobody's newest: it goes, as in Kafka. A tombstone stays until its batch's delete
    horizon, so that whoever reads from the start at any moment learns of the deletion in time.
    """
    if not has_key or offset < newest_offset:
        return False
    return has_value or delete_horizon_ms is None or now_ms < delete_horizon_ms


class BatchFate(StrEnum):
    """The fate of a batch from which records went, by what is left of it."""

    KEEP = "with the records that stay"
    EMPTY = "without records, for its producer's sake"
    GO = "only its offsets stay"


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch of a producer that may still write. `last_offset` is where the last one with records ends; None
    where there is none of this epoch, and a marker tells the epoch."""

    producer_epoch: int
    last_offset: int | None


def last_batches(producers: Iterable[ProducerEntry]) -> dict[int, LastBatch]:
    """The last batch of each producer by its id."""
    return {
        entry.producer_id: LastBatch(entry.producer_epoch, entry.batches[-1].last_offset if entry.batches else None)
        for entry in producers
    }


def fate(header: BatchHeader, *, kept_records: int, last_batches: Mapping[int, LastBatch]) -> BatchFate:
    """The fate of a batch that is no marker. `last_batches` has those of the producers that may still write here."""
    if kept_records:
        return BatchFate.KEEP
    last = last_batches.get(header.producer_id) if header.producer_id >= 0 else None
    return BatchFate.EMPTY if last is not None and last.last_offset == header.last_offset else BatchFate.GO


class MarkerFate(StrEnum):
    """The fate of a control batch."""

    KEEP = "as it is"
    MARK = "with a delete horizon from now on"
    GO = "only its offset stays"


class TransactionsLeft:
    """The producers whose transaction has a batch left, at the place where a pass is."""

    def __init__(self) -> None:
        self._producers: set[int] = set()

    def left(self, header: BatchHeader) -> None:
        """A batch that is no marker stays, with records or without."""
        if header.is_transactional:
            self._producers.add(header.producer_id)

    def marker_fate(
        self,
        header: BatchHeader,
        *,
        delete_horizon_ms: int | None,
        last_batches: Mapping[int, LastBatch],
        now_ms: int,
    ) -> MarkerFate:
        """The fate of the control batch that comes next. `delete_horizon_ms` is what an earlier pass wrote into it.

        It stays while anything of its transaction does, and from then on until its horizon (KIP-534): whoever reads
        from the start meanwhile learns how the transaction ended. The last one of its producer stays for its epoch.
        """
        is_needed = header.producer_id in self._producers
        self._producers.discard(header.producer_id)
        last = last_batches.get(header.producer_id)
        is_last = last is not None and last.last_offset is None and last.producer_epoch == header.producer_epoch
        if header.producer_id < 0 or is_needed or is_last:
            return MarkerFate.KEEP
        if delete_horizon_ms is None:
            return MarkerFate.MARK
        return MarkerFate.GO if delete_horizon_ms <= now_ms else MarkerFate.KEEP
