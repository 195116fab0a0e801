"""Changes that people ask for, and what this broker makes of those and of others' once they are committed."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, update

from tests.catalogue import register, segment_plan
from tests.support.partition_appends import append, batch
from tests.unit.broker.context import SetClock
from tests.unit.broker.groups.coordinators import Coordinating, coordinating
from tests.unit.broker.replication.replicas import TOPIC_ID
from tests.unit.broker.security.rules import reads
from tiered.broker.admin import Admin, NewTopic
from tiered.broker.applier import ChangeApplier
from tiered.broker.control.controller import Controller
from tiered.broker.control.reassignments import Reassignments
from tiered.broker.host.resource_configs import Kind, ResourceConfigs
from tiered.broker.partitions.failed_replicas import FailedReplicas
from tiered.broker.partitions.topics import Topic
from tiered.broker.replication.answer import FollowerAnswers
from tiered.broker.replication.fetcher import ReplicaFetcher
from tiered.broker.replication.isr_changes import IsrChanges
from tiered.broker.replication.replication import Replication
from tiered.broker.security import access as access_module
from tiered.broker.security.access import Access
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.broker.security.credentials import Credentials
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.tiering.clock_watch import ClockWatch
from tiered.broker.tiering.partition_loader import PartitionLoader
from tiered.broker.tiering.segment_lifecycle import SegmentLifecycle
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.store_reach import StoreReach
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.config import ConfigChange, ConfigOperation, TopicConfig
from tiered.errors import CorruptMetadata, InvalidConfig, InvalidTopic, LogDirFailed, OffsetOutOfRange, TieredError
from tiered.formats import object_key
from tiered.ids import TopicPartition
from tiered.meta import changes, cluster, partitions, segments, settings, tables, topics
from tiered.meta.changes import ChangeSet
from tiered.meta.engine import Database
from tiered.meta.security import create_acls, remove_exactly
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.security.authorization import AccessList
from tiered.rules.security.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Administered:
    access: Access
    broker: Coordinating
    feed: ChangeFeed
    applier: ChangeApplier
    failed_replicas: FailedReplicas
    loader: PartitionLoader
    admin: Admin

    async def alter(self, name: str, value: str) -> None:
        step = ConfigChange(name=name, operation=ConfigOperation.SET, value=value)
        topic = self.broker.topics.by_name("t")
        await self.admin.alter_topic(topic, [step], keep_others=True, validate_only=False)

    async def news(self) -> ChangeSet:
        """The set that the feed would bring now."""
        number = self.broker.image.change_number
        return await self.broker.database.run(lambda conn: changes.since(conn, number))

    async def stored_topics(self) -> list[str]:
        return [row.name for row in await self.broker.database.run(topics.load_all) if row.deleted_at_ms is None]


@asynccontextmanager
async def administered(folder: Path, **settings: str) -> AsyncIterator[Administered]:
    """Broker 1 with the parts that apply changes, in service; nobody follows anybody."""
    async with coordinating(folder, sql=Database, **settings) as broker, asyncio.TaskGroup() as group:
        context, image, known = broker.context, broker.image, broker.topics
        feed = ChangeFeed(context=context, image=image)
        in_turn = Changes(feed=feed)
        resource_configs = ResourceConfigs(lambda: context.settings)
        checkpoints = CheckpointWriter(context=context, image=image, resource_configs=resource_configs, topics=known)
        isr_changes = IsrChanges(context=context, feed=feed, image=image, topics=known)
        cache = ChunkCache(
            context.data.cache, max_bytes=1 << 20, pool=context.disk, max_bytes_in_flight=1 << 20, loads_at_once=1
        )
        loader = PartitionLoader(
            changed=lambda partition: None,
            context=context,
            cold_reader=ColdReader(context.store, cache, context.disk),
            image=image,
            log_failed=lambda: None,
            has_failed_log=lambda: False,
            topics=known,
        )
        credentials = Credentials(state=context.state, feed=feed, changes=in_turn)
        failed_replicas = FailedReplicas(
            context=context, topics=known, image=image, feed=feed,
            reach=StoreReach(context=context, feed=feed, image=image),
        )  # fmt: skip
        access = Access(state=context.state)
        applier = ChangeApplier(
            access=access,
            context=context,
            checkpoints=checkpoints,
            client_quotas=ClientQuotas(context.clock, lambda: context.settings),
            controller=Controller(
                context=context,
                topics=known,
                image=image,
                feed=feed,
                checkpoints=checkpoints,
                reassignments=Reassignments(context=context, topics=known, image=image, feed=feed),
                balance_slots=broker.groups.balance_slots,
            ),
            credentials=credentials,
            failed_replicas=failed_replicas,
            groups=broker.groups,
            image=image,
            loader=loader,
            replication=Replication(
                context=context,
                image=image,
                topics=known,
                isr_changes=isr_changes,
                answers=FollowerAnswers(context=context, topics=known, image=image, isr_changes=isr_changes),
                fetcher=nobody,
            ),
            resource_configs=resource_configs,
            topics=known,
        )
        feed.apply = applier.apply
        lifecycle = SegmentLifecycle(
            context=context,
            changes=in_turn,
            checkpoints=checkpoints,
            clock_watch=ClockWatch(context=context),
            feed=feed,
            first_lost_offset=lambda _: None,
            image=image,
        )
        await applier.begin(await context.database.run(lambda conn: changes.since(conn, 0)))
        context.state.serving = True
        feed.start(group)
        in_turn.start(group)
        yield Administered(
            access=access,
            broker=broker,
            feed=feed,
            applier=applier,
            failed_replicas=failed_replicas,
            loader=loader,
            admin=Admin(
                context=context,
                changes=in_turn,
                applier=applier,
                feed=feed,
                image=image,
                lifecycle=lifecycle,
                resource_configs=resource_configs,
                topics=known,
            ),
        )
        await feed.stop()
        await loader.close_all()
        credentials.close()
        access.close()


def nobody(leader_id: int, number: int) -> ReplicaFetcher:
    raise AssertionError((leader_id, number))


async def test_who_created_a_topic_finds_it_led_here_and_who_only_asked_changed_nothing(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        planned = await parts.admin.create_topic(NewTopic(name="t", partition_count=2), validate_only=True)
        assert (planned.partition_count, await parts.stored_topics()) == (2, ["orders"])
        created = await parts.admin.create_topic(NewTopic(name="t", partition_count=2))
        assert [each.leadership is not None for each in created.partitions] == [True, True]
        with pytest.raises(InvalidTopic):
            await parts.admin.create_topic(NewTopic(name="no/name"))
        with pytest.raises(InvalidConfig, match="32767 are possible"):
            config = {"leader.replication.throttled.replicas": "0" * 32_768}
            await parts.admin.create_topic(NewTopic(name="told-to-no-client", configs=config))
        assert await parts.stored_topics() == ["orders", "t"]


async def test_of_a_topics_configs_only_what_was_asked_for_is_changed(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        topic = await parts.admin.create_topic(NewTopic(name="t", configs={"retention.ms": "1000"}))
        # Another broker's change, of which this one has not heard yet.
        change = partial(topics.alter_configs, values={"retention.bytes": "7"}, removed=["retention.ms"])
        await parts.broker.database.run(lambda conn: change(conn, topic.topic_id))
        await parts.alter("segment.bytes", "600")
        after = parts.broker.topics.by_name("t")
        assert after.overrides == {"retention.bytes": "7", "segment.bytes": "600"}
        assert after.partition(0).config.segment_bytes == 600


async def test_records_are_deleted_up_to_the_high_watermark_and_no_further(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        created = await parts.admin.create_topic(NewTopic(name="t"))
        partition = created.partition(0)
        append(partition, batch("a", "b"), acks=1)
        with pytest.raises(OffsetOutOfRange):
            await parts.admin.delete_records(partition, 3)
        assert await parts.admin.delete_records(partition, 1) == 1
        assert await parts.admin.delete_records(partition, 0) == 1, "it never goes back"
        assert partition.log_start_offset == partition.log.log_start_offset == 1


async def test_a_deleted_topic_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        created = await parts.admin.create_topic(NewTopic(name="t"))
        folder = parts.broker.context.data.log_of(created.partition(0).topic_partition)
        assert folder.exists()
        await parts.admin.delete_topic(created)
        assert parts.broker.topics.find("t") is None
        assert not folder.exists()


async def test_a_log_that_cannot_be_opened_holds_up_no_other_and_is_tried_again(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        broker = parts.broker
        blocked = TopicPartition(TOPIC_ID, 0)
        in_the_way = broker.context.data.log_of(blocked)
        in_the_way.parent.mkdir(parents=True)
        in_the_way.write_bytes(b"")
        create = partial(topics.create, name="t", topic_id=TOPIC_ID, assignments=[(1,), (1,)], configs={}, now_ms=0)
        await broker.database.run(create)
        await parts.feed.refresh()
        assert [each.topic_partition.partition for each in broker.topics.by_name("t").partitions] == [1]
        assert blocked in parts.failed_replicas
        with pytest.raises((TieredError, OSError)):
            parts.applier.check_opened(TOPIC_ID)
        in_the_way.unlink()
        # A set without news, as the feed brings one now and then.
        await parts.applier.apply(await parts.news())
        assert [each.topic_partition.partition for each in broker.topics.by_name("t").partitions] == [0, 1]
        assert blocked not in parts.failed_replicas
        parts.applier.check_opened(TOPIC_ID)


async def test_a_start_goes_on_without_the_only_replica_of_a_partition_that_cannot_be_opened(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        created = await parts.admin.create_topic(NewTopic(name="t", partition_count=2))
        key = created.partition(0).topic_partition
        folder = parts.broker.context.data.log_of(key)
    shutil.rmtree(folder)
    folder.write_bytes(b"")
    async with administered(tmp_path) as parts:
        known = parts.broker.topics
        assert known.by_name("t").partition(1).leadership is not None
        assert known.unopened_names() == ["t-0"]
        assert key in parts.failed_replicas
        with pytest.raises(LogDirFailed, match=r"t-0 cannot be opened, and is tried again: .*Not a directory"):
            known.by_name("t").partition(0)
        folder.unlink()
        assert parts.applier.is_retry_due()
        await parts.applier.apply(await parts.news())
        assert known.by_name("t").partition(0).leadership is not None
        assert known.unopened_names() == []
        assert key not in parts.failed_replicas
        assert not parts.applier.is_retry_due()


async def test_what_cannot_be_opened_is_tried_again_after_longer_and_longer_pauses(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        in_the_way = parts.broker.context.data.log_of(TopicPartition(TOPIC_ID, 0))
        in_the_way.parent.mkdir(parents=True)
        in_the_way.write_bytes(b"")
        create = partial(topics.create, name="t", topic_id=TOPIC_ID, assignments=[(1,)], configs={}, now_ms=0)
        await parts.broker.database.run(create)
        await parts.feed.refresh()
        await parts.feed.stop()  # Its task would try as well.
        clock = parts.broker.context.clock
        assert isinstance(clock, SetClock)
        pauses_ms: list[int] = []
        for _ in range(8):
            while not parts.applier.is_retry_due():
                clock.waited_ms += 1_000
            pauses_ms.append(clock.waited_ms - sum(pauses_ms))
            await parts.applier.apply(await parts.news())
        assert pauses_ms[-2:] == [60_000] * 2
        assert pauses_ms == sorted(pauses_ms)


async def test_a_topic_whose_stored_configs_are_not_allowed_ends_no_start_and_loses_nothing(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        created = await parts.admin.create_topic(NewTopic(name="t", configs={"retention.ms": "-1"}))
        await parts.admin.create_topic(NewTopic(name="u"))
        write = partial(topics.alter_configs, topic_id=created.topic_id, values={"retention.ms": "soon"})
        await parts.broker.database.run(write)
        await parts.feed.refresh()
        assert created.partition(0).config.retention_ms == -1, "a running broker goes on with what it had"
    async with administered(tmp_path) as parts:
        known = parts.broker.topics
        assert known.by_name("u").partition(0).leadership is not None
        with pytest.raises(LogDirFailed, match=r"t-0 cannot be opened.*retention\.ms"):
            known.by_name("t").partition(0)
        await parts.alter("retention.ms", "-1")
        assert known.by_name("t").partition(0).config.retention_ms == -1


async def test_a_row_that_contradicts_what_a_partition_has_closes_that_partition_alone(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        broker = parts.broker
        created = await parts.admin.create_topic(NewTopic(name="t"))
        plan = segment_plan(created.topic_id, 0, 10)

        def write_by_hand(conn: Connection) -> None:
            change = {"object_id": UUID(int=8), "end_offset": 9, "change_number": cluster.take_number(conn)}
            conn.execute(update(tables.segment).values(change))

        await broker.database.run(lambda conn: segments.plan(conn, plan))
        await broker.database.run(lambda conn: segments.commit(conn, plan.object_id, leader_epoch=0, now_ms=0))
        await parts.feed.refresh()
        await broker.database.run(write_by_hand)
        await parts.feed.refresh()
        other = await parts.admin.create_topic(NewTopic(name="u"))
        assert other.partition(0).leadership is not None, "the changes behind it are applied"
        assert broker.topics.by_name("t").hosted(0) is not created.partition(0)


async def test_a_row_that_nobody_can_read_halts_its_partition_and_removes_nothing(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        created = await parts.admin.create_topic(NewTopic(name="t", partition_count=2))
        folder = parts.broker.context.data.log_of(created.partition(0).topic_partition)

        def write_by_hand(conn: Connection) -> None:
            change = {"replicas": ["one"], "change_number": cluster.take_number(conn)}
            ours = tables.partition.c.topic_id == created.topic_id, tables.partition.c.partition == 0
            conn.execute(update(tables.partition).where(*ours).values(change))

        await parts.broker.database.run(write_by_hand)
        await parts.feed.refresh()
        with pytest.raises(CorruptMetadata, match="put it right in the metadata store"):
            created.partition(0).require_leader()
        assert (await parts.admin.create_topic(NewTopic(name="u"))).partition(0).leadership is not None
        everything = await parts.broker.database.run(partitions.load_all)
    async with administered(tmp_path) as parts:
        assert parts.broker.topics.unopened_names() == ["t-0"]
        assert parts.broker.topics.by_name("t").partition(1).leadership is not None
        assert len(parts.broker.image.rows_of(created.topic_id)) == 2, "clients are told of a partition without leader"
        await parts.loader.remove_strays([], everything)
        assert folder.exists(), "it may be this broker's"


async def test_only_offsets_that_are_nowhere_can_be_given_up_while_a_log_is_not_open(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        created = await parts.admin.create_topic(NewTopic(name="t", configs={"segment.bytes": "600"}))
        partition = created.partition(0)
        for _ in range(3):
            append(partition, batch("v" * 500), acks=1)
        key = partition.topic_partition
        folder = parts.broker.context.data.log_of(key)
        assert [segment.base_offset for segment in partition.log.segments] == [0, 1, 2]
        row = parts.broker.image.row(key)
        assert row is not None
    for path in folder.glob(f"{0:020}.*"):
        path.unlink()
    store = parts.broker.context.store
    forgotten = object_key.segment_key("t", key.topic_id, 0, 0, 1, row.leader_epoch, UUID(int=8))
    store.put(forgotten, b"what the database has forgotten")
    async with administered(tmp_path) as parts:
        topic = parts.broker.topics.by_name("t")
        with pytest.raises(
            LogDirFailed, match=r"object store has objects of offsets 0 to 0.*Delete neither"
        ) as refused:
            await parts.admin.delete_records_of(topic, 0, 1)
        assert "delete-records" not in str(refused.value)
        store.delete(forgotten)
        await parts.applier.apply(await parts.news())
        topic = parts.broker.topics.by_name("t")
        with pytest.raises(LogDirFailed, match=r'no object of them either.*delete-records with ."before_offset": 1'):
            topic.partition(0)
        with pytest.raises(OffsetOutOfRange):
            await parts.admin.delete_records_of(topic, 0, 2)
        assert await parts.admin.delete_records_of(topic, 0, 1) == 1
        opened = parts.broker.topics.by_name("t").partition(0)
        assert (opened.log_start_offset, opened.log.log_end_offset) == (1, 3)


async def test_a_log_that_is_opened_beside_a_commit_knows_the_commits_before_it_too(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        broker = parts.broker
        key = TopicPartition(TOPIC_ID, 0)
        in_the_way = broker.context.data.log_of(key)
        in_the_way.parent.mkdir(parents=True)
        in_the_way.write_bytes(b"")

        async def commit(base_offset: int, end_offset: int) -> None:
            plan = segment_plan(TOPIC_ID, base_offset, end_offset)
            await broker.database.run(lambda conn: segments.plan(conn, plan))
            await broker.database.run(lambda conn: segments.commit(conn, plan.object_id, leader_epoch=0, now_ms=0))
            await parts.feed.refresh()

        await broker.database.run(lambda conn: register(conn, 2))
        create = partial(topics.create, name="t", topic_id=TOPIC_ID, assignments=[(2, 1)], configs={}, now_ms=0)
        await broker.database.run(create)
        await commit(0, 10)
        assert key in parts.failed_replicas
        in_the_way.unlink()
        await commit(10, 20)
        assert [each.end_offset for each in broker.topics.by_name("t").partition(0).committed] == [10, 20]


async def test_settings_in_the_catalogue_that_are_not_allowed_leave_the_last_ones(tmp_path: Path) -> None:
    async with administered(tmp_path) as parts:
        for value, in_force in (("7", 7), ("many", 7), ("9", 9)):
            change = partial(settings.alter, broker_id=None, values={"num.replica.fetchers": value})
            await parts.broker.database.run(change)
            await parts.feed.refresh()
            assert parts.broker.settings.cluster.num_replica_fetchers == in_force


async def test_topics_are_configured_anew_only_where_their_defaults_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 topics that takes a second, and anybody with rights on a group may change the group's configs."""
    anew: list[str] = []
    plain = ChangeApplier._config_of

    def config_of(self: ChangeApplier, name: str, overrides: Mapping[str, str], current: Topic | None) -> TopicConfig:
        anew.append(name)
        return plain(self, name, overrides, current)

    async with administered(tmp_path) as made:
        for name in ("t", "u"):
            await made.admin.create_topic(NewTopic(name=name))
        monkeypatch.setattr(ChangeApplier, "_config_of", config_of)

        def one(name: str, value: str) -> list[ConfigChange]:
            return [ConfigChange(name=name, operation=ConfigOperation.SET, value=value)]

        async def alter(name: str, value: str) -> None:
            await made.admin.alter_broker("", one(name, value), keep_others=True, validate_only=False)

        session = one("consumer.session.timeout.ms", "50000")
        await made.admin.alter_resource(Kind.GROUP, "g", session, keep_others=True, validate_only=False)
        await alter("max.connections", "500")
        assert anew == []
        await alter("log.retention.ms", "77777777")
        assert {"t", "u"} <= {*anew}
        assert made.broker.topics.by_name("t").config.retention_ms == 77777777


