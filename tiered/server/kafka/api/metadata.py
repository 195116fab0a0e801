"""Metadata (key 3), versions 0 to 13: brokers, topics, partitions and leaders, from memory.

Creates missing topics where the client (v4+) and the broker allow it, and answers with them at once. Illegal names are
INVALID_TOPIC_EXCEPTION, each for itself. `__consumer_offsets` is listed as internal; the coordinator of a slot leads
its partition. Brokers out of service are not listed; a partition that they led is LEADER_NOT_AVAILABLE until somebody
else leads it. In sync are those that can be elected, placeholders are not. What the client may not describe is left out
of "all topics", is TOPIC_AUTHORIZATION_FAILED when it is named, whether it is there or not, and UNKNOWN_TOPIC_ID by its
id. Authorized operations are told where they are asked for (v8+).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from tiered.broker.broker import Broker
from tiered.broker.partitions.topics import Topic
from tiered.broker.view.image import PartitionRow
from tiered.errors import InvalidRequest, TieredError, UnknownTopicId, UnknownTopicOrPartition
from tiered.ids import NO_TOPIC_ID, InSyncReplica
from tiered.rules.replication.replica_set import NO_LEADER
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.server.kafka import throttling
from tiered.server.kafka.api.create_topics import check_new_topic
from tiered.server.kafka.authorize import authorized_operations, may, require_topic
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import error_code
from tiered.server.kafka.listed_brokers import controller_id, named_brokers
from tiered.wire.error_codes import LEADER_NOT_AVAILABLE, NONE

if TYPE_CHECKING:
    from kafka_messages.metadata import MetadataRequestTopic, Replies, Reply, Request, Response

T = TypeVar("T")

# Each new topic is a transaction and a folder. A client that asks for more gets the rest by asking again.
MAX_CREATED_A_REQUEST = 100

Isr = tuple[InSyncReplica, ...]


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    broker = context.broker
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [
            _described(context, request, reply, topic)
            async for topic in in_turns(broker.topics)
            if may(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        to_create = MAX_CREATED_A_REQUEST if getattr(request, "allow_auto_topic_creation", True) else 0
        topics = []
        seen = set()
        async for each in in_turns(request.topics):
            # No pairs of the two: to let go of 100,000 takes 30 ms, all at once.
            topic_id = getattr(each, "topic_id", None)
            wanted = each.name if topic_id in (None, NO_TOPIC_ID) else topic_id
            if wanted in seen:  # Each topic once, however often it is asked for, as in Kafka.
                continue
            seen.add(wanted)
            before = len(broker.topics)
            topics.append(await _asked(context, request, reply, each, may_create=to_create > 0))
            to_create -= len(broker.topics) > before
    operations = authorized_operations(
        context, ResourceType.CLUSTER, asked=getattr(request, "include_cluster_authorized_operations", False)
    )
    return reply.MetadataResponse(
        throttle_time=0,
        brokers=[
            reply.MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in named_brokers(context)
        ],
        cluster_id=broker.cluster_id,
        controller_id=controller_id(context),
        topics=topics,
        cluster_authorized_operations=operations,
        error_code=NONE,
    )


def _refused(
    context: Context, reply: "Reply", topic_id: UUID | None, name: str | None, error: TieredError
) -> "Replies.MetadataResponseTopic":
    return reply.MetadataResponseTopic(
        error_code=error_code(error),
        name=name if name is not None or context.api_version >= 12 else "",
        topic_id=topic_id,
        is_internal=False,
        partitions=[],
    )


async def _asked(
    context: Context, request: "Request", reply: "Reply", asked: "MetadataRequestTopic", *, may_create: bool
) -> "Replies.MetadataResponseTopic":
    """One topic of the request, by name or (v12+) by id."""
    broker = context.broker
    topic_id = getattr(asked, "topic_id", None)
    name: str | None = asked.name
    try:
        if topic_id is not None and topic_id != NO_TOPIC_ID:
            topic = broker.topics.by_id(topic_id)
            if not may(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
                raise UnknownTopicId(f"no topic has the id {topic_id}; refresh metadata")  # As if there were none.
            return _described(context, request, reply, topic)
        if name is None:
            raise InvalidRequest("a topic is asked for by name or by id")
        require_topic(context, Operation.DESCRIBE, name)
        try:
            topic = broker.topics.by_name(name)
        except UnknownTopicOrPartition:
            if broker.options.read_only or not (may_create and broker.settings.topics.auto_create_topics_enable):
                raise
            if not may(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
                require_topic(context, Operation.CREATE, name)
            check_new_topic(broker, broker.settings.topics.num_partitions)
            throttling.Mutations(context).take(broker.settings.topics.num_partitions)
            topic = await broker.admin.auto_create(name)
        return _described(context, request, reply, topic)
    except TieredError as error:
        return _refused(context, reply, topic_id, name, error)


def _described(context: Context, request: "Request", reply: "Reply", topic: Topic) -> "Replies.MetadataResponseTopic":
    return reply.MetadataResponseTopic(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=described_partitions(
            context.broker, topic, reply.MetadataResponsePartition, range(topic.partition_count)
        ),
        topic_authorized_operations=authorized_operations(
            context,
            ResourceType.TOPIC,
            topic.name,
            asked=getattr(request, "include_topic_authorized_operations", False),
        ),
    )


def described_partitions(broker: Broker, topic: Topic, make: Callable[..., T], indexes: range) -> list[T]:
    """The partitions with these numbers. `make` takes the fields that Metadata and DescribeTopicPartitions share."""
    if broker.options.read_only:
        return [_led_by(broker.broker_id, -1, make, index) for index in indexes]
    if topic.is_internal:
        return [_coordinated(broker, make, index) for index in indexes]
    live = {each.broker_id for each in broker.image.live()}
    in_sync: dict[Isr, tuple[int, ...]] = {}  # Partitions of one topic share a few: most of the work is here.
    rows = broker.image.rows_of(topic.topic_id)[indexes.start : indexes.stop]
    return [_led(broker, make, row, live, in_sync) for row in rows]


def _led(
    broker: Broker, make: Callable[..., T], row: PartitionRow, live: set[int], in_sync: dict[Isr, tuple[int, ...]]
) -> T:
    members = in_sync.get(row.isr)
    if members is None:
        members = in_sync[row.isr] = broker.image.in_sync(row)
    has_leader = row.leader in live
    return make(
        error_code=NONE if has_leader else LEADER_NOT_AVAILABLE,
        partition_index=row.partition,
        leader_id=row.leader if has_leader else NO_LEADER,
        leader_epoch=row.leader_epoch,
        replica_nodes=row.replicas,
        isr_nodes=members,
        offline_replicas=() if live.issuperset(row.replicas) else tuple(set(row.replicas) - live),
    )


def _coordinated(broker: Broker, make: Callable[..., T], slot: int) -> T:
    """A partition of `__consumer_offsets`, which has no log: its leader is who coordinates the slot's groups."""
    return _led_by(broker.groups.slot_leader(slot), 0, make, slot)


def _led_by(leader: int, leader_epoch: int, make: Callable[..., T], index: int) -> T:
    """A partition of which there is one copy. A read replica leads every one, without a leader epoch: clients compare
    none."""
    holders = () if leader == NO_LEADER else (leader,)
    return make(
        error_code=NONE if holders else LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=leader_epoch,
        replica_nodes=holders,
        isr_nodes=holders,
        offline_replicas=(),
    )


API = Api(
    3,
    "Metadata",
    (0, 13),
    rights="DESCRIBE on the topic; to create it CREATE on the topic or the cluster",
    handle=handle,
    on_replica=handle,
)
