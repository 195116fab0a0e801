"""A range of bytes in an open file: what a read of the log answers with, in either tier, and a Fetch response sends.

Owns the reference that keeps the file open: a segment or a cached chunk may be unlinked while a slow
client still reads it, and the bytes stay until the last slice is gone. Must never read ahead or cache.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO

from tiered.formats.segment_object import AbortedIndexEntry


class OpenFile(FileIO):
    """A file that is closed, without a complaint, when the last reference goes: its owner's, or a slice's that a client
    still reads."""

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSlice:
    """`length` bytes of `file` from `position`."""

    file: FileIO
    position: int
    length: int

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self) -> bytes:
        """The bytes, in memory of their own; raises OSError, or EOFError when the file is shorter than it was."""
        data = os.pread(self.file.fileno(), self.length, self.position)
        while len(data) < self.length:
            more = os.pread(self.file.fileno(), self.length - len(data), self.position + len(data))
            if not more:
                raise EOFError(f"file ends {self.length - len(data)} bytes before the slice does")
            data += more
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBatches:
    """Whole batches, and the aborted transactions that have a part in them: a reader of what is committed skips
    their records. The two are of one moment: what retention or compaction takes meanwhile is missing in neither."""

    records: FileSlice
    aborted: Sequence[AbortedIndexEntry] = ()
