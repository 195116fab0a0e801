"""What brokers ask each other about transactions: over connections that stay open, in a bounded time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.support.scripted_peer import Raw, serving
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.transactions.broker_channel import (
    ADD_PARTITIONS,
    KINDS,
    WRITE_MARKERS,
    AskedTransaction,
    PeerTransactionChannels,
    ProducersMarker,
    TransactionChannels,
)
from tiered.config import BrokerSettings, TopicConfig
from tiered.errors import (
    ClusterNotAuthorized,
    NotEnoughReplicas,
    RequestTimedOut,
    ShuttingDown,
    TransactionAbortable,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.ids import TopicId, TopicPartition
from tiered.meta.brokers import BrokerRow
from tiered.peer.answers import ConnectionLost, CorruptAnswer
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch
from tiered.server.kafka.error_mapping import error_code
from tiered.wire import messages

API_VERSIONS = 18
ORDERS, GONE = TopicId(UUID(int=7)), TopicId(UUID(int=8))
PRODUCER = ProducerIdAndEpoch(4000, 3)
Answer = Callable[[Any, messages.Messages], Any]


def offers(version: int, newest: int) -> bytes:
    reply = messages.reply(API_VERSIONS, version)
    keys = [
        reply.ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=3),
        reply.ApiVersion(api_key=ADD_PARTITIONS, min_version=0, max_version=newest),
        reply.ApiVersion(api_key=WRITE_MARKERS, min_version=1, max_version=2),
    ]
    return messages.encode(reply.ApiVersionsResponse(error_code=0, api_keys=keys))


def topics() -> Topics:
    known = Topics()
    config = TopicConfig.of({}, BrokerSettings())
    known.put(Topic(name="orders", topic_id=ORDERS, partition_count=8, config=config, overrides={}, partitions=()))
    return known


@asynccontextmanager
async def asking(answer: Answer, *, newest: int = 5) -> AsyncIterator[tuple[TransactionChannels, BrokerRow, list[int]]]:
    """Channels, a broker that answers with `answer(request, reply)` or hangs up, and the keys of what it was asked."""

    def scripted(key: int, version: int, body: bytes) -> bytes | None:
        if key == API_VERSIONS:
            return offers(version, newest)
        made = answer(messages.request_decoder(key, version)(body, 0), messages.reply(key, version))
        return made if made is None or isinstance(made, bytes) else messages.encode(made)

    async with serving(scripted) as (port, asked):
        row = BrokerRow(
            broker_id=1, broker_epoch=1, boot_id="b", fenced=False, heartbeat_at_ms=0, host="127.0.0.1", port=port,
            http_host=None, http_port=None, rack=None, incarnation_id=None, change_number=1,
        )  # fmt: skip
        channels = PeerTransactionChannels(2, topics=topics())
        yield channels, row, asked
        channels.close()


def added(request: Any, reply: messages.Messages, codes: Callable[[str, int], int] = lambda name, number: 0) -> Any:
    """An answer that gives each partition of each transaction `codes(transactional id, partition)`."""
    return reply.AddPartitionsToTxnResponse(
        error_code=0,
        results_by_transaction=[
            reply.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    reply.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            reply.AddPartitionsToTxnPartitionResult(
                                partition_index=number, partition_error_code=codes(each.transactional_id, number)
                            )
                            for number in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in reversed(request.transactions)
        ],
    )


def question(name: str, *numbers: int, topic: TopicId = ORDERS, adds: bool = False) -> AskedTransaction:
    partitions = [TopicPartition(topic, number) for number in numbers]
    return AskedTransaction(transactional_id=name, producer=PRODUCER, partitions=partitions, adds=adds)


def marker(producer_id: int, *numbers: int, commits: bool = True, raises_epoch: bool = True) -> ProducersMarker:
    return ProducersMarker(
        marker=TransactionMarker(type=MarkerType.COMMIT if commits else MarkerType.ABORT, coordinator_epoch=9),
        producer=ProducerIdAndEpoch(producer_id, 4),
        raises_epoch=raises_epoch,
        partitions=[TopicPartition(ORDERS, number) for number in numbers],
    )


async def test_several_transactions_are_asked_about_in_one_request_and_answered_each() -> None:
    seen: list[Any] = []

    def answer(request: Any, reply: messages.Messages) -> Any:
        seen.append(request)
        return added(request, reply, lambda name, number: 120 if (name, number) == ("b", 2) else 0)

    async with asking(answer) as (channels, row, _):
        first, second = await channels.add_partitions(row, [question("a", 1), question("b", 1, 2, adds=True)])
    assert first == {TopicPartition(ORDERS, 1): None}
    assert second[TopicPartition(ORDERS, 1)] is None
    assert isinstance(second[TopicPartition(ORDERS, 2)], TransactionAbortable)
    (request,) = seen
    assert [(each.transactional_id, each.verify_only) for each in request.transactions] == [("a", True), ("b", False)]
    assert {(each.producer_id, each.producer_epoch) for each in request.transactions} == {(4000, 3)}


async def test_markers_of_several_producers_go_in_one_request_with_their_protocol() -> None:
    seen: list[Any] = []

    def answer(request: Any, reply: messages.Messages) -> Any:
        seen.append(request)
        return reply.WriteTxnMarkersResponse(
            markers=[
                reply.WritableTxnMarkerResult(
                    producer_id=each.producer_id,
                    topics=[
                        reply.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                reply.WritableTxnMarkerPartitionResult(
                                    partition_index=number, error_code=19 if number == 5 else 0
                                )
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.markers
            ]
        )

    async with asking(answer) as (channels, row, _):
        first, second = await channels.write_markers(
            row, [marker(1, 0, 5), marker(2, 3, commits=False, raises_epoch=False)]
        )
    assert first[TopicPartition(ORDERS, 0)] is None
    assert isinstance(first[TopicPartition(ORDERS, 5)], NotEnoughReplicas)
    assert second == {TopicPartition(ORDERS, 3): None}
    (request,) = seen
    assert [
        (each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch,
         each.transaction_version) for each in request.markers
    ] == [(1, 4, True, 9, 2), (2, 4, False, 9, 1)]  # fmt: skip


async def test_a_topic_that_is_gone_is_not_asked_about() -> None:
    def answer(request: Any, reply: messages.Messages) -> Any:
        assert [each.topics for each in request.transactions] == [()]
        return added(request, reply)

    async with asking(answer) as (channels, row, _):
        (outcomes,) = await channels.add_partitions(row, [question("a", 1, topic=GONE)])
    assert isinstance(outcomes[TopicPartition(GONE, 1)], UnknownTopicOrPartition)


async def test_a_partition_that_the_answer_leaves_out_is_not_taken_for_verified() -> None:
    def answer(request: Any, reply: messages.Messages) -> Any:
        return reply.AddPartitionsToTxnResponse(error_code=0, results_by_transaction=[])

    async with asking(answer) as (channels, row, _):
        with pytest.raises(CorruptAnswer):
            await channels.add_partitions(row, [question("a", 1)])


async def test_a_refusal_of_the_whole_question_is_raised() -> None:
    def answer(request: Any, reply: messages.Messages) -> Any:
        return reply.AddPartitionsToTxnResponse(error_code=31, results_by_transaction=[])

    async with asking(answer) as (channels, row, _):
        with pytest.raises(ClusterNotAuthorized):
            await channels.add_partitions(row, [question("a", 1)])


async def test_the_connection_stays_open_and_is_made_anew_after_an_error_or_a_new_registration() -> None:
    fails = False

    def answer(request: Any, reply: messages.Messages) -> Any:
        return None if fails else added(request, reply)

    async with asking(answer) as (channels, row, asked):
        for _ in range(3):
            await channels.add_partitions(row, [question("a", 1)])
        assert asked.count(API_VERSIONS) == 1
        fails = True
        with pytest.raises(ConnectionLost):
            await channels.add_partitions(row, [question("a", 1)])
        fails = False
        await channels.add_partitions(row, [question("a", 1)])
        assert asked.count(API_VERSIONS) == 2
        await channels.add_partitions(replace(row, broker_epoch=2), [question("a", 1)])
        assert asked.count(API_VERSIONS) == 3


async def test_an_unanswered_question_ends_in_time_and_the_next_one_goes_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tiered.broker.transactions.broker_channel.ADD_TIMEOUT_MS", 150.0)

    def answer(request: Any, reply: messages.Messages) -> Any:
        return Raw(b"") if request.transactions[0].transactional_id == "slow" else added(request, reply)

    async with asking(answer) as (channels, row, asked):
        slow = asyncio.ensure_future(channels.add_partitions(row, [question("slow", 1)]))
        await asyncio.sleep(0.05)
        behind = asyncio.ensure_future(channels.add_partitions(row, [question("behind", 1)]))
        with pytest.raises(RequestTimedOut):
            await slow
        await asyncio.gather(behind, return_exceptions=True)
        assert await channels.add_partitions(row, [question("a", 1)]) == [{TopicPartition(ORDERS, 1): None}]
        assert asked.count(API_VERSIONS) == 2


async def test_a_verification_does_not_wait_behind_markers_that_wait_for_followers() -> None:
    def answer(request: Any, reply: messages.Messages) -> Any:
        return Raw(b"") if hasattr(request, "markers") else added(request, reply)

    async with asking(answer) as (channels, row, _):
        markers = asyncio.ensure_future(channels.write_markers(row, [marker(1, 0)]))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await channels.add_partitions(row, [question("a", 1)])
        assert not markers.done()
        channels.close()
        with pytest.raises(ConnectionLost):
            await markers


async def test_a_broker_that_knows_no_verification_is_not_taken_for_one_that_verified() -> None:
    async with asking(added, newest=3) as (channels, row, asked):
        with pytest.raises(UnsupportedVersion):
            await channels.add_partitions(row, [question("a", 1)])
        assert ADD_PARTITIONS not in asked


async def test_after_the_end_nobody_is_asked() -> None:
    async with asking(added) as (channels, row, asked):
        channels.close()
        with pytest.raises(ShuttingDown):
            await channels.add_partitions(row, [question("a", 1)])
        assert not asked


@pytest.mark.parametrize("code", KINDS)
def test_an_error_of_another_broker_has_the_code_that_it_came_with(code: int) -> None:
    assert error_code(KINDS[code]("no")) == code
