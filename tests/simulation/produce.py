"""A produce request as a broker's door carries it out, without the door."""

import asyncio

from tests.simulation.books import Violation
from tiered.broker.broker import Broker
from tiered.broker.partitions.acknowledge import acknowledged, is_acknowledged
from tiered.errors import NotEnoughReplicasAfterAppend, RequestTimedOut, UnknownTopicOrPartition
from tiered.ids import TopicPartition


async def produce(
    broker: Broker, key: TopicPartition, batch: bytes, acks: int, timeout_ms: int, pause_ms: float
) -> tuple[int, int]:
    """The batch's offset, once it is acknowledged, and the leader epoch of who says so. Raises TieredError.

    Between append and wait `pause_ms` go by, as where a request has other batches to append. Raises Violation where
    an acknowledgement was due and was not given.
    """
    topic = broker.topics.find_id(key.topic_id)
    if topic is None:
        raise UnknownTopicOrPartition("not here yet")
    partition = topic.partition(key.partition)
    data = memoryview(bytearray(batch))
    appended = partition.append(data, 0, len(data), acks=acks, now_ms=broker.clock.now_ms())
    if not is_acknowledged(partition, appended, acks):
        await asyncio.sleep(pause_ms / 1000.0)
        try:
            await acknowledged(broker.context, partition, appended, acks=acks, timeout_ms=timeout_ms)
        except (RequestTimedOut, NotEnoughReplicasAfterAppend):
            is_due = partition.leadership is not None and appended.end_offset <= partition.high_watermark
            if is_due and partition.leader_epoch == appended.leader_epoch:
                raise Violation(
                    f"R13: {partition.name} is committed to {partition.high_watermark}, and the producer of offset "
                    f"{appended.base_offset} was not told"
                ) from None
            raise
    return appended.base_offset, appended.leader_epoch
