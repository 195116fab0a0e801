"""What a leader sent, checked batch by batch, cut into runs that a follower writes with one call each.

Owns the checks: shape, CRC, offsets without a gap, epochs that do not go back. Must never look at a record, nor
change a byte: a follower's log is the leader's, bit for bit (R4).
"""

from dataclasses import dataclass

from tiered.errors import CorruptBatch
from tiered.formats.record_batch import BatchHeader, verify_crc, whole_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRun:
    """Batches of one leader epoch, back to back: `headers` has the position and header of each in `buffer`."""

    leader_epoch: int
    buffer: memoryview
    headers: tuple[tuple[int, BatchHeader], ...]

    @property
    def end_offset(self) -> int:
        return self.headers[-1][1].end_offset

    @property
    def size_bytes(self) -> int:
        position, header = self.headers[-1]
        return position + header.size_bytes - self.headers[0][0]


def checked_runs(
    buffer: memoryview, *, expected_offset: int, latest_epoch: int, leader_epoch: int, name: str
) -> tuple[FetchedRun, ...]:
    """The whole batches in `buffer`, by leader epoch. A last one that is cut off is left out.

    Raises CorruptBatch when they are not what may follow a log that ends at `expected_offset` with a record of
    `latest_epoch`, in the leader's epoch `leader_epoch`: then nothing of it may be written.
    """
    runs: list[FetchedRun] = []
    run: list[tuple[int, BatchHeader]] = []
    epoch = latest_epoch
    for position, header in whole_batches(buffer, 0, len(buffer)):
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
        verify_crc(buffer, position, header.size_bytes)
        if run and found != epoch:
            runs.append(FetchedRun(leader_epoch=epoch, buffer=buffer, headers=tuple(run)))
            run = []
        epoch = found
        run.append((position, header))
        expected_offset = header.end_offset
    if run:
        runs.append(FetchedRun(leader_epoch=epoch, buffer=buffer, headers=tuple(run)))
    return tuple(runs)
