"""What an open log knows of itself, and all its reads.

Owns the state that `Log` changes and everybody else only looks at. Reads may come from any thread, also
while the log is appended to; must never change a file.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tiered.errors import LogDirFailed, OffsetOutOfRange, ShuttingDown
from tiered.file_slice import FileSlice
from tiered.formats.producer_snapshot import ProducerEntry, encode_producers
from tiered.hot.file_system import FileSystem, read_whole
from tiered.hot.flush import FlushState, producers_of
from tiered.hot.lookup import Lookup
from tiered.hot.marks import COMPACTED_FILE, MAX_MARK_BYTES, decode_compacted
from tiered.hot.recovery import Recoverer
from tiered.hot.recovery_report import Recovery
from tiered.hot.segment import LOG_SUFFIX, OFFSET_ENTRY_BYTES, SegmentInfo, SegmentState
from tiered.hot.segment_files import OpenSegments, SegmentFile
from tiered.hot.side_files import SideFiles
from tiered.rules.partition.rolling import should_roll
from tiered.rules.replication.leader_epochs import LeaderEpochs
from tiered.rules.segments.compaction import Compacted

NEVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log; Kafka's names and defaults. Replaceable while the log is open."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    max_index_bytes: int = 10 << 20
    flush_messages: int = NEVER_MS
    flush_ms: int = NEVER_MS


class LogView:
    """The state of an open log. `Log.open` makes one."""

    __slots__ = (
        "_closed",
        "_config",
        "_directory",
        "_failed",
        "_flushing",
        "_fs",
        "_lock",
        "_lookup",
        "_open_segments",
        "_segments",
        "_side",
        "on_failure",
        "producer_source",
        "recovery",
    )

    def __init__(
        self, directory: str, fs: FileSystem, config: LogConfig, recoverer: Recoverer, open_segments: OpenSegments
    ) -> None:
        found = recoverer.run()
        self._directory = directory
        self._fs = fs
        self._config = config
        self._open_segments = open_segments
        self._lookup = Lookup(fs, open_segments, config.index_interval_bytes)
        self._segments = tuple(found.segments)
        self._side = SideFiles(
            directory,
            fs,
            log_start_offset=found.log_start_offset,
            leader_epochs=found.leader_epochs,
            leader_epochs_kept=found.leader_epochs_kept,
            snapshot_offsets=found.snapshot_offsets,
            compacted=decode_compacted(read_whole(fs, f"{directory}/{COMPACTED_FILE}", max_bytes=MAX_MARK_BYTES)),
        )
        if self._side.compacted.clean_end_offset > self._segments[-1].end_offset:
            self._side.compacted = Compacted()  # Of records that somebody cut away: what comes there now is others.
        self._flushing = FlushState(
            directory,
            fs,
            self._side,
            open_segments,
            flushed_offset=found.flushed_offset,
            point_is_current=found.point_is_current,
            segments=self._segments,
        )
        self._failed: str | None = None
        self._closed = False
        self._lock = threading.Lock()
        """Held while the list of segments changes; after the flush's own lock where both are."""
        self.producer_source: Callable[[], Iterable[ProducerEntry]] | None = None
        """Gives the state of all producers at the log's end, when a segment is closed; the owner sets it."""
        self.on_failure: Callable[[], None] | None = None
        """Told, in whichever thread it happens, before anybody else can know that the log has failed; the owner sets
        it. Blocking."""
        self.recovery: Recovery = found.report

    # What is known

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def active_base_offset(self) -> int:
        """Where the active segment begins: everything below is closed."""
        return self._segments[-1].base_offset

    def segment_base_offset(self, offset: int) -> int:
        """Where the segment begins that holds `offset`; the first one's or the last one's base outside the log."""
        segments = self._segments
        if offset >= segments[-1].base_offset:
            return segments[-1].base_offset
        return segments[max(0, bisect_right(segments, offset, key=lambda each: each.base_offset) - 1)].base_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments[-1].extent[0]

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read; below it everything is deleted."""
        return self._side.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset that this disk holds and that may be read."""
        return max(self._segments[0].base_offset, self._side.log_start_offset)

    @property
    def flushed_offset(self) -> int:
        """Everything below survives a power loss."""
        return self._flushing.flushed_offset

    @property
    def unflushed_messages(self) -> int:
        """How many records a power loss could take."""
        return self.log_end_offset - self._flushing.flushed_offset

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """Oldest first; the last one is active."""
        return tuple(segment.info() for segment in self._segments)

    @property
    def size_bytes(self) -> int:
        return sum(segment.extent[1] for segment in self._segments)

    @property
    def leader_epochs(self) -> LeaderEpochs:
        return self._side.leader_epochs

    @property
    def compacted(self) -> Compacted:
        """How far the log is compacted."""
        return self._side.compacted

    @property
    def failed(self) -> str | None:
        """Why this log takes no more appends until the process restarts; None while it does."""
        return self._failed

    # Failure

    def _refuse(self) -> None:
        if self._failed is not None:
            raise LogDirFailed(self._failed)
        raise ShuttingDown(f"{self._directory} is closed; refresh metadata and retry")

    def fail(self, reason: str) -> str:
        """Stops appends and flushes for the life of this process: only a restart finds out what is on disk."""
        if self._failed is None:
            self._failed = f"{self._directory}: {reason}. Check the disk, then restart the broker to recover this log"
            if self.on_failure is not None:
                self.on_failure()
        return self._failed

    # Read

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one_batch: bool = True) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, of one segment, none of them at or beyond `end_offset`.

        At most `max_bytes`, but with `min_one_batch` one batch at least. None when there is nothing (yet).
        Raises OffsetOutOfRange outside the local log, OSError when the disk fails.
        """
        segments = self._segments
        log_end_offset = segments[-1].extent[0]
        if offset < segments[0].base_offset or offset > log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in the local log, which begins at {segments[0].base_offset} and ends before "
                f"{log_end_offset}"
            )
        if offset >= end_offset or offset == log_end_offset:
            return None
        return self._lookup.read(segments, offset, max_bytes, end_offset, min_one_batch)

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first local record below `end_offset` with at least this timestamp.

        Decodes one batch. Raises CorruptBatch when that batch is damaged, OSError.
        """
        return self._lookup.first_at_or_after(self._segments, timestamp_ms, self._side.log_start_offset, end_offset)

    def max_timestamp_offset(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first local record with the greatest timestamp; None when none has one."""
        return self._lookup.greatest(self._segments, self._side.log_start_offset)

    def segment_for_upload(self, base_offset: int) -> SegmentFile:
        """A closed segment with all that its object needs, open until its `close`. Raises OSError."""
        with self._lock:  # Compaction puts another file in the place of a segment's.
            segments = self._segments
            segment = next((each for each in segments if each.base_offset == base_offset), None)
            assert segment is not None, f"no segment begins at {base_offset}"
            assert segment.closed, f"the segment at {base_offset} is still appended to"
            file = self._fs.open(segment.path + LOG_SUFFIX)
        return SegmentFile(
            path=segment.path + LOG_SUFFIX,
            file=file,
            base_offset=base_offset,
            end_offset=segment.end_offset,
            size_bytes=segment.size_bytes,
            leader_epochs=self._side.leader_epochs.covering(base_offset, segment.end_offset),
            snapshot_source=lambda: encode_producers(
                producers_of(self._fs, self._directory, self._side, segments, segment.end_offset)
            ),
        )

    def flush_is_due(self, now_ms: int) -> bool:
        """True when the oldest unflushed record has waited `flush_ms`, a closed segment is not on disk yet, or a
        restart would have too much to scan."""
        if self._failed is not None or self._closed:
            return False
        return self._flushing.is_due(self._segments[-1], now_ms, self._config.flush_ms)

    def latest_snapshot(self, at_or_below: int) -> tuple[int, tuple[ProducerEntry, ...]] | None:
        """The newest good snapshot not above the offset, and its offset; None when there is none."""
        return self._side.latest_snapshot(at_or_below)

    def producers_at_end(self) -> tuple[ProducerEntry, ...]:
        """The state of all producers at the log's end, from the newest snapshot and the batches after it."""
        return producers_of(self._fs, self._directory, self._side, self._segments, self.log_end_offset)

    def _has_changed(self) -> bool:
        """False when a restart would find everything as it is, or nothing at all."""
        active = self._segments[-1]
        if len(self._segments) == 1 and active.size_bytes == 0:
            return False
        return self._flushing.has_changed(active)

    def _roll_is_due(self, active: SegmentState, incoming_bytes: int, last_offset: int, now_ms: int) -> bool:
        """Whether these bytes, up to `last_offset`, belong in a new segment."""
        config, index = self._config, active.offset_index
        return should_roll(
            segment_bytes_now=active.extent[1],
            incoming_bytes=incoming_bytes,
            first_append_ms=active.first_append_ms,
            now_ms=now_ms,
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            base_offset=active.base_offset,
            incoming_last_offset=last_offset,
            index_is_full=index is not None and OFFSET_ENTRY_BYTES * (len(index) + 1) > config.max_index_bytes,
        )
