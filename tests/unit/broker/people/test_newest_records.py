"""The newest records of a partition, as far as they can be decoded."""

import asyncio
from pathlib import Path

from tests.components.batches import batch
from tests.support.partition_appends import append
from tests.unit.broker.tiering.tiers import tiers
from tiered.broker.people.newest_records import newest_records
from tiered.broker.people.record_reader import MAX_DECOMPRESSED_BYTES, RecordReader, StoredRecord
from tiered.broker.tiering.tier_reader import TierReader
from tiered.formats.record_batch import Compression


def offset_of(stored: StoredRecord) -> bytes:
    return b"%d" % stored.record.offset


async def test_a_batch_that_is_too_large_to_be_shown_is_named_and_paid_for(tmp_path: Path) -> None:
    async with tiers(tmp_path, {"segment.bytes": "1000000"}) as made:
        reader = RecordReader(TierReader(made.cold_reader, made.context.disk, made.context.counters), made.clock)
        append(made.partition, bytearray(batch([bytes(MAX_DECOMPRESSED_BYTES)], compression=Compression.ZSTD)))
        part = await newest_records(made.partition, reader, count=1, committed_only=True, render=offset_of)
        assert (part.records, part.next_offset) == ((), made.partition.high_watermark)
        assert part.problem is not None
        assert "cannot be shown" in part.problem
        assert part.worked_ms > 0
        await asyncio.to_thread(reader.close)
