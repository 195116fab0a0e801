"""AlterReplicaLogDirs (key 34), versions 1 and 2: a broker has one log directory, so no replica can be moved.

To the directory where it is already nothing has to be done, and that succeeds, as in Kafka; any other is
LOG_DIR_NOT_FOUND. The directory is named as DescribeLogDirs names it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tiered.broker.broker import Broker
from tiered.errors import NotLeader, ReplicaNotAvailable, TieredError
from tiered.rules.security.acl import Operation
from tiered.server.kafka.audited import MAX_ITEMS, AuditEntry, codes_of, summed
from tiered.server.kafka.authorize import require_cluster
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import error_code
from tiered.wire.error_codes import LOG_DIR_NOT_FOUND, NONE

if TYPE_CHECKING:
    from kafka_messages.alter_replica_log_dirs import Replies, Reply, Request, Response


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    broker = context.broker
    denied = None
    try:
        require_cluster(context, Operation.ALTER)
    except TieredError as error:
        denied = error_code(error)
    by_topic: dict[str, list[Replies.AlterReplicaLogDirPartitionResult]] = {}
    asked = (
        (each.path, topic.name, index) for each in request.dirs for topic in each.topics for index in topic.partitions
    )
    async for path, name, index in in_turns(asked):
        code = _outcome(broker, path, name, index) if denied is None else denied
        by_topic.setdefault(name, []).append(
            reply.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        )
    return reply.AlterReplicaLogDirsResponse(
        throttle_time=0,
        results=[
            reply.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )


def _outcome(broker: Broker, path: str, name: str, index: int) -> int:
    if path != str(broker.data.log_root):
        return LOG_DIR_NOT_FOUND
    try:
        broker.topics.by_name(name).partition(index)
    except NotLeader:
        return error_code(ReplicaNotAvailable("no replica of it is here"))
    except TieredError as error:
        return error_code(error)
    return NONE


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    asked = sorted({topic.name for each in request.dirs for topic in each.topics})
    results = () if answer is None else answer.results
    codes = {each.topic_name: summed(codes_of(each.partitions)) for each in results}
    paths = [each.path[:249] for each in request.dirs[:MAX_ITEMS]]
    for name in asked:
        code, partly = (None, {}) if answer is None else codes.get(name, (NONE, {}))
        yield AuditEntry(f"TOPIC:{name}", code, {"log_dirs": paths, **partly})


API = Api(34, "AlterReplicaLogDirs", (1, 2), rights="ALTER on the cluster", handle=handle, audit=_told)
