"""WriteTxnMarkers (key 27), versions 1 and 2: the ends of transactions, for the partitions that this broker leads.

Asked by coordinators, and by administrators who end a transaction that hangs. Each partition succeeds or fails for
itself; success means that the marker is committed. A marker of a producer that cannot be, or with a coordinator epoch
above every coordinator's, is refused with INVALID_REQUEST: Kafka takes it, and then refuses the real coordinator's.
Version 2 says by `transaction_version` whether each transaction has an epoch of its own (2), so that a late marker
cannot end a later one.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tiered.broker.transactions.broker_channel import ProducersMarker
from tiered.errors import ClusterNotAuthorized, TieredError
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.ids import TopicPartition
from tiered.rules.partition.producer_state import check_marker
from tiered.rules.security.acl import Operation
from tiered.rules.transactions.transaction_state import RAISES_EPOCH, ProducerIdAndEpoch
from tiered.server.kafka.audited import AuditEntry, codes_of, summed
from tiered.server.kafka.authorize import is_broker, may_replicate, require_cluster
from tiered.server.kafka.dispatch import Api, Context, Refused, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.write_txn_markers import Reply, Request, Response, WritableTxnMarker


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    try:
        if not may_replicate(context):
            require_cluster(context, Operation.ALTER)
    except ClusterNotAuthorized as error:
        refused = error_code(error)
        return await _response(reply, request, lambda _number, _key: refused)
    newest_tenure = context.broker.image.newest_tenure
    partitions_of = [await _partitions(context, marker, newest_tenure) async for marker in in_turns(request.markers)]
    outcomes = await context.broker.marker_writer.write(
        [
            _marker(marker, named)
            async for marker, (named, _) in in_turns(zip(request.markers, partitions_of, strict=True))
        ]
    )

    def code(number: int, key: tuple[str, int]) -> int:
        named, unknown = partitions_of[number]
        if key in unknown:
            return unknown[key]
        failed = outcomes[number][named[key]]
        return NONE if failed is None else error_code(failed)

    return await _response(reply, request, code)


async def _partitions(
    context: Context, marker: "WritableTxnMarker", newest_tenure: int
) -> tuple[dict[tuple[str, int], TopicPartition], dict[tuple[str, int], int]]:
    """Those that may get it, by name and number, and the codes of the others."""
    named: dict[tuple[str, int], TopicPartition] = {}
    unknown: dict[tuple[str, int], int] = {}
    async for topic in in_turns(marker.topics):
        try:
            check_marker(_said(marker), _producer(marker), newest_tenure=newest_tenure)
            topic_id, code = context.broker.topics.by_name(topic.name).topic_id, NONE
        except TieredError as error:
            topic_id, code = None, error_code(error)
        async for number in in_turns(topic.partition_indexes):
            if topic_id is None:
                unknown[topic.name, number] = code
            else:
                named[topic.name, number] = TopicPartition(topic_id, number)
    return named, unknown


def _marker(marker: "WritableTxnMarker", found: dict[tuple[str, int], TopicPartition]) -> ProducersMarker:
    return ProducersMarker(
        marker=_said(marker),
        producer=_producer(marker),
        raises_epoch=getattr(marker, "transaction_version", 0) >= RAISES_EPOCH,
        partitions=tuple(found.values()),
    )


def _said(marker: "WritableTxnMarker") -> TransactionMarker:
    return TransactionMarker(
        type=MarkerType.COMMIT if marker.transaction_result else MarkerType.ABORT,
        coordinator_epoch=marker.coordinator_epoch,
    )


def _producer(marker: "WritableTxnMarker") -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)


async def _response(reply: "Reply", request: "Request", code: Callable[[int, tuple[str, int]], int]) -> "Response":
    """With the code of each marker, by its number, in each partition."""
    return reply.WriteTxnMarkersResponse(
        markers=[
            reply.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    reply.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            reply.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code(number, (topic.name, index))
                            )
                            async for index in in_turns(topic.partition_indexes)
                        ],
                    )
                    async for topic in in_turns(marker.topics)
                ],
            )
            async for number, marker in in_turns(enumerate(request.markers))
        ]
    )


def _told(request: "Request", answer: "Response | None") -> Iterable[AuditEntry]:
    """A line for each topic of each marker."""
    answers = [None] * len(request.markers) if answer is None else answer.markers
    for marker, result in zip(request.markers, answers, strict=False):
        codes = {} if result is None else {topic.name: codes_of(topic.partitions) for topic in result.topics}
        for topic in marker.topics:
            code, more = (None, {}) if result is None else summed(codes.get(topic.name, ()))
            details = {"producer_id": marker.producer_id, "commits": marker.transaction_result, **more}
            yield AuditEntry(f"TOPIC:{topic.name}", code, details)


API = Api(
    27,
    "WriteTxnMarkers",
    (1, 2),
    rights="CLUSTER_ACTION or ALTER on the cluster",
    handle=handle,
    audit=_told,
    audits=lambda context: not is_broker(context),
    on_replica=Refused(),
)
