"""Walks the batches of a segment file from one header to the next.

Owns the blocks it reads and nothing else: bounded memory whatever the file holds. Must never decode a
record; a batch's bytes are read only where their CRC is asked for.
"""

from collections.abc import Callable, Iterable, Iterator
from io import FileIO

from tiered.errors import CorruptBatch, ShuttingDown
from tiered.formats.record_batch import HEADER_BYTES, BatchHeader, read_header, verify_crc
from tiered.hot.file_system import FileSystem

NEAR_BLOCK_BYTES = 8 * 1024
"""One read finds a batch between two entries of the index, which are 4 KiB apart."""

FAR_BLOCK_BYTES = 256 * 1024
"""For walks over a whole segment."""


class BlockReader:
    """The parts of one file below `end`, read in blocks. Not safe for use by two threads."""

    __slots__ = ("_block", "_block_bytes", "_block_position", "_end", "_file", "_fs")

    def __init__(self, fs: FileSystem, file: FileIO, block_bytes: int, end: int) -> None:
        self._fs = fs
        self._file = file
        self._block_bytes = block_bytes
        self._end = end
        self._block = b""
        self._block_position = 0

    def at(self, position: int, length: int) -> tuple[bytes, int]:
        """A buffer and the index in it where the file's `length` bytes from `position` begin.

        Raises CorruptBatch when the file ends before, OSError when the disk fails.
        """
        index = position - self._block_position
        if index < 0 or index + length > len(self._block):
            wanted = min(max(length, self._block_bytes), self._end - position)
            self._block = self._fs.read(self._file, wanted, position)
            self._block_position = position
            index = 0
            if len(self._block) < length:
                raise CorruptBatch(f"the file ends within a batch, {length - len(self._block)} bytes early")
        return self._block, index


def walk(
    fs: FileSystem,
    file: FileIO,
    position: int,
    end: int,
    *,
    verify_from: int | None = None,
    block_bytes: int = NEAR_BLOCK_BYTES,
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position` (a boundary) to `end`, exclusive.

    The CRC of batches at `verify_from` and later is checked. Raises CorruptBatch at the first batch that
    is not whole or not valid; everything given before that is.
    """
    blocks = BlockReader(fs, file, block_bytes, end)
    while position < end:
        block, index = blocks.at(position, HEADER_BYTES)
        header = read_header(block, index)
        if header.size_bytes > end - position:
            raise CorruptBatch(
                f"the batch at position {position} claims {header.size_bytes} bytes, {end - position} are left"
            )
        if verify_from is not None and position >= verify_from:
            block, index = blocks.at(position, header.size_bytes)
            verify_crc(block, index, header.size_bytes)
        yield position, header
        position += header.size_bytes


def until_stopped(
    batches: Iterable[tuple[int, BatchHeader]], is_stopping: Callable[[], bool]
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches of a walk over a whole segment. Raises ShuttingDown once the process is to end."""
    for batch in batches:
        require_running(is_stopping)
        yield batch


def require_running(is_stopping: Callable[[], bool]) -> None:
    """Raises ShuttingDown once the process is to end."""
    if is_stopping():
        raise ShuttingDown("stopped before the log was open; the next start begins again")


def never() -> bool:
    """For whoever is not stopped before the work is done."""
    return False
