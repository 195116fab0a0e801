"""A Produce request of many batches of a transaction: others get their turns while it is looked at and appended."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.rules_only_coordinator import PRODUCER, RulesOnly, ValuesAlong, open_transaction
from tests.support.transactions import transactional_batch, write
from tests.unit.broker.context import surroundings
from tests.unit.broker.replication.replicas import replica, row, tell
from tiered import runtime
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.security.access import Access
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.broker.transactions.verification import Verifications
from tiered.cold.budget import Budget
from tiered.server.kafka.api.produce import LONG_PRODUCE_BATCHES, handle
from tiered.server.kafka.dispatch import Context, RawRequest
from tiered.wire import produce

VERSION = 11
COUNT = LONG_PRODUCE_BATCHES + 1


class Bystander:
    """Counts the turns that the loop gives it."""

    def __init__(self) -> None:
        self.turns = 0

    async def live(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1


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
        transactional_batch(PRODUCER.producer_id, start + number, epoch=PRODUCER.producer_epoch)
        for number in range(COUNT)
    ]
    asked = [produce.TopicBatches("t", None, [(0, each) for each in batches])]
    body = produce.encode_produce_request(asked, VERSION, acks=1, timeout_ms=60_000, transactional_id="pay")
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
    async with surroundings(tmp_path / "broker") as made:
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
            validating=Budget(len(body)),
            verifications=verifications,
        )
        connection = SimpleNamespace(principal=None, host="127.0.0.1")
        context = SimpleNamespace(broker=broker, connection=connection, api_version=VERSION, throttle_ms=0)
        bystander = Bystander()
        living = asyncio.create_task(bystander.live())
        answer = handle(RawRequest(cast(Context, context), memoryview(body), 0, len(body), 1))
        assert asyncio.iscoroutine(answer)
        assert await answer is not None
        living.cancel()
    assert led.log.log_end_offset == start + COUNT
    assert bystander.turns >= 2 * (COUNT - 1)
