"""Rounds of retention by a clock that the test sets: a jump deletes nothing, and a round has a bound."""

import logging
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection

from tests.support.partition_appends import NOW_MS
from tests.unit.broker.tiering.tiers import DAY_MS, SEGMENTS, TOPIC_ID, Tiers, tiers
from tiered.config import BrokerSettings
from tiered.errors import CorruptMetadata, MetadataUnavailable, TieredError
from tiered.formats.record_batch import Record, encode_batch
from tiered.meta import segments
from tiered.rules.segments.retention import RetentionReason

AT_ONCE = {"retention.bytes": "0", "local.retention.bytes": "0", "tiered.purge.grace.ms": str(DAY_MS)}


async def reasons(made: Tiers) -> list[RetentionReason]:
    return [each.why for each in (await made.retention.explain(made.partition)).decided.verdicts][:SEGMENTS]


async def test_a_clock_that_jumps_deletes_nothing_and_everybody_can_see_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tiers(tmp_path) as made:
        await made.upload_all()
        made.clock_watch.look()
        made.clock.set_by_ms = 10 * 366 * DAY_MS
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                await made.retention.round()
        assert made.partition.log_start_offset == 0
        assert await reasons(made) == [RetentionReason.CLOCK_JUMPED] * SEGMENTS
        assert made.context.counters.retention_clock_ahead_ms > 9 * 366 * DAY_MS
        (said,) = [each.getMessage() for each in caplog.records if "retention by age" in each.getMessage()]
        assert "tiered.retention.max.clock.jump.ms" in said
        made.clock.set_by_ms = 0
        await made.retention.round()
        assert made.context.counters.retention_clock_ahead_ms == 0
        assert await reasons(made) == [RetentionReason.WITHIN_RETENTION] * SEGMENTS


async def test_somebody_who_knows_better_can_say_that_the_clock_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with tiers(tmp_path) as made:
        await made.upload_all()
        made.clock_watch.look()
        made.clock.set_by_ms = 2 * DAY_MS
        await made.retention.round()
        assert made.partition.log_start_offset == 0
        made.context.state.settings = BrokerSettings.of({"tiered.retention.max.clock.jump.ms": "-1"})
        with caplog.at_level(logging.INFO):
            await made.retention.round()
        assert made.partition.log_start_offset >= SEGMENTS
        assert re.search(
            r"moves the log start from 0 to 5: 5 offsets go, 5 segments of \d+ bytes whose newest record is 48"
            r"\.\d h old "
            rf"\(retention.ms={DAY_MS}\)",
            caplog.text,
        )


async def test_a_round_takes_so_many_segments_at_the_most_as_it_was_explained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with tiers(tmp_path, AT_ONCE, tiered_retention_max_segments="2") as made:
        await made.upload_all()
        for log_start_offset in (2, 4, 5):
            assert (await made.retention.explain(made.partition)).decided.delete_before_offset == log_start_offset
            await made.retention.round()
            assert made.partition.log_start_offset == log_start_offset
    assert re.search(
        r"moves the log start from 2 to 4: 2 offsets go, 2 segments of \d+ bytes beyond the size of the log "
        r"\(retention.bytes=0\)",
        caplog.text,
    )


async def test_partitions_that_cannot_be_retired_hold_up_no_other_and_a_database_that_is_away_ends_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiers(tmp_path, AT_ONCE, partition_count=7) as made:
        for partition in made.partitions:
            await made.lifecycle.upload(partition, 0)
        plain = segments.retire_before
        refused: dict[int, TieredError] = {0: CorruptMetadata("a row that contradicts")}
        asked: list[int] = []

        def retire_before(conn: Connection, topic_id: UUID, number: int, **others: Any) -> object:
            asked.append(number)
            if number in refused:
                raise refused[number]
            return plain(conn, topic_id, number, **others)

        monkeypatch.setattr(segments, "retire_before", retire_before)
        refused |= {number: MetadataUnavailable("SQL is away") for number in range(1, 7)}
        with pytest.raises(MetadataUnavailable):
            await made.retention.round()
        assert asked == [0, 1, 2, 3]
        refused = {0: CorruptMetadata("a row that contradicts")}
        await made.retention.round()
        assert [partition.log_start_offset for partition in made.partitions] == [0, *[1] * 6]
        assert made.context.counters.failing_items["retention"] == 1


async def test_a_jump_ends_no_grace_of_what_was_retired(tmp_path: Path) -> None:
    async with tiers(tmp_path, AT_ONCE, tiered_retention_max_segments="2") as made:
        await made.upload_all()
        await made.retention.round()
        objects = (await made.retention.explain(made.partition)).retired
        assert [(each.base_offset, each.is_pinned) for each in objects] == [(0, False), (1, False)]
        made.clock.set_by_ms = 10 * DAY_MS
        await made.lifecycle.sweep()
        assert (await made.retention.explain(made.partition)).retired == objects
        rows = await made.context.database.run(lambda conn: segments.list_committed(conn, TOPIC_ID, 0))
        assert [row.base_offset for row in rows] == [2, 3, 4]


def ahead(number: int) -> bytearray:
    """The batch of one segment; that of the third is two days ahead."""
    ahead_ms = 2 * DAY_MS if number == 2 else 0
    return bytearray(encode_batch([Record(offset=0, timestamp_ms=NOW_MS + ahead_ms, key=None, value=b"v" * 500)]))


async def test_a_segment_of_the_future_is_warned_about_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    takes_all = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    async with tiers(tmp_path, takes_all, written=ahead) as made:
        await made.upload_all()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                await made.retention.round()
        (warning,) = [
            each.getMessage() for each in caplog.records if "ahead of this broker's clock" in each.getMessage()
        ]
        assert warning.startswith("orders-0: offsets 2 to 2 ")
        assert "2.0 days" in warning
        assert "delete-records" in warning
