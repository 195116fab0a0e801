"""A Produce request with acks=all whose batches are appended in turns, in which followers and elections go on."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.transactions import transactional_batch
from tests.unit.broker.replication.replicas import EPOCHS, replica, row, tell
from tests.unit.server.long_produce import handled, results
from tiered import runtime
from tiered.broker.partitions.partition import Partition
from tiered.ids import InSyncReplica
from tiered.server.kafka.api.produce import ALL, LONG_PRODUCE_BATCHES
from tiered.server.kafka.transport.requests import DelayedAnswer, Overlapping
from tiered.wire import error_codes
from tiered.wire.produce import PartitionResult

COUNT = LONG_PRODUCE_BATCHES + 1
FOLLOWER = 2
HALF = COUNT // 2
NOWHERE = 1
"""The partition of the last batch, which is refused: a pause comes between the last append and the answer."""


def fetched(led: Partition) -> None:
    led.note_fetch(InSyncReplica(FOLLOWER, EPOCHS[FOLLOWER]), led.log.log_end_offset, 0.0)


async def answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, in_a_pause: Callable[[Partition], None]
) -> list[PartitionResult] | None:
    """What the answer says of each batch of partition 0, where the answer is due as soon as the waiting has begun.
    `in_a_pause` is called after each turn of the appends."""
    monkeypatch.setattr(runtime, "TURN_MS", -1.0)  # each step is a turn
    led = replica(folder / "replica", 1)
    tell(led, row(isr=(1, FOLLOWER), replicas=(1, FOLLOWER)))
    batch = transactional_batch(-1, -1, epoch=-1, is_transactional=False)
    batches = [*((0, batch) for _ in range(COUNT)), (NOWHERE, batch)]

    async def live() -> None:
        while True:
            await asyncio.sleep(0)
            in_a_pause(led)

    async with handled(folder / "broker", led, batches, acks=ALL) as answer:
        assert asyncio.iscoroutine(answer)
        living = asyncio.create_task(live())
        overlapping = await answer
        living.cancel()
        assert isinstance(overlapping, Overlapping)
        assert isinstance(overlapping.work, DelayedAnswer)
        calls: list[None] = []
        overlapping.work.begin(lambda: calls.append(None))
        parts = overlapping.work.answer(is_last=False)
        assert len(calls) == (parts is not None)
        if parts is None:
            overlapping.work.cancel()
            return None
        assert isinstance(parts, list)
        *told, _ = results(parts)  # type: ignore[arg-type]
        return told


async def test_batches_that_followers_fetch_between_the_turns_are_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await answered(tmp_path, monkeypatch, fetched)
    assert told is not None
    assert [(each.error_code, each.base_offset) for each in told] == [(0, number) for number in range(COUNT)]


async def test_batches_that_followers_lack_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await answered(tmp_path, monkeypatch, lambda led: None) is None


@pytest.mark.parametrize("is_committed", [False, True])
async def test_batches_of_a_leadership_that_ended_between_the_turns_are_refused_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """Also where the same broker leads again, and all that its log has is committed now."""

    def in_a_pause(led: Partition) -> None:
        if led.log.log_end_offset < HALF:
            return
        if led.leader_epoch == 0:
            tell(led, row(leader=FOLLOWER, epoch=1, isr=(1, FOLLOWER), replicas=(1, FOLLOWER)))
            tell(led, row(epoch=2, isr=(1, FOLLOWER), replicas=(1, FOLLOWER)))
        if is_committed:
            fetched(led)

    told = await answered(tmp_path, monkeypatch, in_a_pause)
    if is_committed:
        assert told is not None
        codes = [each.error_code for each in told]
        assert codes == [error_codes.NOT_LEADER_OR_FOLLOWER] * HALF + [0] * (COUNT - HALF)
    else:
        assert told is None
