"""The work due for one partition's tiers now: uploads, local deletions, total retention.

Brings a partition's state and settings to the rules, and their answers back. Decides nothing itself and
changes nothing: `upload_pipeline`, `segment_lifecycle` and `retention` act on the answers.
"""

from collections.abc import Sequence
from itertools import pairwise

from tiered.broker.partitions.partition import Partition
from tiered.hot.segment import SegmentInfo
from tiered.rules.pacing.upload_turns import DueUpload
from tiered.rules.segments import retention
from tiered.rules.segments.retention import UNLIMITED, Pin, Retention
from tiered.rules.segments.tiering import UploadPlan, next_uploads


def due_upload(partition: Partition, now_ms: int) -> DueUpload | None:
    """The closed segment that goes to the store next (T1); None when none is due."""
    if partition.cold_end_offset >= partition.log.active_base_offset:
        return None  # Asked of every partition several times a second, and nearly always the answer.
    plan = upload_plan(partition, now_ms)
    if not plan.uploads:
        return None
    segment = plan.uploads[0]
    return DueUpload(
        where=partition.topic_partition,
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        since_ms=segment.created_ms,
    )


def overdue_bytes(partition: Partition, now_ms: int) -> int:
    """Bytes of closed, stable segments that the object store does not hold yet."""
    if partition.cold_end_offset >= partition.log.active_base_offset:
        return 0  # As in `due_upload`: nearly always the answer, and asked of every partition at once.
    return upload_plan(partition, now_ms).overdue_bytes


def overdue_end_offset(partition: Partition, now_ms: int, grace_ms: int) -> int:
    """Offsets from `cold_end_offset` up to here should be in the object store: they were due `grace_ms` ago already.
    `cold_end_offset` when none is late."""
    end_offset = partition.cold_end_offset
    if end_offset >= partition.log.active_base_offset:
        return end_offset
    late_ms = now_ms - grace_ms
    segments = partition.log.segments
    due = {each.base_offset for each in upload_plan(partition, late_ms, limit=len(segments)).uploads}
    for segment, follower in pairwise(segments):
        # A segment is closed when the next one begins.
        if segment.base_offset in due and follower.created_ms <= late_ms:
            end_offset = segment.end_offset
    return end_offset


def oldest_waiting_ms(partition: Partition) -> int | None:
    """When the oldest segment that waits for its upload was closed at the latest; None when none waits."""
    if partition.cold_end_offset >= partition.log.active_base_offset or not partition.config.uploads:
        return None
    for segment in partition.log.segments:
        if segment.closed and segment.end_offset > partition.cold_end_offset:
            return segment.created_ms
    return None


def disk_only_since_ms(partition: Partition) -> int | None:
    """When the oldest record was written that is on brokers' disks alone; None where there is none, or nothing of the
    topic goes to the store. As exact as the log is: the moment at which its segment was begun."""
    stored_to = max(partition.cold_end_offset, partition.log_start_offset)
    if not partition.config.uploads or partition.log.log_end_offset <= stored_to:
        return None
    active_since_ms = partition.log.active_since_ms
    if stored_to >= partition.log.active_base_offset:
        return active_since_ms
    return next(
        (segment.created_ms for segment in partition.log.segments if segment.end_offset > stored_to), active_since_ms
    )


def upload_plan(partition: Partition, now_ms: int, limit: int = 1) -> UploadPlan[SegmentInfo]:
    config = partition.config
    return next_uploads(
        partition.log.segments,
        log_start_offset=partition.log_start_offset,
        cold_end_offset=partition.cold_end_offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        remote_enabled=config.uploads,
        copy_lag_ms=config.effective_remote_copy_lag_ms,
        copy_lag_bytes=config.effective_remote_copy_lag_bytes,
        now_ms=now_ms,
        limit=limit,
    )


def roll_if_expired(partition: Partition, now_ms: int) -> None:
    """Closes the active segment when retention has outlived all of it, so that it can go too, as in Kafka.

    Raises LogDirFailed; then the active segment goes on.
    """
    active = partition.log.segments[-1]
    config = partition.config
    if (
        config.deletes_old_segments
        and config.retention_ms >= 0
        and active.size_bytes > 0
        and active.max_timestamp_ms >= 0
        and retention.newest_ms(active) < now_ms - config.retention_ms
    ):
        partition.changed()
        partition.log.roll(now_ms)


def has_retention(partition: Partition) -> bool:
    """Whether the topic's total retention ever takes anything: False spares a look at every segment."""
    config = partition.config
    return config.deletes_old_segments and (config.retention_ms, config.retention_bytes) != (UNLIMITED, UNLIMITED)


def total_retention(
    partition: Partition, now_ms: int, *, pins: Sequence[Pin], clock_is_trusted: bool, max_segments: int
) -> Retention:
    """Where `log_start_offset` should be by the topic's total retention (T6), never below where it is, and why."""
    config = partition.config
    deletes = config.deletes_old_segments
    return retention.new_log_start_offset(
        partition.committed,
        partition.log.segments,
        log_start_offset=partition.log_start_offset,
        cold_end_offset=partition.cold_end_offset,
        high_watermark=partition.high_watermark,
        retention_ms=config.retention_ms if deletes else UNLIMITED,
        retention_bytes=config.retention_bytes if deletes else UNLIMITED,
        # A segment that is not to be uploaded need not wait, or it would stay for as long as uploads are switched off.
        remote_enabled=config.uploads,
        pins=pins,
        now_ms=now_ms,
        clock_is_trusted=clock_is_trusted,
        max_segments=max_segments,
    )


def local_delete_before(partition: Partition, now_ms: int) -> int:
    """Local segments wholly below this offset may go: committed rows cover them, or nobody may read them, and
    local retention gives them up (T4). 0 when none may."""
    before = local_retention(partition, now_ms).delete_before_offset
    first = partition.log.segments[0].base_offset
    return before if before > first else 0


def local_retention(partition: Partition, now_ms: int) -> Retention:
    """Which local segments may go, and why the others stay (T4)."""
    config = partition.config
    return retention.local_delete_before(
        partition.log.segments,
        log_start_offset=partition.log_start_offset,
        cold_end_offset=partition.cold_end_offset,
        high_watermark=partition.high_watermark,
        local_retention_ms=config.effective_local_retention_ms,
        local_retention_bytes=config.effective_local_retention_bytes,
        remote_enabled=config.remote_storage_enable,
        small_bytes=config.small_segment_bytes,
        now_ms=now_ms,
    )
