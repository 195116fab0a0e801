"""What a bucket's checkpoints say, and what stays known of a partition when they can no longer be read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.unit.broker.context import SetClock
from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID
from tests.unit.cold.verified_store import CHANGE, CLUSTER_ID, RECORDS, VerifiedStore, cluster_checkpoint, make_store
from tests.unit.read_replica.buckets import HEAD, Bucket, bounds, grow, looking_at, partition_of
from tiered.cold.bucket import checkpoints
from tiered.errors import (
    CorruptObject,
    InvalidConfig,
    InvalidTopic,
    OffsetNotAvailable,
    OffsetOutOfRange,
    StoreRefused,
    StoreUnavailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.formats import object_key
from tiered.rules.partition.read_plan import CaughtUp, Cold, OutsideLog

CLOCK = SetClock()
NAME = f"{TOPIC}-{PARTITION}"


@pytest.fixture
def made(tmp_path: Path) -> VerifiedStore:
    """240 records in each of three segments of partition 3; the other three partitions have no checkpoint."""
    (tmp_path / "logs").mkdir()
    return make_store(tmp_path / "bucket", tmp_path / "logs")


@pytest.fixture
def bucket(made: VerifiedStore) -> Bucket:
    return Bucket(made.root)


async def test_the_checkpoints_say_which_topics_there_are_and_where_each_partition_ends(bucket: Bucket) -> None:
    async with looking_at(bucket, CLOCK) as topics:
        assert topics.cluster_id == CLUSTER_ID
        assert [(each.name, each.partition_count) for each in topics] == [(TOPIC, PARTITION + 1)]
        assert bounds(topics) == (0, 3 * RECORDS)
        assert bounds(topics, 0) == (0, 0), "without a checkpoint it has no records"
        with pytest.raises(UnknownTopicOrPartition):
            partition_of(topics, PARTITION + 1)
        with pytest.raises(UnknownTopicOrPartition):
            topics.by_name("another")
        with pytest.raises(InvalidTopic):
            topics.by_name("no name")


async def test_an_offset_beyond_the_end_is_not_available_yet_and_one_below_the_start_is_out_of_range(
    bucket: Bucket, made: VerifiedStore
) -> None:
    """Brokers may have what is not in the bucket yet: a consumer that is ahead must not begin anew."""
    made.write_head(log_start_offset=RECORDS)
    async with looking_at(bucket, CLOCK) as topics:
        partition = partition_of(topics)

        def outside(offset: int) -> OutsideLog:
            plan = partition.plan_read(offset, committed_only=False)
            assert isinstance(plan, OutsideLog)
            return plan

        end = 3 * RECORDS
        for committed_only in (False, True):
            found = [partition.plan_read(each, committed_only=committed_only) for each in (RECORDS, end - 1, end)]
            assert found == [
                Cold(offset=RECORDS, end_offset=end),
                Cold(offset=end - 1, end_offset=end),
                CaughtUp(offset=end),
            ]
        assert isinstance(partition.outside(outside(end + 1)), OffsetNotAvailable)
        assert isinstance(partition.outside(outside(RECORDS - 1)), OffsetOutOfRange)


async def test_a_partition_is_as_it_was_last_seen_until_a_look_finds_more_and_wakes_who_waits(
    bucket: Bucket, made: VerifiedStore
) -> None:
    async with looking_at(bucket, CLOCK) as topics:
        partition = partition_of(topics)
        grow(made)
        assert bounds(topics) == (0, 3 * RECORDS)
        before = topics.waiters.changes
        await topics.refresh()
        assert bounds(topics) == (0, 4 * RECORDS)
        assert partition.high_watermark == 4 * RECORDS, "who holds the partition sees it too"
        assert topics.waiters.changes > before
        before = topics.waiters.changes
        await topics.refresh()
        assert topics.waiters.changes == before, "nothing is new, and nobody is woken"


async def test_a_topic_that_was_recreated_has_nothing_of_the_one_before(bucket: Bucket, made: VerifiedStore) -> None:
    async with looking_at(bucket, CLOCK) as topics:
        old, entry = partition_of(topics), cluster_checkpoint().topics[0]
        again = replace(entry, topic_id=UUID(int=5), partition_count=PARTITION + 2)
        checkpoints.write_cluster_checkpoint(made.store, replace(cluster_checkpoint(), version=9, topics=(again,)))
        await topics.refresh()
        assert topics.by_name(TOPIC).topic_id == again.topic_id
        assert [bounds(topics, number) for number in range(PARTITION + 2)] == [(0, 0)] * (PARTITION + 2)
        assert {each.topic_id for each in topics.partitions()} == {again.topic_id}
        with pytest.raises(UnknownTopicId):
            topics.by_id(TOPIC_ID)
        with pytest.raises(UnknownTopicId):
            await topics.look_again(old.cold)


async def test_a_topic_that_is_deleted_goes_with_the_faults_of_its_partitions(
    bucket: Bucket, made: VerifiedStore
) -> None:
    (made.root / HEAD).write_bytes(b"{}")
    async with looking_at(bucket, CLOCK) as topics:
        assert list(topics.unreadable) == [NAME]
        checkpoints.write_cluster_checkpoint(made.store, replace(cluster_checkpoint(topics=False), version=CHANGE + 1))
        await topics.refresh()
        assert (len(topics), list(topics.unreadable), list(topics.partitions())) == (0, [], [])


def damage(made: VerifiedStore) -> None:
    data = bytearray((made.root / HEAD).read_bytes())
    data[len(data) // 2] ^= 1
    (made.root / HEAD).write_bytes(data)


def put_older(made: VerifiedStore) -> None:
    """A copy from before, the whole of which is right."""
    made.write_head(made.rows[:2])


def remove(made: VerifiedStore) -> None:
    (made.root / HEAD).unlink()


@pytest.mark.parametrize("spoil", [damage, put_older, remove])
async def test_a_checkpoint_that_is_damaged_or_goes_back_leaves_what_was_seen(
    bucket: Bucket, made: VerifiedStore, caplog: pytest.LogCaptureFixture, spoil: Callable[[VerifiedStore], None]
) -> None:
    """A log's start and its end in the store never go back: readers who are further would be out of range."""
    made.write_head(log_start_offset=RECORDS)
    async with looking_at(bucket, CLOCK) as topics:
        spoil(made)
        for _ in range(2):
            await topics.refresh()
        assert list(topics.unreadable) == [NAME]
        assert bounds(topics) == (RECORDS, 3 * RECORDS)
        assert list(partition_of(topics).committed) == made.rows[1:]
        assert caplog.text.count(f"{NAME} stays as it was") == 1, "said once"
        made.write_head(log_start_offset=2 * RECORDS)
        await topics.refresh()
        assert list(topics.unreadable) == []
        assert bounds(topics) == (2 * RECORDS, 3 * RECORDS)


