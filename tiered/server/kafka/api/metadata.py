"""Metadata (key 3), versions 0 to 13: brokers, topics, partitions and leaders, from memory.

Creates missing topics where the client (v4+) and the broker allow it, and answers with them at once.
Illegal names are INVALID_TOPIC_EXCEPTION, each for itself. `__consumer_offsets` is listed as internal; whoever
coordinates the groups of a slot leads its partition. Brokers out of service are not listed; a partition that they led
is LEADER_NOT_AVAILABLE until somebody else leads it. In sync are those that can be elected, placeholders are not.
What the client may not describe is left out of "all topics", is TOPIC_AUTHORIZATION_FAILED when it is named, whether it
is there or not, and UNKNOWN_TOPIC_ID by its id. Authorized operations are told where they are asked for (v8+).
"""

from collections.abc import Callable, Iterable
from typing import Any

from tiered.broker.broker import Broker
from tiered.broker.partitions.topics import Topic
from tiered.broker.view.image import PartitionRow
from tiered.errors import InvalidRequest, TieredError, UnknownTopicId, UnknownTopicOrPartition
from tiered.formats.checkpoint import TopicEntry
from tiered.ids import NO_TOPIC_ID, InSyncReplica
from tiered.rules.replication.replica_set import NO_LEADER
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.server.kafka import throttling
from tiered.server.kafka.api.create_topics import check_new_topic
from tiered.server.kafka.authorize import NOT_ASKED, authorized_operations, may, require_topic
from tiered.server.kafka.dispatch import Api, Context, ReplicaContext, in_turns
from tiered.server.kafka.error_mapping import error_code
from tiered.server.kafka.listed_brokers import ListedBroker, controller_id, named_brokers, this_replica
from tiered.wire.error_codes import LEADER_NOT_AVAILABLE, NONE

# Each one is a transaction and a folder. Who asks for more gets the rest by asking again.
MAX_CREATED_A_REQUEST = 100

Isr = tuple[InSyncReplica, ...]


async def handle(context: Context, request: Any, reply: Any) -> Any:
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
            wanted = (getattr(each, "topic_id", None), each.name)
            if wanted in seen:  # Each topic once, however often it is asked for, as in Kafka.
                continue
            seen.add(wanted)
            before = len(broker.topics)
            topics.append(await _asked(context, request, reply, each, may_create=to_create > 0))
            to_create -= len(broker.topics) > before
    operations = authorized_operations(
        context, ResourceType.CLUSTER, asked=getattr(request, "include_cluster_authorized_operations", False)
    )
    return _reply(context, reply, named_brokers(context), controller_id(context), topics, operations)


def _reply(
    context: Context | ReplicaContext,
    reply: Any,
    brokers: Iterable[ListedBroker],
    controller: int,
    topics: list[Any],
    operations: int = NOT_ASKED,
) -> Any:
    return reply.MetadataResponse(
        throttle_time=0,
        brokers=[
            reply.MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in brokers
        ],
        cluster_id=context.broker.cluster_id,
        controller_id=controller,
        topics=topics,
        cluster_authorized_operations=operations,
        error_code=NONE,
    )


def _refused(context: Context | ReplicaContext, reply: Any, topic_id: Any, name: str | None, error: TieredError) -> Any:
    return reply.MetadataResponseTopic(
        error_code=error_code(error),
        name=name if name is not None or context.api_version >= 12 else "",
        topic_id=topic_id,
        is_internal=False,
        partitions=[],
    )


async def _asked(context: Context, request: Any, reply: Any, asked: Any, *, may_create: bool) -> Any:
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
            if not (may_create and broker.settings.topics.auto_create_topics_enable):
                raise
            if not may(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
                require_topic(context, Operation.CREATE, name)
            check_new_topic(broker, broker.settings.topics.num_partitions)
            throttling.Mutations(context).take(broker.settings.topics.num_partitions)
            topic = await broker.admin.auto_create(name)
        return _described(context, request, reply, topic)
    except TieredError as error:
        return _refused(context, reply, topic_id, name, error)


def _described(context: Context, request: Any, reply: Any, topic: Topic) -> Any:
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


def described_partitions(broker: Broker, topic: Topic, make: Callable[..., Any], indexes: range) -> list[Any]:
    """Those of these numbers; `make` takes what Metadata and DescribeTopicPartitions both tell of a partition."""
    if topic.is_internal:
        return [_coordinated(broker, make, index) for index in indexes]
    live = {each.broker_id for each in broker.image.live()}
    in_sync: dict[Isr, tuple[int, ...]] = {}  # Partitions of one topic share a few: most of the work is here.
    rows = broker.image.rows_of(topic.topic_id)[indexes.start : indexes.stop]
    return [_led(broker, make, row, live, in_sync) for row in rows]


def _led(
    broker: Broker, make: Callable[..., Any], row: PartitionRow, live: set[int], in_sync: dict[Isr, tuple[int, ...]]
) -> Any:
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


def _coordinated(broker: Broker, make: Callable[..., Any], slot: int) -> Any:
    """A partition of `__consumer_offsets`, which has no log: its leader is who coordinates the slot's groups."""
    leader = broker.groups.slot_leader(slot)
    holders = () if leader == NO_LEADER else (leader,)
    return make(
        error_code=NONE if holders else LEADER_NOT_AVAILABLE,
        partition_index=slot,
        leader_id=leader,
        leader_epoch=0,
        replica_nodes=holders,
        isr_nodes=holders,
        offline_replicas=(),
    )


async def of_bucket(context: ReplicaContext, request: Any, reply: Any) -> Any:
    """A read replica leads every partition, without a leader epoch: clients compare none."""
    catalogue = context.broker.catalogue
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics = [_of_bucket(context, reply, topic) async for topic in in_turns(catalogue)]
    else:
        wanted = dict.fromkeys((getattr(each, "topic_id", None), each.name) for each in request.topics)
        topics = [_asked_of_bucket(context, reply, topic_id, name) async for topic_id, name in in_turns(wanted)]
    return _reply(context, reply, [this_replica(context)], context.broker.broker_id, topics)


def _asked_of_bucket(context: ReplicaContext, reply: Any, topic_id: Any, name: str | None) -> Any:
    """One topic of the request, by name or (v12+) by id."""
    catalogue = context.broker.catalogue
    try:
        if topic_id is not None and topic_id != NO_TOPIC_ID:
            return _of_bucket(context, reply, catalogue.by_id(topic_id))
        if name is None:
            raise InvalidRequest("a topic is asked for by name or by id")
        return _of_bucket(context, reply, catalogue.by_name(name))
    except TieredError as error:
        return _refused(context, reply, topic_id, name, error)


def _of_bucket(context: ReplicaContext, reply: Any, topic: TopicEntry) -> Any:
    here = (context.broker.broker_id,)
    return reply.MetadataResponseTopic(
        error_code=NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=False,
        partitions=[
            reply.MetadataResponsePartition(
                error_code=NONE,
                partition_index=number,
                leader_id=context.broker.broker_id,
                leader_epoch=-1,
                replica_nodes=here,
                isr_nodes=here,
                offline_replicas=(),
            )
            for number in range(topic.partition_count)
        ],
    )


API = Api(key=3, name="Metadata", min_version=0, max_version=13, handle=handle, on_replica=of_bucket)
