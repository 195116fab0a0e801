"""Flushes a log to disk, and records how far it is flushed.

Owns `flushed_offset` and the recovery point. Must never count bytes as flushed before the disk has said so, nor let the
recovery point say more than is true.
"""

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from tiered.formats.producer_snapshot import ProducerEntry
from tiered.hot.file_system import FileSystem
from tiered.hot.marks import RecoveryPoint, SegmentMark
from tiered.hot.producer_files import producers_at
from tiered.hot.recovery_report import Recovered
from tiered.hot.segment import LOG_SUFFIX, LogSegment
from tiered.hot.segment_files import OpenSegments, write_indexes, write_indexes_below, write_transaction_index
from tiered.hot.side_files import SideFiles
from tiered.rules.partition.rolling import NEVER_MS

log = logging.getLogger(__name__)

RECOVERY_STEP_BYTES = 256 << 20
"""The recovery point is written when a segment is flushed, or so much more of one: a restart scans no more."""

Segments = tuple[LogSegment, ...]


class FlushState:
    """One log's flushes. `run` belongs in a thread, one at a time under `lock`; appends go on beside it."""

    __slots__ = (
        "_closed_waiting",
        "_directory",
        "_fs",
        "_open_segments",
        "_point_bytes",
        "_point_offset",
        "_side",
        "directory_changed",
        "flushed_offset",
        "lock",
        "waiting_since_ms",
    )

    def __init__(
        self,
        directory: str,
        fs: FileSystem,
        side: SideFiles,
        open_segments: OpenSegments,
        found: Recovered,
    ) -> None:
        self._directory = directory
        self._fs = fs
        self._side = side
        self._open_segments = open_segments
        self.lock = threading.Lock()
        """Whoever takes flushed records back holds it too."""
        self.flushed_offset = found.flushed_offset
        self.waiting_since_ms: int | None = None
        """When the oldest unflushed record was appended; the log sets it."""
        self.directory_changed = not found.point_is_current
        self._closed_waiting = any(not segment.synced for segment in found.segments[:-1])
        active = found.segments[-1]
        self._point_bytes = active.size_bytes if found.point_is_current else 0
        self._point_offset = active.end_offset if found.point_is_current else -1

    def due_ms(self, active: LogSegment, flush_ms: int) -> int:
        """When the oldest unflushed record will have waited `flush_ms`; 0 where a closed segment is not on disk yet, or
        a restart would have too much to scan."""
        if self._closed_waiting or active.extent[1] - self._point_bytes >= RECOVERY_STEP_BYTES:
            return 0
        since_ms = self.waiting_since_ms
        return NEVER_MS if since_ms is None else since_ms + flush_ms

    def has_changed(self, active: LogSegment) -> bool:
        """False when the recovery point says all there is to say."""
        return self.directory_changed or self._closed_waiting or self._point_offset != active.end_offset

    def note_closed_segment(self) -> None:
        """A segment was closed and another file created."""
        self._closed_waiting = True
        self.directory_changed = True

    def take_back(self, end_offset: int) -> None:
        """The log is cut to end at `end_offset`; its recovery point has been lowered."""
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self._point_bytes, self._point_offset = 0, -1

    def forget_point(self) -> None:
        """The recovery point may say less than it did."""
        self._point_bytes, self._point_offset = 0, -1

    def begin_anew(self, offset: int) -> None:
        """The log is empty and begins at `offset`; it has no recovery point."""
        self.flushed_offset = offset
        self._point_bytes, self._point_offset = 0, -1

    def run(self, segments: Segments, *, closing: bool = False) -> None:
        """Brings everything appended before the call to disk.

        Raises OSError only where bytes or names may not be there, and while closing: a recovery point that
        can't be written costs time at a restart and nothing else. Whatever it raises, all of it is due again.
        """
        since_ms = self.waiting_since_ms
        try:
            self._run(segments, closing=closing)
        except OSError:
            if since_ms is not None:
                self.waiting_since_ms = since_ms
            self._closed_waiting = self.directory_changed = True
            raise

    def _run(self, segments: Segments, *, closing: bool) -> None:
        self.waiting_since_ms = None
        self._closed_waiting = False
        active, mark = segments[-1], segments[-1].mark()
        dirty = [segment for segment in segments[:-1] if not segment.synced]
        directory_changed, self.directory_changed = self.directory_changed, False
        for segment in dirty:
            self._fs.sync(segment.file or self._fs.open(segment.path + LOG_SUFFIX))
        assert active.file is not None
        if mark.end_offset > self.flushed_offset:
            self._fs.sync(active.file)
        advanced = mark.size_bytes - self._point_bytes
        named = False
        if dirty or closing or not 0 <= advanced < RECOVERY_STEP_BYTES:
            try:
                self._write_point(segments, dirty, mark)
                named = True
            except OSError as error:
                if closing:
                    raise
                self._closed_waiting = bool(dirty)
                log.warning("%s: no recovery point, a restart will scan more: %s", self._directory, error)
        if directory_changed and not named:
            self._fs.sync_directory(self._directory)
        self.flushed_offset = max(self.flushed_offset, mark.end_offset)

    def _write_point(self, segments: Segments, dirty: Sequence[LogSegment], active_mark: SegmentMark) -> None:
        """Writes the indexes and epochs of what is flushed, then the point, then syncs the directory. Raises OSError.

        The other indexes are not synced: after a power loss a bad one shows by its size or its order and is rebuilt.
        """
        for segment in dirty:
            if not self._side.has_snapshot(segment.end_offset):
                producers = producers_of(self._fs, self._directory, self._side, segments, segment.end_offset)
                bases = [each.base_offset for each in segments]
                self._side.write_snapshot(segment.end_offset, producers, bases)
            if segment.offset_index is not None:
                segment.index_bytes = write_indexes(self._fs, segment)
            write_transaction_index(self._fs, segment, segment.end_offset)
        sizes = write_indexes_below(self._fs, segments[-1], active_mark.end_offset)
        aborted_bytes = write_transaction_index(self._fs, segments[-1], active_mark.end_offset)
        mark = replace(
            active_mark,
            offset_index_bytes=sizes[0],
            time_index_bytes=sizes[1],
            transaction_index_bytes=aborted_bytes,
        )
        self._side.keep_leader_epochs(active_mark.end_offset)
        self._side.keep_recovery_point(RecoveryPoint(segments=(*(segment.mark() for segment in segments[:-1]), mark)))
        for segment in dirty:
            segment.synced = True
            if segment.file is not None and segment.offset_index is not None:
                self._open_segments.put(segment, segment.file, segment.offset_index)
            segment.offset_index = segment.time_index = segment.file = None
        self._point_bytes = active_mark.size_bytes
        self._point_offset = active_mark.end_offset


def producers_of(
    fs: FileSystem, directory: str, side: SideFiles, segments: Segments, offset: int
) -> tuple[ProducerEntry, ...]:
    """The state of all producers when the log ended at `offset`. Raises CorruptBatch, OSError."""
    return tuple(producers_at(fs, directory, segments, side.snapshot_offsets, offset, []).values())
