"""A produce request as a broker's door carries it out, without the door."""

from tiered.broker.broker import Broker
from tiered.broker.partitions.acknowledge import acknowledged, is_acknowledged
from tiered.errors import UnknownTopicOrPartition
from tiered.ids import TopicPartition


async def produce(broker: Broker, key: TopicPartition, batch: bytes, acks: int, timeout_ms: int) -> tuple[int, int]:
    """The batch's offset, once it is acknowledged, and the leader epoch of who says so. Raises TieredError."""
    topic = broker.topics.find_id(key.topic_id)
    if topic is None:
        raise UnknownTopicOrPartition("not here yet")
    partition = topic.partition(key.partition)
    data = memoryview(bytearray(batch))
    appended = partition.append(data, 0, len(data), acks=acks, now_ms=broker.clock.now_ms())
    if not is_acknowledged(partition, appended, acks):
        await acknowledged(broker.context, partition, appended, acks=acks, timeout_ms=timeout_ms)
    return appended.base_offset, appended.leader_epoch
