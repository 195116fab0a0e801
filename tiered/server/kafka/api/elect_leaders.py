"""ElectLeaders (key 43), versions 0 to 2: preferred elections, and from v1 unclean ones (type 1).

Null partitions mean all of them; then only those that were tried are answered, and ELECTION_NOT_NEEDED is not, as
in Kafka. An unclean election loses acknowledged records. Difference to Kafka: it is POLICY_VIOLATION unless the topic's
`unclean.leader.election.enable` is true, so that a loss takes two deliberate steps.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.broker.broker import Broker
from tiered.broker.control import reassignments
from tiered.errors import ElectionNotNeeded, InvalidRequest, TieredError
from tiered.ids import TopicPartition
from tiered.rules.security.acl import CLUSTER_NAME, Operation
from tiered.server.kafka.audited import MAX_ITEMS, AuditEntry, codes_of, summed
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.elect_leaders import Replies, Reply, Request, Response

PREFERRED, UNCLEAN = 0, 1

Name = tuple[str, int]


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    broker = context.broker
    election_type = getattr(request, "election_type", PREFERRED)
    everything = request.topic_partitions is None
    try:
        require_cluster(context, Operation.ALTER)
    except TieredError as error:
        return await _refused(request, reply, error)
    found, errors = await (_everything(broker) if everything else _asked(broker, request))
    code = NONE
    try:
        if election_type == PREFERRED:
            outcomes = await broker.reassignments.elect_preferred(found.keys())
        elif election_type == UNCLEAN:
            outcomes = await broker.reassignments.elect_unclean(found.keys())
        else:
            raise InvalidRequest(f"election type {election_type} is not known: 0 is preferred, 1 unclean")
    except TieredError as error:
        code = error_code(error)
        errors |= dict.fromkeys(found.values(), error.without_frames())
    else:
        errors |= {found[each]: error for each, error in outcomes.items()}
    if everything:
        errors = {name: error for name, error in errors.items() if not isinstance(error, ElectionNotNeeded)}
    return await _answered(reply, code, errors.items())


async def _refused(request: "Request", reply: "Reply", error: TieredError) -> "Response":
    """For the whole request; v0 has no place for it but its partitions."""
    return await _answered(reply, error_code(error), ((name, error) for name in _names(request)))


async def _answered(reply: "Reply", code: int, outcomes: Iterable[tuple[Name, TieredError | None]]) -> "Response":
    by_topic: dict[str, list[Replies.PartitionResult]] = {}
    async for (name, index), outcome in in_turns(outcomes):
        by_topic.setdefault(name, []).append(_answer(reply, index, outcome))
    return reply.ElectLeadersResponse(
        throttle_time=0,
        error_code=code,
        replica_election_results=[
            reply.ReplicaElectionResult(topic=name, partition_result=results)
            async for name, results in in_turns(by_topic.items())
        ],
    )


def _names(request: "Request") -> Iterable[Name]:
    return ((asked.topic, index) for asked in request.topic_partitions or () for index in asked.partitions)


async def _everything(broker: Broker) -> tuple[dict[TopicPartition, Name], dict[Name, TieredError | None]]:
    found = {}
    async for each in in_turns(list(broker.image.rows)):
        topic = broker.topics.find_id(each.topic_id)
        if topic is not None:
            found[each] = (topic.name, each.partition)
    return found, {}


async def _asked(
    broker: Broker, request: "Request"
) -> tuple[dict[TopicPartition, Name], dict[Name, TieredError | None]]:
    found: dict[TopicPartition, Name] = {}
    errors: dict[Name, TieredError | None] = {}
    async for name in in_turns(_names(request)):
        try:
            found[reassignments.named(broker.topics, *name)] = name
        except TieredError as error:
            errors[name] = error.without_frames()
    return found, errors


def _answer(reply: "Reply", index: int, error: TieredError | None) -> "Replies.PartitionResult":
    return reply.PartitionResult(
        partition_id=index,
        error_code=NONE if error is None else error_code(error),
        error_message=None if error is None else str(error),
    )


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    code: int | None = None
    partly: dict[str, object] = {}
    if answer is not None:
        found = [code for each in answer.replica_election_results for code in codes_of(each.partition_result)]
        code, partly = summed(found or [int(getattr(answer, "error_code", NONE))])
    topics = (
        None
        if request.topic_partitions is None
        else [each.topic[:249] for each in request.topic_partitions[:MAX_ITEMS]]
    )
    kind = "unclean" if getattr(request, "election_type", 0) else "preferred"
    yield AuditEntry(f"CLUSTER:{CLUSTER_NAME}", code, {"election": kind, "topics": topics, **partly})


API = Api(43, "ElectLeaders", (0, 2), rights="ALTER on the cluster", handle=handle, on_replica=Refused(), audit=_told)
