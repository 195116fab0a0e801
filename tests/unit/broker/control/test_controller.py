"""Heartbeats, the lease that they take, and what its holder does: fence the silent, elect, complete moves."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Connection

from tests.unit.broker.context import Surroundings, surroundings
from tiered.broker.control.controller import Controller
from tiered.broker.control.heartbeats import Heartbeats
from tiered.broker.control.reassignments import Reassignments
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.broker.view.store_reach import StoreReach
from tiered.errors import MetadataUnavailable, StaleBrokerEpoch
from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.meta import brokers, topics
from tiered.meta.changes import ChangeSet

TOPIC_ID = TopicId(UUID(int=7))
WHERE = TopicPartition(TOPIC_ID, 0)
WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    made: Surroundings
    image: ClusterImage
    controller: Controller
    heartbeats: Heartbeats
    reassignments: Reassignments
    replaced: list[StaleBrokerEpoch]

    @property
    def leader(self) -> int:
        row = self.image.row(WHERE)
        return -1 if row is None else row.leader


@asynccontextmanager
async def control(folder: Path) -> AsyncIterator[Control]:
    """Broker 1, whose parts these are, with brokers 2 and 3 in service; 2 leads the one partition, 1 follows it."""
    async with surroundings(folder) as made, asyncio.TaskGroup() as group:
        context, image, known = made.context, ClusterImage(), Topics()
        for broker_id in (1, 2, 3):
            epoch = await context.database.run(partial(registered, broker_id=broker_id))
            if broker_id == context.broker_id:
                made.state.broker_epoch = epoch
        await context.database.run(
            lambda conn: topics.create(
                conn, name="orders", topic_id=TOPIC_ID, assignments=[(2, 1)], configs={}, now_ms=0
            )
        )
        feed = ChangeFeed(context=context, image=image)
        reassignments = Reassignments(context=context, topics=known, image=image, feed=feed)
        controller = Controller(
            context=context,
            topics=known,
            image=image,
            feed=feed,
            checkpoints=CheckpointWriter(
                context=context, image=image, resource_configs=ResourceConfigs(lambda: context.settings), topics=known
            ),
            reassignments=reassignments,
            balance_slots=nothing,
        )

        async def apply(found: ChangeSet) -> None:
            changed = image.put_brokers(found.brokers, 0.0)
            for row in found.partitions:
                image.put_row(row)
            image.change_number = found.number
            controller.changed(found.partitions, brokers_changed=changed)

        feed.apply = apply
        replaced: list[StaleBrokerEpoch] = []
        heartbeats = Heartbeats(
            context=context,
            image=image,
            feed=feed,
            controller=controller,
            reach=StoreReach(context=context, feed=feed, image=image),
            was_replaced=replaced.append,
        )
        feed.start(group)
        controller.start(group)
        await feed.refresh()
        yield Control(
            made=made,
            image=image,
            controller=controller,
            heartbeats=heartbeats,
            reassignments=reassignments,
            replaced=replaced,
        )
        await controller.stop()
        await feed.stop()


def registered(conn: Connection, *, broker_id: int) -> int:
    made = brokers.register(conn, broker_id=broker_id, host="h", port=broker_id, boot_id="", clean_epoch=None)
    return made.broker_epoch


async def nothing() -> None:
    pass


async def eventually(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not claim():
            await asyncio.sleep(0.01)


async def test_a_heartbeat_takes_the_lease_that_is_free(tmp_path: Path) -> None:
    async with control(tmp_path) as parts:
        await parts.heartbeats.beat()
        assert parts.controller.is_leading
        assert parts.image.controller_id == parts.made.context.broker_id


async def test_who_is_silent_is_fenced_and_a_member_of_the_isr_leads(tmp_path: Path) -> None:
    async with control(tmp_path) as parts:
        silent = InSyncReplica(2, parts.image.brokers[2].broker_epoch)
        assert parts.leader == 2
        parts.controller.lead([silent])
        await eventually(lambda: parts.leader == 1)
        assert parts.image.brokers[2].fenced
        assert parts.made.context.counters.brokers_fenced == 1


async def test_while_sql_is_away_nobody_leads_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise MetadataUnavailable("SQL is away")

    async with control(tmp_path) as parts:
        await parts.heartbeats.beat()
        with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
            patch.setattr(parts.made.context.database, "run", away)
            for _ in range(3):
                await parts.heartbeats.beat()
            led = [parts.controller.is_leading]
        await parts.heartbeats.beat()
        assert [*led, parts.controller.is_leading] == [False, True]
        assert [each.getMessage() for each in caplog.records if "heartbeat" in each.getMessage()] == [
            "heartbeat failed and is tried again and again: SQL is away",
            "heartbeat: works again",
        ]


async def test_a_process_that_was_replaced_is_told_so(tmp_path: Path) -> None:
    async with control(tmp_path) as parts:
        await parts.made.context.database.run(partial(registered, broker_id=1))
        await parts.heartbeats.beat()
        assert len(parts.replaced) == 1


async def test_a_move_is_under_way_until_it_is_cancelled(tmp_path: Path) -> None:
    async with control(tmp_path) as parts:
        errors = await parts.reassignments.alter({WHERE: (2, 3)}, may_resize=False)
        assert errors == {WHERE: None}
        (moving,) = parts.reassignments.under_way()
        assert moving.adding_replicas == (3,)
        await parts.reassignments.advance()
        assert len(parts.reassignments.under_way()) == 1, "broker 3 has caught up with nothing"
        await parts.reassignments.alter({WHERE: None}, may_resize=False)
        assert parts.reassignments.under_way() == []
