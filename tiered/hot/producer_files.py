"""The snapshots of producer state beside the segments, and the state between two of them.

Owns the files `<offset>.snapshot`: what was known of every producer when the log ended at that offset. They
only save work: a damaged one is passed over for an older one, and the batches' headers fill in the rest.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from tiered.errors import CorruptFile
from tiered.file_slice import OpenFile
from tiered.formats.control_record import MarkerType, TransactionMarker, read_marker
from tiered.formats.producer_snapshot import ProducerEntry, decode_producers
from tiered.formats.record_batch import BatchHeader
from tiered.hot.batch_walk import FAR_BLOCK_BYTES, never, until_stopped, walk
from tiered.hot.file_system import FileSystem, read_whole
from tiered.hot.segment import LOG_SUFFIX, LogSegment
from tiered.rules.partition import producer_state
from tiered.rules.partition.open_transactions import OpenTransactions

SNAPSHOT_SUFFIX = ".snapshot"
MAX_SNAPSHOT_BYTES = 1 << 30
MAX_PRODUCERS = 500_000
"""Of one partition: a segment has room for millions of ids, and each takes half a KiB of memory."""


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020}{SNAPSHOT_SUFFIX}"


def read_snapshot(fs: FileSystem, directory: str, offset: int) -> tuple[ProducerEntry, ...] | None:
    """The producers at `offset`, or None when there is no such snapshot. Raises CorruptFile, OSError."""
    data = read_whole(fs, snapshot_path(directory, offset), max_bytes=MAX_SNAPSHOT_BYTES)
    return None if data is None else decode_producers(data)


def producers_at(
    fs: FileSystem,
    directory: str,
    segments: Sequence[LogSegment],
    snapshot_offsets: Sequence[int],
    offset: int,
    notes: list[str],
    *,
    aborted_from: int | None = None,
    is_stopping: Callable[[], bool] = never,
) -> dict[int, ProducerEntry]:
    """The state of every producer when the log ended at `offset`, a boundary between batches.

    The newest good snapshot and the headers after it say so; without one, the headers of all that is local. `notes`
    names files that could not be used. With `aborted_from` the segments also get the entries of their transaction
    indexes from that offset on, which they must not have yet. Raises CorruptBatch, OSError,
    and ShuttingDown once it `is_stopping`.
    """
    bounds = fs, directory, snapshot_offsets, segments[0].base_offset
    start, producers = _newest_snapshot(*bounds, offset, notes)
    newest: tuple[int, dict[int, ProducerEntry]] | None = None
    if aborted_from is not None and aborted_from < start:
        newest = start, producers
        start, producers = _newest_snapshot(*bounds, aborted_from, notes)
    transactions = OpenTransactions(producers.values())
    for segment in segments:
        if segment.end_offset <= start or segment.base_offset >= offset:
            continue
        file = segment.file or fs.open(segment.path + LOG_SUFFIX)
        index = segment.offset_index
        position = 0 if index is None or start <= segment.base_offset else index.lookup(start)
        batches = walk(fs, file, position, segment.size_bytes, block_bytes=FAR_BLOCK_BYTES)
        for at, header in until_stopped(batches, is_stopping):
            if header.base_offset >= offset:
                break
            if newest is not None and header.base_offset >= newest[0]:
                producers, newest = newest[1], None  # It may know better: of ends that a power loss has taken.
                transactions = OpenTransactions(producers.values())
            if header.producer_id >= 0 and header.base_offset >= start:
                marker = _marker_at(fs, file, at, header) if header.is_control else None
                if header.is_control and marker is None:
                    continue
                entry = producers.pop(header.producer_id, None)  # The order is that of their last batches.
                producers[header.producer_id] = producer_state.apply(entry, header, header.base_offset, marker)
                if len(producers) > MAX_PRODUCERS:
                    _forget_one(producers)
                if aborted_from is None or not header.is_transactional:
                    continue
                ended = transactions.note(header, header.base_offset, marker)
                if ended is None or marker is None or marker.type is MarkerType.COMMIT:
                    continue
                if ended.last_offset >= aborted_from:
                    segment.aborted.append(ended)
    return producers if newest is None else newest[1]


def _newest_snapshot(
    fs: FileSystem, directory: str, snapshot_offsets: Sequence[int], first: int, last: int, notes: list[str]
) -> tuple[int, dict[int, ProducerEntry]]:
    """The offset and the producers of the newest good snapshot from `first` to `last`; none at `first` without one."""
    for candidate in sorted(snapshot_offsets, reverse=True):
        if not first <= candidate <= last:
            continue
        try:
            found = read_snapshot(fs, directory, candidate)
        except CorruptFile as error:
            notes.append(f"{snapshot_path(directory, candidate)}: {error}; an older one is used")
            continue
        if found is not None:
            return candidate, {entry.producer_id: entry for entry in found}
    return first, {}


def _marker_at(fs: FileSystem, file: OpenFile, position: int, header: BatchHeader) -> TransactionMarker | None:
    return read_marker(fs.read(file, header.size_bytes, position), 0, header)


def _forget_one(producers: dict[int, ProducerEntry]) -> None:
    """Forgets the one that was silent for longest and has no open transaction."""
    found = next((key for key, entry in producers.items() if entry.current_transaction_first_offset is None), None)
    if found is not None:
        del producers[found]


def remove_snapshots(fs: FileSystem, directory: str, offsets: Sequence[int]) -> None:
    """Unlinks these snapshots; one that cannot be removed now is found again at the next start."""
    for offset in offsets:
        with suppress(OSError):
            fs.unlink(snapshot_path(directory, offset))