async def test_a_partition_that_was_never_seen_whole_is_refused_and_others_are_told(
    bucket: Bucket, made: VerifiedStore
) -> None:
    made.write_head(made.rows[:1] + made.rows[2:])
    async with looking_at(bucket, CLOCK) as topics:
        with pytest.raises(CorruptObject):
            partition_of(topics)
        assert bounds(topics, 0) == (0, 0)


async def test_a_partition_whose_checkpoint_is_refused_is_named_and_ends_no_start(bucket: Bucket) -> None:
    bucket.refused_keys = frozenset({HEAD})
    async with looking_at(bucket, CLOCK) as topics:
        assert (list(topics.unreadable), topics.state.refreshes) == ([NAME], 1)
        with pytest.raises(StoreRefused):
            partition_of(topics)
        assert bounds(topics, 0) == (0, 0)
        bucket.refused_keys = frozenset()
        await topics.refresh()
        assert bounds(topics) == (0, 3 * RECORDS)


async def test_a_store_that_goes_away_during_a_look_is_not_asked_for_each_partition(
    bucket: Bucket, made: VerifiedStore
) -> None:
    many = replace(cluster_checkpoint().topics[0], name="many", topic_id=UUID(int=5), partition_count=100)
    both = replace(cluster_checkpoint(), version=CHANGE + 1, topics=(*cluster_checkpoint().topics, many))
    async with looking_at(bucket, CLOCK) as topics:
        checkpoints.write_cluster_checkpoint(made.store, both)
        keys = (object_key.partition_checkpoint_key(many.topic_id, number) for number in range(100))
        bucket.away_keys = frozenset(keys)
        with pytest.raises(StoreUnavailable):
            await topics.refresh()
        assert bucket.asked_away < 100


async def test_without_the_store_the_view_stays_and_gets_older(bucket: Bucket, made: VerifiedStore) -> None:
    clock = SetClock()
    async with looking_at(bucket, clock) as topics:
        grow(made)
        bucket.away = True
        clock.waited_ms += 60_000
        with pytest.raises(StoreUnavailable):
            await topics.refresh()
        assert (len(topics), bounds(topics)) == (1, (0, 3 * RECORDS))
        assert (list(topics.unreadable), topics.state.refreshes) == ([], 1)
        assert topics.age_ms >= 60_000
        bucket.away = False
        await topics.refresh()
        assert bounds(topics) == (0, 4 * RECORDS)
        assert topics.age_ms < 60_000


async def test_what_the_store_did_answer_is_taken_over_though_not_all_could_be_seen(
    bucket: Bucket, made: VerifiedStore
) -> None:
    clock = SetClock()
    async with looking_at(bucket, clock) as topics:
        more = replace(cluster_checkpoint().topics[0], name="more", topic_id=UUID(int=5), partition_count=1)
        both = replace(cluster_checkpoint(), version=CHANGE + 1, topics=(*cluster_checkpoint().topics, more))
        checkpoints.write_cluster_checkpoint(made.store, both)
        grow(made)
        bucket.away_keys = frozenset({object_key.partition_checkpoint_key(more.topic_id, 0)})
        clock.waited_ms += 60_000
        with pytest.raises(StoreUnavailable, match="not every checkpoint could be read"):
            await topics.refresh()
        assert bounds(topics) == (0, 4 * RECORDS)
        assert topics.age_ms >= 60_000
        with pytest.raises(StoreUnavailable):
            topics.by_name("more").partition(0)


async def test_without_a_clusters_checkpoint_that_can_be_read_nothing_starts(
    bucket: Bucket, made: VerifiedStore
) -> None:
    checkpoint = made.root / object_key.cluster_checkpoint_key()
    checkpoint.write_bytes(b"{}")
    with pytest.RaisesGroup(pytest.RaisesExc(CorruptObject, match="checkpoint")):
        async with looking_at(bucket, CLOCK):
            pass
    checkpoint.unlink()
    with pytest.RaisesGroup(pytest.RaisesExc(InvalidConfig, match="there is no cluster's checkpoint in file://")):
        async with looking_at(bucket, CLOCK):
            pass
