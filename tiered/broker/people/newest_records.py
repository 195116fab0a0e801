"""The newest records of one partition, for whoever opens a topic and wants to see at once what is in it.

Owns how far back such a read goes. Must never leave out a record above the offset that it gives to go on from.
"""

from dataclasses import dataclass

from tiered.broker.partitions.readable import Readable
from tiered.broker.people.record_reader import Limits, ReadCost, RecordReader, Render, StoredRecord, Undecodable, Wanted
from tiered.errors import Corrupt, OutOfRange, Retriable

MAX_BYTES = 1 << 20
MAX_READ_MS = 1_000.0
DAMAGED_BATCHES = 3
"""So many are passed over. Behind one more the partition shows none of its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestRecords:
    """(timestamp in ms, offset, rendered) in the order of offsets. A tail from `next_offset` on gives what follows.

    `problem` says why records are missing, and a thread decoded for `worked_ms`.
    """

    records: tuple[tuple[int, int, bytes], ...]
    next_offset: int
    worked_ms: float = 0.0
    problem: str | None = None


async def newest_records(
    partition: Readable,
    reader: RecordReader,
    *,
    count: int,
    committed_only: bool,
    render: Render,
    wanted: Wanted | None = None,
) -> NewestRecords:
    """The records that are wanted among the last `count` offsets. A partition that cannot be read has none and says
    why; its tail goes on from its end all the same."""
    timestamps_ms: dict[int, int] = {}

    def noting_time(stored: StoredRecord) -> bytes:
        timestamps_ms[stored.record.offset] = stored.record.timestamp_ms
        return render(stored)

    end_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    offset, problem, cost = max(partition.log_start_offset, end_offset - count), None, ReadCost()
    for _ in range(DAMAGED_BATCHES):
        try:
            page = await reader.read(
                partition,
                offset,
                limits=Limits(max_records=count, max_bytes=MAX_BYTES, max_ms=MAX_READ_MS),
                committed_only=committed_only,
                render=noting_time,
                wanted=wanted,
                cost=cost,
            )
        except Undecodable as error:
            offset, problem = error.end_offset, str(error)
            continue
        except (Retriable, OutOfRange, Corrupt) as error:
            problem = str(error)
            break
        return NewestRecords(
            records=tuple((timestamps_ms[offset], offset, rendered) for offset, rendered in page.records),
            next_offset=page.next_offset,
            worked_ms=cost.worked_ms,
            problem=problem,
        )
    return NewestRecords(records=(), next_offset=end_offset, worked_ms=cost.worked_ms, problem=problem)
