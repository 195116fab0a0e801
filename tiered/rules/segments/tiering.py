"""Which closed segments go to the object store next, and why the others wait (T1).

Owns that decision for one partition. Pure: values and the time in, a plan out; `broker.tiering.segment_lifecycle`
carries it out, one segment after the other, because each commit must begin where the last one ended (T3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

IMMEDIATELY = 0
NEVER = -1


class LocalSegment(Protocol):
    """The facts about a segment file that a rule needs."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def max_timestamp_ms(self) -> int:
        """-1 when no record carries a timestamp."""

    @property
    def created_ms(self) -> int:
        """When the broker wrote its first record, by the broker's clock."""

    @property
    def written_ms(self) -> int:
        """When the broker wrote its last record, by the broker's clock."""

    @property
    def times_are_proven(self) -> bool:
        """Whether brokers have looked at every record, so that the greatest timestamp is no mere claim."""

    @property
    def closed(self) -> bool: ...


S = TypeVar("S", bound=LocalSegment)


def aged_from_ms(segment: LocalSegment) -> int:
    """The moment from which a segment's age counts where nothing is deleted for good: its newest record's time, but
    never later than the broker wrote it, so that a client's clock that is ahead holds nothing up. A time that is
    missing, or not proven, counts as new."""
    if segment.times_are_proven and segment.max_timestamp_ms >= 0:
        return min(segment.max_timestamp_ms, segment.written_ms)
    return segment.written_ms


class UploadWait(StrEnum):
    """Why the first segment that is not uploaded has to wait."""

    NOTHING_LEFT = "every closed segment is in the object store"
    DISABLED = "remote.storage.enable is false, or copying is disabled"
    ACTIVE = "only the active segment is left: it is uploaded when it has rolled"
    NOT_STABLE = "the segment reaches beyond the high watermark or the last stable offset"
    COPY_LAG = "remote.copy.lag.ms and remote.copy.lag.bytes ask for a later upload"
    MISSING_LOCALLY = "the local log begins above what the object store holds: offsets in between are lost here"
    MISALIGNED = "a local segment straddles the end of what the object store holds"
    LIMIT = "enough for one round"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPlan(Generic[S]):
    """The segments to upload now, oldest first and without a gap, and why there are not more.

    `skip_to_offset`: offsets below it were deleted before they were uploaded, so `cold_end_offset` has to be
    moved there first (with `log_start_offset` at or above it, nothing that can be read is skipped).
    `overdue_bytes`: bytes of closed, stable segments that are not in the object store yet.
    """

    uploads: tuple[S, ...]
    waiting: UploadWait
    skip_to_offset: int | None
    overdue_bytes: int


def next_uploads(
    segments: Sequence[S],
    *,
    log_start_offset: int,
    cold_end_offset: int,
    high_watermark: int,
    last_stable_offset: int,
    remote_enabled: bool,
    copy_lag_ms: int,
    copy_lag_bytes: int,
    now_ms: int,
    limit: int = 1,
) -> UploadPlan[S]:
    """The next segments to upload, at most `limit`, of the local `segments` (by base offset, the active one last).

    `copy_lag_ms` and `copy_lag_bytes` are effective values: a segment is due when its newest record is that old
    (see `aged_from_ms`) or that many bytes are newer than it; 0 means at once, -1 that this check never makes it due
    (KIP-1241).
    """
    stable_end_offset = min(high_watermark, last_stable_offset)
    wanted = [segment for segment in segments if segment.end_offset > max(cold_end_offset, log_start_offset)]
    overdue_bytes = sum(
        segment.size_bytes for segment in wanted if segment.closed and segment.end_offset <= stable_end_offset
    )

    def decided(uploads: Sequence[S], waiting: UploadWait, skip_to_offset: int | None = None) -> UploadPlan[S]:
        return UploadPlan(
            uploads=tuple(uploads),
            waiting=waiting,
            skip_to_offset=skip_to_offset if uploads else None,
            overdue_bytes=overdue_bytes if remote_enabled else 0,
        )

    if not remote_enabled:
        return decided((), UploadWait.DISABLED)
    if not wanted:
        return decided((), UploadWait.NOTHING_LEFT)
    first = wanted[0]
    # DeleteRecords may have moved both into the segment: it goes as a whole, its beginning stays unreadable.
    if first.base_offset < cold_end_offset and cold_end_offset != log_start_offset:
        return decided((), UploadWait.MISALIGNED)
    skip_to_offset = None
    if first.base_offset > cold_end_offset:
        if first.base_offset > log_start_offset:
            return decided((), UploadWait.MISSING_LOCALLY)
        skip_to_offset = first.base_offset

    newer_bytes = sum(segment.size_bytes for segment in wanted)
    uploads: list[S] = []
    for segment in wanted:
        newer_bytes -= segment.size_bytes
        if not segment.closed:
            return decided(uploads, UploadWait.ACTIVE, skip_to_offset)
        if segment.end_offset > stable_end_offset:
            return decided(uploads, UploadWait.NOT_STABLE, skip_to_offset)
        if not _is_due(segment, newer_bytes, copy_lag_ms, copy_lag_bytes, now_ms):
            return decided(uploads, UploadWait.COPY_LAG, skip_to_offset)
        if len(uploads) == limit:
            return decided(uploads, UploadWait.LIMIT, skip_to_offset)
        uploads.append(segment)
    return decided(uploads, UploadWait.NOTHING_LEFT, skip_to_offset)


def _is_due(segment: LocalSegment, newer_bytes: int, copy_lag_ms: int, copy_lag_bytes: int, now_ms: int) -> bool:
    if IMMEDIATELY in (copy_lag_ms, copy_lag_bytes):
        return True
    by_age = copy_lag_ms != NEVER and now_ms - aged_from_ms(segment) >= copy_lag_ms
    by_size = copy_lag_bytes != NEVER and newer_bytes >= copy_lag_bytes
    return by_age or by_size
