"""No two transactions of the catalogue ever wait for each other in a circle, on a real PostgreSQL.

What changes it takes the feed's number first, and so waits for nobody while it holds anything; what takes no number
locks its rows in one order, or only its own.
"""

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, event, select, text

from tests.catalogue import NOW_MS, change_isr, create_topic, open_ready, register, registration, segment_plan
from tests.contracts.stored_transactions import begin, pending_commit
from tiered.errors import MetadataUnavailable, TieredError
from tiered.ids import InSyncReplica
from tiered.meta import (
    broker_reports,
    brokers,
    coordinator_slots,
    group_offsets,
    groups,
    liveness,
    partitions,
    pins,
    segments,
    settings,
    topics,
    transaction_offsets,
)
from tiered.meta.elections import change_replica_sets
from tiered.meta.engine import Database
from tiered.meta.group_offsets import GroupCommit, OffsetEntry, WritingCoordinator
from tiered.meta.groups import GroupRow
from tiered.meta.tables import transactional_producer
from tiered.rules.replication import elections

pytest_plugins = ["tests.meta_databases"]

SLOTS = 4
PRODUCERS = [1, 2, 3]
ROUNDS = 40
PAUSES_S = (0, 0, 0, 0.001, 0.004)


class Crowd:
    """Three brokers that do everything at once, each with connections of its own."""

    def __init__(self, url: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.databases = {each: Database.open(url) for each in (1, 2, 3)}
        first = self.databases[1].run_sync
        self.epochs = {1: 1} | {each: first(partial(register, broker_id=each)) for each in (2, 3)}
        spread = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
        self.topic_ids = [first(partial(create_topic, name=name, assignments=spread)).topic_id for name in "ab"]
        for producer_id in PRODUCERS:
            begin(self.databases[1], producer_id)
        self.numbers = itertools.count()
        self.outcomes: Counter[str] = Counter()

    def entries(self) -> tuple[OffsetEntry, ...]:
        keys = [(topic_id, each) for topic_id in self.topic_ids for each in range(3)]
        self.random.shuffle(keys)
        return tuple(OffsetEntry(topic_id=topic_id, partition=each, offset=1) for topic_id, each in keys)

    def deeds(self, broker_id: int) -> list[Callable[[Connection], Any]]:
        """What this broker might do next."""
        epoch, number = self.epochs[broker_id], next(self.numbers)
        topic_id = self.random.choice(self.topic_ids)
        dead = self.random.choice([1, 2, 3])
        row: Callable[[Connection], Any] = lambda conn: partitions.load(conn, topic_id, 0)  # noqa: E731

        def join_isr(conn: Connection) -> object:
            now = row(conn)
            members = {each.broker_id: each for each in now.isr} | {broker_id: InSyncReplica(broker_id, epoch)}
            return change_isr(
                conn,
                topic_id=topic_id,
                partition=0,
                broker_id=broker_id,
                broker_epoch=epoch,
                leader_epoch=now.leader_epoch,
                expected_partition_epoch=now.partition_epoch,
                isr=tuple(members.values()),
            )

        def restart(conn: Connection) -> None:
            self.epochs[broker_id] = registration(conn, broker_id, clean_epoch=epoch).broker_epoch

        def upload(conn: Connection) -> None:
            now = row(conn)
            plan = segment_plan(topic_id, now.cold_end_offset, now.cold_end_offset + 5, leader_epoch=now.leader_epoch)
            segments.plan(conn, plan)
            segments.commit(conn, plan.object_id, leader_epoch=now.leader_epoch, now_ms=NOW_MS)
            segments.retire_before(
                conn, topic_id, 0, leader_epoch=now.leader_epoch, new_log_start_offset=now.cold_end_offset,
                now_ms=NOW_MS, purge_after_ms=NOW_MS,
            )  # fmt: skip

        def come_and_go(conn: Connection) -> None:
            made = create_topic(conn, f"t{number}", assignments=[(1, 2)])
            topics.delete_topic(conn, made.topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS)

        def replace_topic(conn: Connection) -> None:
            """Under the feet of commits and reports that name it."""
            topics.delete_topic(conn, topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS)
            spread = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
            made = create_topic(conn, f"r{number}", assignments=spread)
            self.topic_ids[self.topic_ids.index(topic_id)] = made.topic_id

        def commit(conn: Connection) -> object:
            held = [slot for slot in coordinator_slots.load_all(conn).values() if slot.is_held_by(broker_id, epoch)]
            by = WritingCoordinator(
                broker_id=broker_id,
                broker_epoch=epoch,
                slot_epochs={slot.slot: slot.slot_epoch for slot in held},
                commit_number=number,
            )
            names = [(f"g{slot.slot}-{each}", slot.slot) for slot in held for each in range(3)]
            commits = [
                GroupCommit(group_id=group_id, slot=slot, generation=-1, entries=self.entries(), committed_at_ms=NOW_MS)
                for group_id, slot in self.random.sample(names, len(names) // 2)
            ]
            changed = [
                GroupRow(
                    group_id=group_id, slot=slot, kind="classic", protocol_type="", generation=0, empty_since_ms=None
                )
                for group_id, slot in self.random.sample(names, len(names) // 3)
            ]
            return group_offsets.write(conn, commits, changed, by)

        def writer(conn: Connection) -> WritingCoordinator:
            held = [slot for slot in coordinator_slots.load_all(conn).values() if slot.is_held_by(broker_id, epoch)]
            epochs = {slot.slot: slot.slot_epoch for slot in held}
            return WritingCoordinator(broker_id=broker_id, broker_epoch=epoch, slot_epochs=epochs, commit_number=number)

        def send_with_transactions(conn: Connection) -> object:
            """Offsets of the same groups, with transactions that others decide at the same time."""
            by = writer(conn)
            names = [(f"g{slot}-{each}", slot) for slot in by.slot_epochs for each in range(3)]
            commits = [
                replace(
                    pending_commit(
                        1, producer_id=self.random.choice(PRODUCERS), group=group_id, slot=slot, generation=-1
                    ),
                    entries=self.entries(),
                )
                for group_id, slot in names
            ]
            return transaction_offsets.pend(conn, commits, by)

        def decide(conn: Connection) -> None:
            """As coordinators of transactions do it, who hold other slots than the groups'."""
            some = sorted(self.random.sample(PRODUCERS, 2))
            rows = select(transactional_producer).where(transactional_producer.c.producer_id.in_(some))
            conn.execute(rows.order_by(transactional_producer.c.transactional_id).with_for_update())
            transaction_offsets.decide(conn, some[:1], some[1:])

        def remove_group(conn: Connection) -> None:
            """Or some of its offsets. Its coordinator removes one in a transaction."""
            by = writer(conn)
            group_offsets.require_slots(conn, by.slot_epochs, by)
            names = [f"g{slot}-{each}" for slot in by.slot_epochs for each in range(2)]
            for name in self.random.sample(names, min(len(names), 1)):
                if name.endswith("0"):
                    keys = [(each.topic_id, each.partition) for each in self.entries()]
                    group_offsets.remove(conn, name, keys[:3])
                else:
                    groups.remove(conn, name)

        def hold(conn: Connection) -> None:
            """Takes, renews and gives up a pin of what others upload and retire."""
            wanted = [pins.WantedRange(partition=each, start_offset=None, end_offset=number) for each in (2, 0, 1)]
            made = pins.take(
                conn, pin_id=uuid4(), name=self.random.choice([None, f"s{number % 3}"]), topic_id=topic_id, owner="",
                ttl_ms=self.random.choice([1, 50]), ranges=wanted, max_pins=20,
            )  # fmt: skip
            if made.name is None:
                pins.renew(conn, made.pin_id, ttl_ms=5, max_lifetime_ms=50)
                pins.release(conn, made.pin_id)

        def purge(conn: Connection) -> None:
            rows = segments.list_purgeable(conn, now_ms=NOW_MS)
            segments.mark_purged(conn, [each.object_id for each in rows], now_ms=NOW_MS)

        def report(conn: Connection) -> None:
            keys = [(each.topic_id, each.partition) for each in self.entries()]
            positions = [
                broker_reports.PartitionPosition(
                    topic_id=key[0], partition=key[1], high_watermark=number, log_end_offset=9
                )
                for key in keys
            ]
            broker_reports.report_positions(conn, positions, now_ms=NOW_MS)
            local = [
                broker_reports.LocalSegmentRow(
                    topic_id=key[0], partition=key[1], base_offset=0, end_offset=5, size_bytes=5, closed=True
                )
                for key in keys
            ]
            broker_reports.replace_local_segments(
                conn, broker_id=broker_id, of_partitions=keys, segments=local, now_ms=NOW_MS
            )

        return [
            join_isr,
            restart,
            upload,
            come_and_go,
            replace_topic,
            commit,
            commit,
            send_with_transactions,
            send_with_transactions,
            decide,
            decide,
            remove_group,
            remove_group,
            group_offsets.remove_of_deleted_topics,
            report,
            report,
            hold,
            hold,
            purge,
            lambda conn: liveness.beat(conn, broker_id=broker_id, broker_epoch=epoch, lease_ms=5),
            lambda conn: liveness.beat(conn, broker_id=broker_id, broker_epoch=epoch, lease_ms=5),
            lambda conn: liveness.release(conn, broker_id=broker_id, broker_epoch=epoch),
            lambda conn: change_replica_sets(
                conn,
                lambda row, standings: elections.after_failure(row.replica_set, standings, min_isr=2),
                fence=[InSyncReplica(dead, self.epochs[dead])],
            ),
            lambda conn: brokers.fence(conn, broker_id=broker_id, broker_epoch=epoch),
            lambda conn: settings.alter(conn, broker_id=None, values={f"s{number % 3}": "1", "x": "2"}),
            lambda conn: coordinator_slots.take_unheld(
                conn, broker_id=broker_id, broker_epoch=epoch, slot_count=SLOTS, now_ms=NOW_MS
            ),
            lambda conn: coordinator_slots.balance(conn, slot_count=SLOTS, now_ms=NOW_MS, may_disturb=True),
            lambda conn: coordinator_slots.hand_over(
                conn, broker_id=broker_id, broker_epoch=epoch, slot_count=SLOTS, now_ms=NOW_MS
            ),
            lambda conn: coordinator_slots.retake_own(conn, broker_id=broker_id, broker_epoch=epoch),
            lambda conn: topics.forget_deleted(conn, deleted_before_ms=NOW_MS + 1),
        ]

    async def act(self, broker_id: int) -> None:
        for _ in range(ROUNDS):
            deed = self.random.choice(self.deeds(broker_id))
            try:
                await self.databases[broker_id].run(partial(self.hesitantly, deed))
                self.outcomes["done"] += 1
            except MetadataUnavailable as error:
                pytest.fail(f"not in time: {error}")
            except TieredError as error:
                self.outcomes[type(error).__name__] += 1  # somebody was first, or the broker was replaced

    def hesitantly(self, deed: Callable[[Connection], Any], conn: Connection) -> Any:
        """Pauses between statements bring those together that would rarely meet."""
        pause = lambda *_: time.sleep(self.random.choice(PAUSES_S))  # noqa: E731
        event.listen(conn, "before_cursor_execute", pause)
        return deed(conn)

    def close(self) -> None:
        for database in self.databases.values():
            database.close_sync()


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_brokers_do_at_once_none_of_it_is_a_deadlock(
    postgres_url: str, postgres_log: Callable[[], str], seed: int
) -> None:
    """The engine would repeat the loser of a deadlock, a second later and with the feed's lock held all the while."""
    open_ready(postgres_url).close_sync()
    crowd = Crowd(postgres_url, seed)
    await asyncio.gather(*(crowd.act(broker_id) for broker_id in (1, 2, 3) for _ in range(4)))
    crowd.close()
    print(f"\n{dict(crowd.outcomes)}")
    assert crowd.outcomes["done"] > ROUNDS
    # Servers count when a connection ends.
    database = Database.open(postgres_url)
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert database.run_sync(lambda conn: conn.exec_driver_sql(query).scalar_one()) == 0, postgres_log()
    database.close_sync()


async def test_deleting_a_topic_does_not_wait_for_a_commit_that_hangs(postgres_url: str) -> None:
    database, hung = open_ready(postgres_url), Database.open(postgres_url)
    topic_id = database.run_sync(create_topic).topic_id
    moved = database.run_sync(
        lambda conn: coordinator_slots.take_unheld(conn, broker_id=1, broker_epoch=1, slot_count=1, now_ms=NOW_MS)
    )
    entered, release = threading.Event(), threading.Event()

    def commit(conn: Connection, number: int) -> None:
        by = WritingCoordinator(
            broker_id=1, broker_epoch=1, slot_epochs={0: moved.rows[0].slot_epoch}, commit_number=number
        )
        entry = OffsetEntry(topic_id=topic_id, partition=0, offset=number)
        one = GroupCommit(group_id="g", slot=0, generation=-1, entries=(entry,), committed_at_ms=NOW_MS)
        group_offsets.write(conn, [one], [], by)

    def commit_and_hang(conn: Connection) -> None:
        commit(conn, 2)
        entered.set()
        release.wait(20)

    database.run_sync(lambda conn: commit(conn, 1))
    hanging = asyncio.create_task(hung.run(commit_and_hang))
    await asyncio.to_thread(entered.wait, 10)
    await database.run(
        lambda conn: topics.delete_topic(conn, topic_id, now_ms=NOW_MS, purge_after_ms=NOW_MS), deadline_ms=3_000
    )
    assert await database.run(group_offsets.remove_of_deleted_topics, deadline_ms=3_000) == 0, "nor does the sweep"
    release.set()
    await hanging
    # What came after the deletion is swept like any offset of a topic that does not exist.
    await database.run(group_offsets.remove_of_deleted_topics)
    left = "SELECT count(*) FROM group_offset"
    assert await database.run(lambda conn: conn.execute(text(left)).scalar_one()) == 0
    await database.close()
    await hung.close()
