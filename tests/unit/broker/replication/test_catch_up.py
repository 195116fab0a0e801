"""A follower's log is cut where epochs part, or begins anew where the store ends, and never for less."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.partition_appends import append, batch
from tests.unit.broker.replication.replicas import fetch, replica, row, tell
from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tiered.broker.partitions.partition import Partition
from tiered.broker.replication.catch_up import CatchUp
from tiered.errors import ObjectMissing
from tiered.peer.answers import CorruptAnswer
from tiered.rules.replication.divergence import Divergence


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Broker 2, an empty follower of a partition of which `made` has the log and the store."""

    made: Tiers
    follower: Partition
    catch_up: CatchUp
    told: list[Partition]

    @property
    def end_offset(self) -> int:
        return self.follower.log.log_end_offset


@asynccontextmanager
async def following(folder: Path) -> AsyncIterator[Following]:
    async with (
        tiers(folder, written=lambda number: batch("v" * 500, producer_id=4, sequence=number)) as made,
        asyncio.TaskGroup() as group,
    ):
        await made.cold_reader.start(group)
        follower = replica(folder, 2, lambda _: True, "orders")
        tell(follower, row(leader=1))
        told: list[Partition] = []
        catch_up = CatchUp(context=made.context, cold_reader=made.cold_reader, rows_applied=told.extend)
        yield Following(made=made, follower=follower, catch_up=catch_up, told=told)
        follower.log.close()
        await made.cold_reader.stop()


async def copy(parts: Following) -> None:
    """The follower has three records of leader epoch 0, of which it knows one to be committed."""
    leader = replica(parts.made.context.data.root, 1)
    tell(leader, row(leader=1))
    for value in ("a", "b", "c"):
        append(leader, batch(value))
        fetch(leader, parts.follower)
    parts.follower.learn_high_watermark(1)
    leader.log.close()


async def test_a_log_is_cut_where_epochs_part_and_not_at_its_high_watermark(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        await copy(parts)
        assert parts.end_offset == 3
        high_watermark = parts.follower.high_watermark
        assert high_watermark < 2
        await parts.catch_up.truncate(parts.follower, Divergence(0, 2))
        assert (parts.end_offset, parts.follower.high_watermark) == (2, high_watermark)
        assert parts.made.context.counters.replica_truncations == 1
        assert parts.told == [parts.follower]


@pytest.mark.parametrize("said", [Divergence(-1, -5), Divergence(0, -5), Divergence(-1, 1 << 62), Divergence(0, 3)])
async def test_a_log_is_not_cut_where_no_leader_can_say_that_it_leaves_its_own(
    tmp_path: Path, said: Divergence
) -> None:
    """Below 0 the log would end at no offset; at its end or above nothing is cut, and the next answer is the same."""
    async with following(tmp_path) as parts:
        await copy(parts)
        with pytest.raises(CorruptAnswer, match="nothing was cut"):
            await parts.catch_up.truncate(parts.follower, said)
        assert (parts.end_offset, parts.follower.is_truncating) == (3, False)
        assert parts.made.context.counters.replica_truncations == 0


async def test_a_cut_is_carried_out_though_nobody_waits_for_it_and_rows_wait_until_then(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        await copy(parts)
        may_cut = threading.Event()
        busy = asyncio.ensure_future(parts.made.context.disk.run(may_cut.wait, 30.0))
        cutting = asyncio.ensure_future(parts.catch_up.truncate(parts.follower, Divergence(0, 1)))
        await asyncio.sleep(0)
        cutting.cancel()
        tell(parts.follower, row(leader=2, epoch=1))
        done, _ = await asyncio.wait([cutting], timeout=0.02)
        assert not done
        assert (parts.follower.is_truncating, parts.follower.leadership) == (True, None)
        may_cut.set()
        with pytest.raises(asyncio.CancelledError):
            await cutting
        await busy
        assert parts.end_offset == 1
        assert parts.follower.leadership is not None, "the row that waited makes it the leader"
        assert parts.told == [parts.follower]


async def test_what_only_the_store_has_begins_anew_where_the_store_ends(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        await parts.made.upload_all()
        parts.follower.apply_segments(parts.made.partition.committed)
        assert await parts.catch_up.begin_after_cold(parts.follower)
        log = parts.follower.log
        assert (log.local_log_start_offset, log.log_end_offset) == (SEGMENTS, SEGMENTS)
        assert log.leader_epochs.epoch_at(SEGMENTS - 1) == 0
        assert list(parts.follower.producers.entries) == [4]
        assert parts.told == [parts.follower]
        assert not await parts.catch_up.begin_after_cold(parts.follower), "the store ends no further than the log"


async def test_nothing_is_given_up_before_the_object_was_read(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        await copy(parts)
        await parts.made.upload_all()
        parts.follower.apply_segments(parts.made.partition.committed)
        store = parts.made.context.store
        await parts.made.context.uploads.run(store.delete, parts.made.partition.committed[-1].object_key)
        with pytest.raises(ObjectMissing):
            await parts.catch_up.begin_after_cold(parts.follower)
        assert (parts.end_offset, parts.told) == (3, [])


async def test_a_leader_whose_log_begins_later_makes_a_follower_begin_there_and_never_earlier(tmp_path: Path) -> None:
    async with following(tmp_path) as parts:
        await copy(parts)
        assert not await parts.catch_up.begin_at_log_start(parts.follower, 3)
        assert parts.end_offset == 3
        assert await parts.catch_up.begin_at_log_start(parts.follower, 7)
        assert (parts.follower.log.local_log_start_offset, parts.end_offset) == (7, 7)
