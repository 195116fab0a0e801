"""Ages are told by a clock that passes time as the machine does, and by no other."""

from pathlib import Path

import pytest

from tests.unit.broker.context import surroundings
from tiered.broker.tiering.clock_watch import ClockWatch, reason_to_doubt

HOUR_MS = 3_600_000


async def test_a_clock_that_was_set_ahead_is_not_believed_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with surroundings(tmp_path) as made:
        watch = ClockWatch(context=made.context)
        assert watch.look().is_trusted
        made.clock.set_by_ms = 100 * HOUR_MS
        doubted = watch.look()
        assert not doubted.is_trusted
        assert made.context.counters.retention_clock_ahead_ms > 99 * HOUR_MS
        assert reason_to_doubt(doubted) in caplog.text
        made.clock.set_by_ms = 0
        assert watch.look().is_trusted
        assert "believed again" in caplog.text
