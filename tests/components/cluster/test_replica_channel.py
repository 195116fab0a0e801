"""A follower's connection to a leader: long answers in memory that is used again, and a deadline of its own."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from tests.support.scripted_peer import Raw, serving
from tiered import errors, peer
from tiered.broker.replication.channel import PeerChannels, ReplicaChannel
from tiered.errors import RequestTimedOut
from tiered.meta.brokers import BrokerRow
from tiered.peer.connection import KEPT_BYTES
from tiered.wire import fetch, messages
from tiered.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopic, FetchTopicResult

API_VERSIONS = 18
TOPIC = UUID(int=7)
Records = Callable[[int], bytes | None]


def offers(version: int) -> bytes:
    reply = messages.reply(API_VERSIONS, version)
    keys = [
        reply.ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=3),
        reply.ApiVersion(api_key=fetch.API_KEY, min_version=4, max_version=18),
    ]
    return messages.encode(reply.ApiVersionsResponse(error_code=0, api_keys=keys))


def question(offset: int, max_wait_ms: int = 500) -> FetchRequest:
    asked = FetchPartition(0, 0, offset, -1, 0, 1 << 20)
    return FetchRequest(2, 9, max_wait_ms, 1, 10 << 20, 0, 0, -1, [FetchTopic(None, TOPIC, [asked])])


def body_with(records: bytes, offset: int) -> bytes:
    result = FetchPartitionResult(0, 0, offset, -1, 0, records)
    parts: list[bytes | bytearray] = fetch.encode_fetch_response(18, 1, 0, 0, [FetchTopicResult(None, TOPIC, [result])])
    whole = b"".join(parts)
    return whole[4 + 5 :]  # Without length, correlation id and tagged fields, which the server puts before it.


@asynccontextmanager
async def channel_to(records: Records) -> AsyncIterator[ReplicaChannel]:
    """A channel to a leader that answers a Fetch from an offset with `records(offset)`, or not at all."""

    def answer(key: int, version: int, body: bytes) -> bytes:
        if key == API_VERSIONS:
            return offers(version)
        (offset,) = struct.unpack_from(">q", body, body.index(TOPIC.bytes) + 16 + 1 + 8)
        found = records(offset)
        return Raw(b"") if found is None else body_with(found, offset)

    async with serving(answer) as (port, _):
        row = BrokerRow(
            broker_id=1, broker_epoch=1, boot_id="b", fenced=False, heartbeat_at_ms=0, host="127.0.0.1", port=port,
            http_host=None, http_port=None, rack=None, incarnation_id=None, change_number=1,
        )  # fmt: skip
        channel = await PeerChannels(2).open(row)
        yield channel
        channel.close()


async def records_at(channel: ReplicaChannel, offset: int) -> bytes:
    answer = await channel.fetch(question(offset))
    (result,) = answer.topics[0].partitions
    assert isinstance(result.records, memoryview)
    assert result.high_watermark == offset
    return bytes(result.records)


async def test_answers_of_all_lengths_follow_each_other_unharmed() -> None:
    lengths = [1, 100_000, 3_000, 1 << 20, 70_000, KEPT_BYTES + 1, 2_000_000, 5, 4_000, 4_096]

    def records(offset: int) -> bytes:
        return bytes([offset % 251]) * lengths[offset]

    async with channel_to(records) as channel:
        for offset, length in enumerate(lengths):
            assert await records_at(channel, offset) == bytes([offset % 251]) * length


async def test_memory_of_a_long_answer_is_used_again() -> None:
    async with channel_to(lambda offset: bytes([offset]) * 500_000) as channel:
        first = (await channel.fetch(question(1))).topics[0].partitions[0].records
        assert isinstance(first, memoryview)
        assert first[0] == 1
        await channel.fetch(question(2))
        assert first[0] == 2


async def test_a_leader_that_does_not_answer_is_given_up_and_the_connection_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tiered.broker.replication.channel.TIMEOUT_MS", 200.0)
    async with channel_to(lambda offset: b"x" if offset < 3 else None) as channel:
        for offset in range(3):
            await records_at(channel, offset)
        with pytest.raises(RequestTimedOut):
            await channel.fetch(question(3, max_wait_ms=50))
        with pytest.raises(errors.TieredError):
            await channel.fetch(question(4))


async def test_closing_the_channel_ends_a_question_under_way() -> None:
    async with channel_to(lambda offset: None) as channel:
        asking = asyncio.ensure_future(channel.fetch(question(0)))
        await asyncio.sleep(0.05)
        channel.close()
        with pytest.raises(peer.ConnectionLost):
            await asking
