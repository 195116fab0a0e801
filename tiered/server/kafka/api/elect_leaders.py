"""ElectLeaders (key 43), versions 0 to 2: preferred elections, and from v1 unclean ones (type 1).

Null partitions mean all of them; then only those that were tried are answered, and ELECTION_NOT_NEEDED is not, as
in Kafka. An unclean election loses acknowledged records. Difference to Kafka: it is POLICY_VIOLATION unless the topic's
`unclean.leader.election.enable` is true, so that a loss takes two deliberate steps.
"""

from typing import Any

from tiered.broker import reassignments
from tiered.broker.broker import Broker
from tiered.errors import ElectionNotNeeded, InvalidRequest, TieredError
from tiered.ids import TopicPartition
from tiered.rules.acl import Operation
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context
from tiered.server.kafka.error_mapping import NONE, error_code

PREFERRED, UNCLEAN = 0, 1

Name = tuple[str, int]


async def handle(context: Context, request: Any, reply: Any) -> Any:
    broker = context.broker
    election_type = getattr(request, "election_type", PREFERRED)
    everything = request.topic_partitions is None
    try:
        require_cluster(context, Operation.ALTER)
    except TieredError as error:
        return _refused(request, reply, error)
    found, errors = _everything(broker) if everything else _asked(broker, request)
    code = NONE
    try:
        if election_type == PREFERRED:
            outcomes = await reassignments.elect_preferred(broker, found.keys())
        elif election_type == UNCLEAN:
            outcomes = await reassignments.elect_unclean(broker, found.keys())
        else:
            raise InvalidRequest(f"election type {election_type} is not known: 0 is preferred, 1 unclean")
    except TieredError as error:
        code = error_code(error)
        errors |= dict.fromkeys(found.values(), error.without_frames())
    else:
        errors |= {found[each]: error for each, error in outcomes.items()}
    if everything:
        errors = {name: error for name, error in errors.items() if not isinstance(error, ElectionNotNeeded)}
    by_topic: dict[str, list[tuple[int, TieredError | None]]] = {}
    for (name, index), outcome in errors.items():
        by_topic.setdefault(name, []).append((index, outcome))
    return reply.ElectLeadersResponse(
        throttle_time=0,
        error_code=code,
        replica_election_results=[
            reply.ReplicaElectionResult(
                topic=name, partition_result=[_answer(reply, index, outcome) for index, outcome in results]
            )
            for name, results in by_topic.items()
        ],
    )


def _refused(request: Any, reply: Any, error: TieredError) -> Any:
    """For the whole request; v0 has no place for it but its partitions."""
    return reply.ElectLeadersResponse(
        throttle_time=0,
        error_code=error_code(error),
        replica_election_results=[
            reply.ReplicaElectionResult(
                topic=asked.topic, partition_result=[_answer(reply, index, error) for index in asked.partitions]
            )
            for asked in request.topic_partitions or ()
        ],
    )


def _everything(broker: Broker) -> tuple[dict[TopicPartition, Name], dict[Name, TieredError | None]]:
    found = {}
    for each in broker.image.rows:
        topic = broker.topics.find_id(each.topic_id)
        if topic is not None:
            found[each] = (topic.name, each.partition)
    return found, {}


def _asked(broker: Broker, request: Any) -> tuple[dict[TopicPartition, Name], dict[Name, TieredError | None]]:
    found: dict[TopicPartition, Name] = {}
    errors: dict[Name, TieredError | None] = {}
    for asked in request.topic_partitions:
        for index in asked.partitions:
            try:
                found[reassignments.named(broker.topics, asked.topic, index)] = (asked.topic, index)
            except TieredError as error:
                errors[asked.topic, index] = error.without_frames()
    return found, errors


def _answer(reply: Any, index: int, error: TieredError | None) -> Any:
    return reply.PartitionResult(
        partition_id=index,
        error_code=NONE if error is None else error_code(error),
        error_message=None if error is None else str(error),
    )


API = Api(key=43, name="ElectLeaders", min_version=0, max_version=2, handle=handle)
