"""The group coordinator of one broker without the broker: registered in SQL, with all slots, and a topic to read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from sqlalchemy import Connection

from tests.catalogue import create_topic, register
from tests.unit.broker.context import surroundings
from tiered.broker.context import BrokerContext
from tiered.broker.groups.checkpoints import GroupCheckpointWriter
from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.broker.groups.coordinator import GroupCoordinator
from tiered.broker.groups.slots import HeldSlots
from tiered.broker.groups.values import Fence, JoinRequest, MemberProtocol, SyncRequest
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.security.access import Access
from tiered.broker.view.image import ClusterImage
from tiered.config import BrokerSettings, TopicConfig
from tiered.ids import TopicId
from tiered.meta import topics as stored_topics
from tiered.meta.engine import Database
from tiered.meta.topics import TopicRow
from tiered.wire.consumer_protocol import Subscription, encode_subscription

PARTITIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinating:
    context: BrokerContext
    topics: Topics
    image: ClusterImage
    groups: GroupCoordinator

    @property
    def broker_id(self) -> int:
        return self.context.broker_id

    @property
    def broker_epoch(self) -> int:
        return self.context.state.broker_epoch

    @property
    def database(self) -> Database:
        return self.context.database

    @property
    def settings(self) -> BrokerSettings:
        return self.context.state.settings


@asynccontextmanager
async def coordinating(folder: Path, *, sql: type[Database] = Database, **settings: str) -> AsyncIterator[Coordinating]:
    """Started, and stopped in the end. The topic `orders` is there. In a folder of before it is that broker again."""
    async with surroundings(folder, sql, **settings) as made, asyncio.TaskGroup() as tasks:
        context, state = made.context, made.state
        state.broker_epoch = await context.database.run(lambda conn: register(conn, context.broker_id))
        row = await context.database.run(_orders)
        topics, image, slots = Topics(), ClusterImage(), HeldSlots()
        topics.put(topic("orders", row.topic_id))
        groups = GroupCoordinator(
            context=context,
            topics=topics,
            image=image,
            access=Access(state=state),
            resource_configs=ResourceConfigs(lambda: state.settings),
            group_checkpoints=GroupCheckpointWriter(context=context, slots=slots),
            slots=slots,
        )
        await groups.start(tasks)
        yield Coordinating(context=context, topics=topics, image=image, groups=groups)
        groups.begin_stop()
        await groups.stop()


def _orders(conn: Connection) -> TopicRow:
    known = stored_topics.load_all(conn)
    return known[0] if known else create_topic(conn, "orders", assignments=[(1,)] * PARTITIONS)


def topic(name: str, topic_id: UUID) -> Topic:
    """A topic of which no replica is here."""
    return Topic(
        name=name,
        topic_id=TopicId(topic_id),
        partition_count=PARTITIONS,
        config=TopicConfig(),
        overrides={},
        partitions=(),
    )


def joining(
    instance_id: str | None = None, *, protocols: tuple[str, ...] = ("range",), topic: str = "t"
) -> JoinRequest:
    metadata = encode_subscription(Subscription(topics=(topic,)))
    return JoinRequest(
        group_id="g",
        member_id="",
        instance_id=instance_id,
        client_id="c",
        client_host="h",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=tuple(MemberProtocol(name=name, metadata=metadata) for name in protocols),
        requires_known_member_id=False,
        supports_skipping_assignment=True,
    )


def sync(member_id: str, generation: int, **assignments: bytes) -> SyncRequest:
    return SyncRequest(
        group_id="g", member_id=member_id, instance_id=None, generation=generation, protocol_type=None,
        protocol_name=None, assignments=assignments,
    )  # fmt: skip


async def commit(broker: Coordinating, group_id: str) -> None:
    """Offset 5 of the first partition, as somebody commits it who is no member."""
    slot = broker.groups.slot(group_id)
    fence = Fence(group_id=group_id, slot=slot, tenure=broker.groups.slots.tenure(slot), generation=-1)
    entry = OffsetEntry(topic_id=broker.topics.by_name("orders").topic_id, partition=0, offset=5)
    await broker.groups.offsets.commit(fence, [entry])
