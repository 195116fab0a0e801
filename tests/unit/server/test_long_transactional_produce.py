"""A Produce request of many batches of a transaction: others get their turns while it is looked at and appended."""

import asyncio
from pathlib import Path

import pytest

from tests.support.rules_only_coordinator import PRODUCER
from tests.support.transactions import transactional_batch, write
from tests.unit.broker.replication.replicas import replica, row, tell
from tests.unit.server.long_produce import handled
from tiered import runtime
from tiered.server.kafka.api.produce import LONG_PRODUCE_BATCHES

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
        (0, transactional_batch(PRODUCER.producer_id, start + number, epoch=PRODUCER.producer_epoch))
        for number in range(COUNT)
    ]
    async with handled(tmp_path / "broker", led, batches, acks=1, transactional_id="pay") as answer:
        bystander = Bystander()
        living = asyncio.create_task(bystander.live())
        assert asyncio.iscoroutine(answer)
        assert await answer is not None
        living.cancel()
    assert led.log.log_end_offset == start + COUNT
    assert bystander.turns >= 2 * (COUNT - 1)
