"""A Produce request whose batch a thread has to validate, where its owner's others have taken their share meanwhile."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.components.batches import batch
from tests.unit.broker.replication.replicas import replica, row, tell
from tests.unit.server.long_produce import handled, results
from tiered.broker.partitions.batch_checks import LongValidations
from tiered.formats.record_batch import Compression
from tiered.server.kafka.api.produce import ALL, INLINE_COMPRESSED_BYTES
from tiered.wire import error_codes


async def test_many_that_come_in_one_turn_of_the_loop_take_no_more_than_their_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = replica(tmp_path / "replica", 1)
    tell(led, row(isr=(1,), replicas=(1,)))
    large = bytearray(batch([os.urandom(2 * INLINE_COMPRESSED_BYTES)], compression=Compression.ZSTD))
    is_full = iter([False, True])  # When it is read, and when its task begins.
    monkeypatch.setattr(LongValidations, "is_full", lambda *_: next(is_full))
    async with handled(tmp_path / "broker", led, [(0, large)], acks=ALL) as answer:
        assert asyncio.iscoroutine(answer)
        parts = await answer
    assert isinstance(parts, list)
    (refused,) = results(parts)  # type: ignore[arg-type]
    assert refused.error_code == error_codes.THROTTLING_QUOTA_EXCEEDED
    assert led.log.log_end_offset == 0
