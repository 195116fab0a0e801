"""Puts a compacted file in the place of a closed segment's, while it is read.

Owns the order of that exchange. Whoever found the segment before goes on with the old file and the old index, which
stay open for them; whoever comes later finds the new ones. Must never leave an index beside a file that it was not
made for: a crash at any moment leaves one of the two files whole, with its own index or with none.
"""

from abc import ABC, abstractmethod
from contextlib import suppress

from tiered.errors import LogDirFailed
from tiered.hot.log_view import LogView
from tiered.hot.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, SegmentState
from tiered.hot.side_files import refusal
from tiered.rules.segments.compaction import Compacted


class ReplaceableLog(LogView, ABC):
    """The part of a log that compaction changes. Everything here is blocking: call it in a thread, one at a time."""

    __slots__ = ()

    @property
    def cuts(self) -> int:
        """How often records were taken back since the log was opened."""
        return self._side.cuts

    def segments_on_disk(self, end_offset: int) -> tuple[SegmentState, ...]:
        """The closed segments that begin below `end_offset`, oldest first, after a flush: for compaction alone.

        Raises LogDirFailed while one of them is not on disk for good.
        """
        self.flush()
        found = tuple(each for each in self._segments if each.closed and each.base_offset < end_offset)
        if not all(each.synced for each in found):
            raise LogDirFailed(f"{self._directory}: the recovery point is not written; the next flush tries again")
        return found

    def holds(self, segment: SegmentState) -> bool:
        """Whether the segment is still one of the log's."""
        return any(each is segment for each in self._segments)

    @abstractmethod
    def flush(self) -> None:
        """As `Log.flush`."""

    def replace_segment(self, old: SegmentState, fresh: SegmentState, path: str) -> bool:
        """Puts the file at `path`, which is on disk for good and which `fresh` describes, in the place of `old`'s.

        False when `old` is not the log's any more, or not as it was: then nothing was changed. The two hold the same
        offsets. Raises LogDirFailed: the log goes on with the old file, or with the new one and without an index.
        """
        assert (fresh.base_offset, fresh.end_offset) == (old.base_offset, old.end_offset), fresh.path
        assert fresh.file is not None
        with self._flushing.lock:  # A recovery point must tell of one of the two.
            if self._failed is not None or self._closed or not self._may_go(old):
                return False
            try:
                self._keep_open(old)
                for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                    with suppress(FileNotFoundError):
                        self._fs.unlink(old.path + suffix)
                self._fs.sync_directory(self._directory)
                with self._lock:
                    if not self._may_go(old):
                        return False
                    self._fs.rename(path, old.path + LOG_SUFFIX)
                    self._segments = tuple(fresh if each is old else each for each in self._segments)
                    # The next flush writes its indexes and a recovery point that knows its size.
                    self._flushing.note_closed_segment()
            except OSError as error:
                raise LogDirFailed(refusal(old.path + LOG_SUFFIX, error)) from error
            self._open_segments.drop(old)
            return True

    def keep_compacted(self, compacted: Compacted) -> None:
        """Remembers how far the log is compacted. Raises LogDirFailed; then it is compacted once more."""
        with self._flushing.lock:
            try:
                self._side.keep_compacted(compacted)
            except OSError as error:
                raise LogDirFailed(refusal(self._directory, error)) from error

    def _may_go(self, old: SegmentState) -> bool:
        return old.closed and old.synced and self.holds(old)

    def _keep_open(self, old: SegmentState) -> None:
        """Gives the segment what its readers would look for under its name. Raises OSError."""
        opened = self._open_segments.get(self._fs, old, self._config.index_interval_bytes)
        time_index = self._lookup.time_index(old)
        old.file, old.time_index = opened.file, time_index
        old.offset_index = opened.offset_index
