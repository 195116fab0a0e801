"""A Produce request of many batches: others get their turns while it is looked at and appended, and what others do in
them is not missed by its answer.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.partition_appends import batch
from tests.support.rules_only_coordinator import PRODUCER, RulesOnly, ValuesAlong, open_transaction
from tests.support.transactions import transactional_batch, write
from tests.unit.broker.context import surroundings
from tests.unit.broker.replication.replicas import EPOCHS, replica, row, tell
from tiered import runtime
from tiered.broker.partitions.batch_checks import LongValidations
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.security.access import Access
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.broker.transactions.verification import Verifications
from tiered.file_slice import FileSlice
from tiered.ids import InSyncReplica
from tiered.server.kafka.api.produce import LONG_PRODUCE_BATCHES, handle
from tiered.server.kafka.dispatch import Context, RawRequest
from tiered.server.kafka.transport.requests import DelayedAnswer, Overlapping
from tiered.wire import produce
from tiered.wire.error_codes import NOT_LEADER_OR_FOLLOWER

VERSION = 9
"""The last one whose refusals name no leaders."""
COUNT = LONG_PRODUCE_BATCHES + 1
FRAME_BYTES = 9
"""Length, correlation id and no tagged fields."""


class Bystander:
    """Counts the turns that the loop gives it."""

    def __init__(self) -> None:
        self.turns = 0

    async def live(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1


@asynccontextmanager
async def asking(
    folder: Path, partitions: Sequence[Partition], batches: Sequence[bytes], *, acks: int, transactional_id: str | None
) -> AsyncIterator[RawRequest]:
    """A request with the batches, spread over these partitions of a topic `t`."""
    topic_batches = [(number % len(partitions), data) for number, data in enumerate(batches)]
    body = produce.encode_produce_request(
        [produce.TopicBatches("t", None, topic_batches)],
        VERSION,
        acks=acks,
        timeout_ms=60_000,
        transactional_id=transactional_id,
    )
    topics = Topics()
    topics.put(
        Topic(
            name="t",
            topic_id=partitions[0].topic_partition.topic_id,
            partition_count=len(partitions),
            config=partitions[0].config,
            overrides={},
            partitions=tuple(partitions),
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
            counters=made.context.counters,
            topics=topics,
            access=Access(state=made.state),
            client_quotas=ClientQuotas(made.clock, lambda: made.state.settings),
            validation=LongValidations(),
            verifications=verifications,
            context=made.context,
        )
        connection = SimpleNamespace(principal=None, host="127.0.0.1")
        context = SimpleNamespace(broker=broker, connection=connection, api_version=VERSION, throttle_ms=0)
        yield RawRequest(cast(Context, context), memoryview(bytearray(body)), 0, len(body), 1)


@pytest.mark.parametrize("is_open", [False, True], ids=["to ask about", "open already"])
async def test_many_batches_of_a_transaction_are_looked_at_in_turns_and_appended_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    monkeypatch.setattr(runtime, "TURN_MS", -1.0)  # each step is a turn
    led = replica(tmp_path / "replica", 1, min_insync_replicas=1)
    tell(led, row(isr=(1,), replicas=(1,)))
    if is_open:
        write(led, PRODUCER.producer_id, epoch=PRODUCER.producer_epoch)
    start = led.log.log_end_offset
    batches = [
        bytes(transactional_batch(PRODUCER.producer_id, start + number, epoch=PRODUCER.producer_epoch))
        for number in range(COUNT)
    ]
    async with asking(tmp_path / "broker", [led], batches, acks=1, transactional_id="pay") as request:
        bystander = Bystander()
        living = asyncio.create_task(bystander.live())
        answer = handle(request)
        assert asyncio.iscoroutine(answer)
        assert await answer is not None
        living.cancel()
    assert led.log.log_end_offset == start + COUNT
    assert bystander.turns >= 2 * (COUNT - 1)


@pytest.mark.parametrize("ends", ["committed", "led by another", "led again"])
async def test_what_ends_the_wait_of_a_batch_while_others_are_appended_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """A follower fetches the first batch, or the leadership ends, before the request begins to wait."""
    monkeypatch.setattr(runtime, "TURN_MS", -1.0)
    leader = replica(tmp_path / "replica", 1)
    tell(leader, row())
    batches = [bytes(batch(str(number))) for number in range(COUNT)]
    async with asking(tmp_path / "broker", [leader], batches, acks=-1, transactional_id=None) as request:
        work = handle(request)
        assert asyncio.iscoroutine(work)
        task = asyncio.ensure_future(work)
        while leader.log.log_end_offset < COUNT:
            await asyncio.sleep(0)
        if ends == "committed":
            for broker_id in (2, 3):
                leader.note_fetch(InSyncReplica(broker_id, EPOCHS[broker_id]), COUNT, 0.0)
        else:
            tell(leader, row(leader=2, epoch=1))
            if ends == "led again":
                tell(leader, row(epoch=2))
        overlapping = await task
        assert isinstance(overlapping, Overlapping)
        assert isinstance(overlapping.work, DelayedAnswer)
        calls: list[None] = []
        overlapping.work.begin(lambda: calls.append(None))
        assert calls == [None]
        parts = overlapping.work.answer(is_last=False)
        assert isinstance(parts, list)
    data = b"".join(bytes(part) for part in parts if not isinstance(part, FileSlice))
    answered = produce.decode_produce_response(data, FRAME_BYTES, len(data), VERSION)
    codes = {partition.error_code for topic in answered.topics for partition in topic.partitions}
    assert codes == {0 if ends == "committed" else NOT_LEADER_OR_FOLLOWER}
