"""A leader's batches, checked one by one, and cut into runs that a follower writes with one call each.

Owns the checks: shape, CRC, offsets without a gap, epochs that do not go back. Must never look at a record that is
no marker, nor change a byte: a follower's log is the leader's, bit for bit (R4), until either of them is compacted.
Only of an empty batch, where the leader's compaction has taken many, it takes what is still missing here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tiered.errors import CorruptBatch
from tiered.formats.batch_filter import is_hole, trimmed
from tiered.formats.batch_times import UNPROVEN
from tiered.formats.control_record import TransactionMarker, read_marker
from tiered.formats.record_batch import BatchHeader, read_header, verify_crc, whole_batches
from tiered.rules.partition.open_transactions import PlacedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRun:
    """Batches of one leader epoch, back to back: `headers` has the position and header of each in `buffer`."""

    leader_epoch: int
    buffer: memoryview
    headers: tuple[tuple[int, BatchHeader], ...]
    markers: Mapping[int, TransactionMarker | None] = field(default_factory=dict)
    """What the control batches say, by position; None for one of a kind that ends no transaction."""
    times_proven_from: int = UNPROVEN
    """As `Log.append` has it."""

    def placed(self) -> Iterator[PlacedBatch]:
        """Each batch with its offset, and what it says if it is a marker."""
        for position, header in self.headers:
            yield header, header.base_offset, self.markers.get(position)

    @property
    def end_offset(self) -> int:
        return self.headers[-1][1].end_offset

    @property
    def size_bytes(self) -> int:
        position, header = self.headers[-1]
        return position + header.size_bytes - self.headers[0][0]


def checked_runs(
    buffer: memoryview,
    *,
    expected_offset: int,
    latest_epoch: int,
    leader_epoch: int,
    name: str,
    unproven_offsets: int = -1,
) -> tuple[FetchedRun, ...]:
    """The whole batches in `buffer`, by leader epoch. A last one that is cut off is left out. `unproven_offsets`: as
    many, from the first one on, are of batches whose times are not proven; all of them where it is -1.

    Raises CorruptBatch when they are not what may follow a log that ends at `expected_offset` with a record of
    `latest_epoch`, in the leader's epoch `leader_epoch`: then nothing of it may be written.
    """
    runs: list[FetchedRun] = []
    run: list[tuple[int, BatchHeader]] = []
    markers: dict[int, TransactionMarker | None] = {}
    epoch = latest_epoch
    proven = UNPROVEN if unproven_offsets < 0 else expected_offset + unproven_offsets
    for position, whole in whole_batches(buffer, 0, len(buffer)):
        verify_crc(buffer, position, whole.size_bytes)
        rest, header = b"", whole
        if not position and header.base_offset < expected_offset <= header.last_offset and is_hole(header):
            rest = trimmed(header, expected_offset)
            header = read_header(rest)
        if header.base_offset != expected_offset:
            raise CorruptBatch(
                f"{name}: the leader sent offset {header.base_offset} where {expected_offset} follows; nothing was "
                "written"
            )
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"{name}: the batch at offset {expected_offset} ends before it begins")
        found = header.partition_leader_epoch
        if not epoch <= found <= leader_epoch:
            raise CorruptBatch(
                f"{name}: offset {expected_offset} is of leader epoch {found}, between {epoch} and {leader_epoch} it "
                "cannot be; nothing was written"
            )
        if run and found != epoch:
            runs.append(
                FetchedRun(
                    leader_epoch=epoch, buffer=buffer, headers=tuple(run), markers=markers, times_proven_from=proven
                )
            )
            run, markers = [], {}
        epoch = found
        if header.is_control:
            markers[position] = read_marker(buffer, position, header)
        if rest:
            runs.append(
                FetchedRun(
                    leader_epoch=epoch, buffer=memoryview(rest), headers=((0, header),), times_proven_from=proven
                )
            )
        else:
            run.append((position, header))
        expected_offset = header.end_offset
    if run:
        runs.append(
            FetchedRun(leader_epoch=epoch, buffer=buffer, headers=tuple(run), markers=markers, times_proven_from=proven)
        )
    return tuple(runs)
