"""A produce request as a broker's door carries it out, without the door."""

import asyncio

from tests.simulation.hooks import Hooks
from tiered.broker.broker import Broker
from tiered.broker.partitions.acknowledge import acknowledged, is_acknowledged
from tiered.errors import NotEnoughReplicasAfterAppend, RequestTimedOut, UnknownTopicOrPartition
from tiered.ids import TopicPartition


async def produce(
    broker: Broker, key: TopicPartition, batch: bytes, acks: int, timeout_ms: int, *, pause_s: float
) -> tuple[int, int]:
    """The batch's offset, once it is acknowledged, and the leader epoch of who says so. Raises TieredError.

    `pause_s` comes between the append and the wait: a request of many batches is appended in turns.
    """
    topic = broker.topics.find_id(key.topic_id)
    if topic is None:
        raise UnknownTopicOrPartition("not here yet")
    partition = topic.partition(key.partition)
    data = memoryview(bytearray(batch))
    appended = partition.append(data, 0, len(data), acks=acks, now_ms=broker.clock.now_ms())
    if not is_acknowledged(partition, appended, acks):
        if pause_s:
            await asyncio.sleep(pause_s)
        try:
            await acknowledged(broker.context, partition, appended, acks=acks, timeout_ms=timeout_ms)
        except (RequestTimedOut, NotEnoughReplicasAfterAppend):
            if is_acknowledged(partition, appended, acks):
                Hooks.report(f"R13: {partition.name}: a batch at {appended.base_offset} was committed in time, untold")
            raise
    return appended.base_offset, appended.leader_epoch
