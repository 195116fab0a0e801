"""The controller and the slots of groups: one broker that is real, and one that SQL alone knows of."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from tests.catalogue import register
from tiered.broker.admin import NewTopic
from tiered.broker.broker import Broker
from tiered.broker.groups.values import JoinRequest, MemberProtocol
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import NotCoordinator
from tiered.meta import brokers, cluster, groups, liveness
from tiered.runtime import SystemClock
from tiered.wire.consumer_protocol import Subscription, encode_subscription

OTHER = 2
SLOTS = 8
DELAY_MS = 1_500
WAIT_S = 60.0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    options = ServeOptions(
        data_dir=tmp_path / "data",
        meta_url=f"sqlite:///{tmp_path / 'meta.db'}",
        store_url=f"file://{tmp_path / 'objects'}",
        rack="a",
        settings=BrokerSettings.of(
            {
                "broker.heartbeat.interval.ms": "50",
                "broker.session.timeout.ms": "1000",
                "group.initial.rebalance.delay.ms": "0",
                "offsets.topic.num.partitions": str(SLOTS),
                "tiered.group.balance.delay.ms": str(DELAY_MS),
            }
        ),
    )
    made = Broker(options, SystemClock())
    async with asyncio.TaskGroup() as tasks:
        await made.start(tasks, advertised=("127.0.0.1", 9092))
        await made.admin.create_topic(NewTopic(name="orders", partition_count=3))
        yield made
        made.begin_stop()
        await made.stop()


class Neighbour:
    """A broker that registers and beats, and does nothing else."""

    def __init__(self, broker: Broker) -> None:
        self._database = broker.database
        self._epoch = -1
        self._beating: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._epoch = await self._database.run(lambda conn: register(conn, OTHER))
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await self._database.run(
                lambda conn: liveness.beat(
                    conn, broker_id=OTHER, broker_epoch=self._epoch, lease_ms=1_000, wants_lease=False
                )
            )
            await asyncio.sleep(0.05)

    async def fall_silent(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)

    async def leave(self) -> None:
        await self.fall_silent()
        await self._database.run(lambda conn: brokers.fence(conn, broker_id=OTHER, broker_epoch=self._epoch))


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not claim():
            await asyncio.sleep(0.02)


def one_of_each_slot(broker: Broker) -> list[str]:
    """Names of groups."""
    found: dict[int, str] = {}
    for number in count():
        found.setdefault(broker.groups.slot(f"group-{number}"), f"group-{number}")
        if len(found) == SLOTS:
            return [found[slot] for slot in sorted(found)]
    raise AssertionError


async def join(broker: Broker, group_id: str) -> None:
    """A member of the group, whose slot is thus in use."""
    request = JoinRequest(
        group_id=group_id,
        member_id="",
        instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=(MemberProtocol(name="range", metadata=encode_subscription(Subscription(topics=("orders",)))),),
        requires_known_member_id=False,
        supports_skipping_assignment=True,
    )
    await broker.groups.classic.join(request)
    slot = broker.groups.slot(group_id)
    async with asyncio.timeout(WAIT_S):
        while slot not in await broker.database.read(groups.slots_with_members):
            await asyncio.sleep(0.02)


def held(broker: Broker) -> set[int]:
    return set(broker.groups.slots.epochs)


async def test_a_lone_broker_holds_all_slots_and_names_itself(broker: Broker) -> None:
    assert held(broker) == set(range(SLOTS))
    assert broker.groups.coordinator_elsewhere("any") is None
    assert {broker.groups.slot_leader(slot) for slot in range(SLOTS)} == {broker.broker_id}


async def test_a_broker_that_joins_gets_half_of_the_slots_and_loses_them_when_it_falls_silent(broker: Broker) -> None:
    other = Neighbour(broker)
    await other.start()
    await until(lambda: len(held(broker)) == SLOTS // 2)
    theirs = set(range(SLOTS)) - held(broker)
    await until(lambda: {broker.groups.slot_leader(slot) for slot in theirs} == {OTHER})
    group_id = next(name for name in map(str, range(100)) if broker.groups.slot(name) in theirs)
    found = broker.groups.coordinator_elsewhere(group_id)
    assert found is not None
    assert (found.broker_id, found.port) == (OTHER, 9092 + OTHER)
    with pytest.raises(NotCoordinator):
        broker.groups.check_ours(group_id)
    await other.fall_silent()
    await until(lambda: held(broker) == set(range(SLOTS)))
    broker.groups.check_ours(group_id)


async def test_groups_with_members_move_for_balance_only_when_the_delay_is_over(broker: Broker) -> None:
    for group_id in one_of_each_slot(broker):
        await join(broker, group_id)
    other = Neighbour(broker)
    began = broker.clock.monotonic_ms()
    await other.start()
    await until(lambda: len(held(broker)) == SLOTS // 2)
    assert broker.clock.monotonic_ms() - began >= DELAY_MS
    assert {broker.groups.slot(each) for each in one_of_each_slot(broker) if broker.groups.find(each)} == held(broker)
    await other.leave()


async def test_slots_that_nobody_would_miss_go_before_one_with_members(broker: Broker) -> None:
    (group_id, *_) = one_of_each_slot(broker)
    await join(broker, group_id)
    group = broker.groups.find(group_id)
    other = Neighbour(broker)
    await other.start()
    await until(lambda: len(held(broker)) == SLOTS // 2)
    assert broker.groups.slot(group_id) in held(broker)
    assert broker.groups.find(group_id) is group
    await other.leave()


async def test_the_controller_asks_nothing_of_sql_while_nothing_is_to_do(broker: Broker) -> None:
    before = await broker.database.read(lambda conn: cluster.load(conn).change_number)
    for _ in range(50):
        await broker.groups.balance_slots()
    await asyncio.sleep(0.3)
    assert await broker.database.read(lambda conn: cluster.load(conn).change_number) == before
    assert held(broker) == set(range(SLOTS))