async def test_what_is_opened_after_the_database_went_back_serves_nothing_either(tmp_path: Path) -> None:
    """A start had registered when another broker found out; its logs were opened then."""
    async with administered(tmp_path) as parts:
        parts.broker.context.state.metadata_went_back = "the metadata store has lost commits"
        created = await parts.admin.create_topic(NewTopic(name="late"))
        partition = created.partition(0)
        assert partition.leadership is None
        assert partition.halted is not None
        assert "lost commits" in partition.halted


async def test_no_change_of_rules_is_prepared_on_the_event_loop_and_the_last_of_several_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def noted(*args: Any, **others: Any) -> AccessList:
        threads.append(threading.get_ident())
        return AccessList(*args, **others)

    async with administered(tmp_path, tiered_authorizer="acl", super_users="User:root") as parts:

        def may(*names: str) -> list[bool]:
            rights = parts.access.rights(Principal("User", "ann"), "h")
            assert rights is not None
            return [rights.may(Operation.READ, ResourceType.TOPIC, name) for name in names]

        assert may("orders", "bills") == [False, False]
        monkeypatch.setattr(access_module, "AccessList", noted)
        await parts.feed.commit(partial(create_acls, rules=[reads("orders")], now_ms=0))
        assert may("orders", "bills") == [True, False]
        # Both are under way at once.
        await asyncio.gather(
            parts.feed.commit(partial(remove_exactly, rules=[reads("orders")])),
            parts.feed.commit(partial(create_acls, rules=[reads("bills")], now_ms=0)),
        )
        assert may("orders", "bills") == [False, True]
    assert threads
    assert threading.get_ident() not in threads
