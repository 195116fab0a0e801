"""A Produce request of many batches at one partition's leader, handled without a server around it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.support.rules_only_coordinator import RulesOnly, ValuesAlong, open_transaction
from tests.unit.broker.context import surroundings
from tiered.broker.partitions.batch_checks import LongValidations
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.security.access import Access
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.broker.transactions.verification import Verifications
from tiered.server.kafka.api.produce import handle
from tiered.server.kafka.dispatch import Context, RawRequest
from tiered.server.kafka.transport.requests import Answer
from tiered.wire import produce

VERSION = 9
HEADER_BYTES = 9
"""Of an answer, before its body."""


@asynccontextmanager
async def handled(
    folder: Path,
    led: Partition,
    batches: Sequence[tuple[int, bytearray]],
    *,
    acks: int,
    transactional_id: str | None = None,
) -> AsyncIterator[Answer]:
    """The answer to one request with all these batches of partitions, of which there is partition 0 alone."""
    asked = [produce.TopicBatches("t", None, list(batches))]
    body = produce.encode_produce_request(
        asked, VERSION, acks=acks, timeout_ms=60_000, transactional_id=transactional_id
    )
    topics = Topics()
    topics.put(
        Topic(
            name="t",
            topic_id=led.topic_partition.topic_id,
            partition_count=1,
            config=led.config,
            overrides={},
            partitions=(led,),
        )
    )
    async with surroundings(folder) as made:
        verifications = Verifications(
            context=made.context,
            here=RulesOnly(open_transaction("pay", 0)),
            coordinator_elsewhere=lambda _: None,
            channels=ValuesAlong(),
        )
        broker = SimpleNamespace(
            clock=made.clock,
            context=made.context,
            counters=made.context.counters,
            topics=topics,
            access=Access(state=made.state),
            client_quotas=ClientQuotas(made.clock, lambda: made.state.settings),
            validation=LongValidations(),
            verifications=verifications,
        )
        frame = memoryview(bytearray(body))
        connection = SimpleNamespace(
            owner="127.0.0.1", principal=None, host="127.0.0.1", keep_frame=lambda end: frame[:end]
        )
        context = SimpleNamespace(broker=broker, connection=connection, api_version=VERSION, throttle_ms=0)
        yield handle(RawRequest(cast(Context, context), frame, 0, len(body), 1))


def results(parts: Sequence[bytes | bytearray | memoryview]) -> list[produce.PartitionResult]:
    """What an answer says of its batches."""
    answer = b"".join(parts)
    (topic,) = produce.decode_produce_response(answer, HEADER_BYTES, len(answer), VERSION).topics
    return list(topic.partitions)
