"""A tail of a topic of which this broker has not opened every partition."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

from tests.unit.broker.tiering.tiers import tiers
from tiered.broker.people.record_reader import RecordReader, Render
from tiered.broker.people.tail import REST_MS, Behind, LocalTopicTail


async def test_a_partition_that_is_not_open_here_yet_is_called_unavailable_only_after_a_while(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        topic = made.topics.by_name("orders")
        made.topics.put(replace(topic, partitions=()))
        tail = LocalTopicTail(
            topic,
            context=made.context,
            topics=made.topics,
            records=cast(RecordReader, None),  # Nothing is read of a partition that is not here.
            positions={0: 0},
            committed_only=True,
            wanted=None,
            render=cast(Callable[[int], Render], None),
        )
        made.context.state.serving = True
        assert await tail.next(0.0) is None
        made.clock.waited_ms += int(REST_MS)
        event = await tail.next(0.0)
        assert isinstance(event, Behind)
        assert event.reason == "unavailable"
