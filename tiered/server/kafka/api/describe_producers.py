"""DescribeProducers (key 61), version 0: the producers with an id that the leader of a partition remembers, and since
which offset each has a transaction open.

Producers that have sent nothing for `producer.id.expiration.ms` are forgotten, and so are those above the broker's
bound, but none with an open transaction. A partition is answered once, however often it stands in the request.
Those of `__consumer_offsets` have none: offsets that transactions send wait in SQL.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tiered.errors import PolicyViolation, TieredError
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.rules.security.acl import Operation
from tiered.server.kafka.authorize import require_topic
from tiered.server.kafka.dispatch import Api, Context, in_turns, without_repeats
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.describe_producers import Replies, Reply, Request, Response

MAX_PRODUCERS = 200_000
"""In one answer."""
NONE_KNOWN = -1


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    left = MAX_PRODUCERS
    by_topic: dict[str, list[Replies.PartitionResponse]] = {}
    named = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    async for name, index in in_turns(without_repeats(named)):
        code, message, producers = NONE, None, []
        try:
            require_topic(context, Operation.READ, name)
            entries = _entries(context, name, index)
            left -= len(entries)
            if left < 0:
                raise PolicyViolation(f"an answer holds {MAX_PRODUCERS} producers at most; ask for fewer partitions")
            # Of a copy: in a pause the partition may take or forget one.
            producers = [_described(reply, each) async for each in in_turns(list(entries.values()))]
        except TieredError as error:
            code, message = error_code(error), str(error)
        by_topic.setdefault(name, []).append(
            reply.PartitionResponse(
                partition_index=index, error_code=code, error_message=message, active_producers=producers
            )
        )
    return reply.DescribeProducersResponse(
        throttle_time=0,
        topics=[
            reply.TopicResponse(name=name, partitions=partitions)
            async for name, partitions in in_turns(by_topic.items())
        ],
    )


def _entries(context: Context, name: str, index: int) -> Mapping[int, ProducerEntry]:
    topic = context.broker.topics.by_name(name)
    if topic.is_internal:
        context.broker.groups.offsets_topic.led(index)
        return {}
    partition = topic.partition(index)
    partition.require_leader()
    return partition.producers.entries


def _described(reply: "Reply", entry: ProducerEntry) -> "Replies.ProducerState":
    last = entry.batches[-1] if entry.batches else None
    first_offset = entry.current_transaction_first_offset
    return reply.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=NONE_KNOWN if last is None else last.last_sequence,
        last_timestamp=NONE_KNOWN if last is None else last.timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NONE_KNOWN if first_offset is None else first_offset,
    )


API = Api(61, "DescribeProducers", (0, 0), rights="READ on the topic", handle=handle)
