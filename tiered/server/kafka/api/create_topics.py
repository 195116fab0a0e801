"""CreateTopics (key 19), versions 2 to 7: new topics with partitions, configs and ids.

-1 partitions or replicas take the broker's defaults. `validate_only` checks and creates nothing. From v5 the answer
carries the effective configs, from v7 the topic id. A name twice in one request is INVALID_REQUEST. Replicas go to the
brokers in service, spread over racks; a request may assign them itself, to any that are registered. More partitions
than `tiered.max.partitions` for one broker, topics than `tiered.max.topics`, or 10,000 partitions in one request are
POLICY_VIOLATION. A client that has used up controller_mutation_rate is refused with THROTTLING_QUOTA_EXCEEDED from v6
on, and throttled before.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiered.broker.admin import MAX_PARTITIONS_A_TOPIC, NewTopic
from tiered.broker.broker import Broker
from tiered.config import for_clients
from tiered.errors import InvalidReplicaAssignment, InvalidRequest, PolicyViolation, TieredError
from tiered.rules.security.acl import CLUSTER_NAME, Operation, ResourceType
from tiered.server.kafka import throttling
from tiered.server.kafka.audited import AuditEntry, aligned
from tiered.server.kafka.authorize import may, require_topic
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import error_code
from tiered.wire.error_codes import NONE, TOPIC_AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from kafka_messages.create_topics import CreatableTopic, Replies, Reply, Request, Response

MAX_PARTITIONS_A_REQUEST = 10_000
"""Kafka has the same bound. The answer has some forty configs of every new topic."""


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    names, partitions = Counter[str](), 0
    async for topic in in_turns(request.topics):
        names[topic.name] += 1
        # At least one, and none of a topic that is too large by itself: Kafka has a code for that.
        count = max(1, _partitions(context, topic))
        partitions += count if count <= MAX_PARTITIONS_A_TOPIC else 0
    all_of_them = _AllOfThem(
        times=names,
        partitions=partitions,
        validate_only=request.validate_only,
        mutations=(mutations := throttling.Mutations(context, strict_from_version=6)),
    )
    results = [await _one(context, reply, topic, all_of_them) async for topic in in_turns(request.topics)]
    return reply.CreateTopicsResponse(throttle_time=mutations.throttle(), topics=results)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllOfThem:
    """What the topics of one request have in common."""

    times: Mapping[str, int]
    """How often a name stands in the request."""
    partitions: int
    validate_only: bool
    mutations: throttling.Mutations


def _partitions(context: Context, topic: "CreatableTopic") -> int:
    if topic.assignments:
        return len(topic.assignments)
    return context.broker.settings.topics.num_partitions if topic.num_partitions < 0 else topic.num_partitions


def check_new_topic(broker: Broker, partitions: int) -> None:
    """PolicyViolation when another topic, or so many partitions, would be too many."""
    limit = broker.settings.limits.tiered_max_topics
    if len(broker.topics) > limit:  # The one of offsets is not among those that people make.
        raise PolicyViolation(f"{limit} topics are there; delete some, or raise tiered.max.topics")
    check_partitions(broker, partitions)


def check_partitions(broker: Broker, more: int) -> None:
    """PolicyViolation when `more` partitions would be too many for the broker (`tiered.max.partitions`)."""
    limit = broker.settings.limits.tiered_max_partitions
    have = broker.topics.hosted_count
    if more <= MAX_PARTITIONS_A_TOPIC and have + more > limit:  # Kafka has a code for too large a topic.
        raise PolicyViolation(f"{more} more partitions would exceed tiered.max.partitions={limit}; {have} are there")


async def _one(
    context: Context,
    reply: "Reply",
    asked: "CreatableTopic",
    all_of_them: _AllOfThem,
) -> "Replies.CreatableTopicResult":
    admin = context.broker.admin
    try:
        if not may(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            require_topic(context, Operation.CREATE, asked.name)
        if all_of_them.partitions > MAX_PARTITIONS_A_REQUEST:
            raise PolicyViolation(f"{all_of_them.partitions} partitions are too many for one request; split it")
        if (times := all_of_them.times[asked.name]) > 1:
            raise InvalidRequest(f"topic {asked.name} stands {times} times in one request")
        new = NewTopic(
            name=asked.name,
            partition_count=asked.num_partitions,
            replication_factor=asked.replication_factor,
            assignments={each.partition_index: tuple(each.broker_ids) for each in asked.assignments},
            configs={each.name: each.value for each in asked.configs},
        )
        if len(new.assignments) != len(asked.assignments):
            raise InvalidReplicaAssignment(f"topic {asked.name}: a partition is assigned twice in the request")
        if len(new.configs) != len(asked.configs):
            raise InvalidRequest(f"topic {asked.name}: a config stands twice in the request")
        check_new_topic(context.broker, len(new.assignments) or max(1, new.partition_count))
        if not all_of_them.validate_only:
            all_of_them.mutations.take(_partitions(context, asked))
        topic = await admin.create_topic(new, validate_only=all_of_them.validate_only)
    except TieredError as error:
        return reply.CreatableTopicResult(
            name=asked.name,
            topic_id=None,
            error_code=error_code(error),
            error_message=str(error),
            num_partitions=-1,
            replication_factor=-1,
            configs=None if context.api_version >= 5 else [],
        )
    may_see = may(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
    return reply.CreatableTopicResult(
        name=topic.name,
        topic_id=None if all_of_them.validate_only else topic.topic_id,
        error_code=NONE,
        error_message=None,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        topic_config_error_code=NONE if may_see else TOPIC_AUTHORIZATION_FAILED,
        configs=[
            reply.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=int(entry.source),
                is_sensitive=entry.is_sensitive,
            )
            for entry in (for_clients(admin.describe_topic(topic)) if may_see else ())
        ],
    )


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    for each, code in aligned(request.topics, answer and answer.topics):
        yield AuditEntry(f"TOPIC:{each.name}", code, {"partitions": each.num_partitions or len(each.assignments)})


API = Api(
    19,
    "CreateTopics",
    (2, 7),
    rights="CREATE on the topic or the cluster; DESCRIBE_CONFIGS to be told its configs",
    handle=handle,
    on_replica=Refused(),
    audit=_told,
)
