"""What a pin may hold, and for how long: bounds that stand before SQL is asked."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.broker.context import surroundings
from tiered.broker.partitions.topics import Topic
from tiered.broker.tiering.pins import AskedRange, Pins
from tiered.config import TopicConfig
from tiered.errors import InvalidRequest, OffsetOutOfRange
from tiered.ids import TopicId


def topic(*, is_internal: bool = False) -> Topic:
    return Topic(
        name="orders",
        topic_id=TopicId(UUID(int=1)),
        partition_count=1,
        config=TopicConfig(),
        overrides={},
        partitions=(),
        is_internal=is_internal,
    )


async def test_nothing_is_pinned_beyond_what_is_committed_or_for_longer_than_allowed(tmp_path: Path) -> None:
    async with surroundings(tmp_path, tiered_pin_max_ttl_ms="60000") as made:
        pins = Pins(context=made.context)
        with pytest.raises(OffsetOutOfRange, match="ends at 10"):
            beyond = (AskedRange(partition=0, end_offset=11),)
            await pins.take(topic(), owner="a", ttl_ms=None, asked=beyond, high_watermarks={0: 10})
        with pytest.raises(InvalidRequest, match="allows 60000"):
            await pins.take(topic(), owner="a", ttl_ms=60_001, asked=None, high_watermarks={0: 10})
        with pytest.raises(InvalidRequest, match="cannot be printed"):
            await pins.take(topic(), owner="a\n", ttl_ms=None, asked=None, high_watermarks={0: 10})
        with pytest.raises(InvalidRequest, match="internal"):
            await pins.take(topic(is_internal=True), owner="a", ttl_ms=None, asked=None, high_watermarks={})


async def test_a_snapshot_has_a_name_that_a_path_can_have(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        pins = Pins(context=made.context)
        with pytest.raises(InvalidRequest, match="no snapshot name"):
            await pins.take(topic(), name="../x", owner="a", ttl_ms=None, asked=None, high_watermarks={0: 10})
