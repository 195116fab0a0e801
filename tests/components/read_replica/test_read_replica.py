"""A read replica serves what its bucket holds, keeps up with it, never serves what is wrong, and writes nothing."""

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.clients.raw import RawConnection
from tests.components.read_replicas import ReplicaThread
from tests.support.replica_reads import (
    CORRUPT,
    NONE,
    OFFSET_NOT_AVAILABLE,
    OUT_OF_RANGE,
    STORAGE_ERROR,
    UNKNOWN_TOPIC,
    fetch_code,
    read,
)
from tests.unit.cold.stored_segments import PARTITION, TOPIC
from tests.unit.cold.verified_store import RECORDS, VerifiedStore, cluster_checkpoint, make_store
from tests.unit.read_replica.buckets import Bucket, grow
from tiered.cold.bucket import checkpoints
from tiered.errors import InvalidConfig, StoreUnavailable
from tiered.formats import object_key
from tiered.formats.checkpoint import ClusterCheckpoint, TopicEntry
from tiered.server.kafka.api import fetch
from tiered.wire import messages

METADATA, LIST_OFFSETS, DESCRIBE_CONFIGS = 3, 2, 32
INVALID_CONFIG = 40
LATEST, EARLIEST, MAX_TIMESTAMP, LATEST_TIERED = -1, -2, -3, -5


@pytest.fixture
def made(tmp_path: Path) -> VerifiedStore:
    """Written as brokers do, 240 records in each of three segments of partition 3; the other three have none."""
    (tmp_path / "logs").mkdir()
    return make_store(tmp_path / "bucket", tmp_path / "logs")


@pytest.fixture
def bucket(made: VerifiedStore) -> Bucket:
    return Bucket(made.root)


@pytest.fixture
def replica(tmp_path: Path, bucket: Bucket) -> Iterator[ReplicaThread]:
    with ReplicaThread(tmp_path / "replica", bucket) as running:
        yield running


def offset_at(replica: ReplicaThread, timestamp: int, *, partition: int = PARTITION) -> tuple[int, int, int]:
    """(error code, offset, timestamp)"""
    request = messages.request(LIST_OFFSETS, 9)
    asked = request.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(
            request.ListOffsetsTopic(
                name=TOPIC,
                partitions=(
                    request.ListOffsetsPartition(
                        partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
                    ),
                ),
            ),
        ),
    )
    with RawConnection(replica) as connection:
        found = connection.ask(LIST_OFFSETS, 9, asked).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


def topics(replica: ReplicaThread) -> dict[str, int]:
    """Names, and how many partitions each has."""
    request = messages.request(METADATA, 4)
    with RawConnection(replica) as connection:
        answer = connection.ask(METADATA, 4, request.MetadataRequest(topics=None))
    assert [each.port for each in answer.brokers] == [replica.kafka_port]
    assert all(each.leader_id == 1 for topic in answer.topics for each in topic.partitions)
    return {each.name: len(each.partitions) for each in answer.topics}


# What is there


def test_everything_cold_is_fetched_as_it_was_written(replica: ReplicaThread, made: VerifiedStore) -> None:
    assert topics(replica) == {TOPIC: PARTITION + 1}
    assert read(replica) == b"".join(each.log for each in made.segments)
    assert read(replica) == b"".join(each.log for each in made.segments), "from the chunk cache this time"


def test_offsets_end_where_the_store_does(replica: ReplicaThread) -> None:
    assert offset_at(replica, EARLIEST) == (NONE, 0, -1)
    assert offset_at(replica, LATEST) == (NONE, 3 * RECORDS, -1)
    assert offset_at(replica, LATEST_TIERED) == (NONE, 3 * RECORDS - 1, -1)
    assert offset_at(replica, 1_100) == (NONE, 100, 1_100)
    assert offset_at(replica, MAX_TIMESTAMP) == (NONE, RECORDS - 1, 1_000 + RECORDS - 1)
    assert offset_at(replica, 9_999) == (NONE, -1, -1)


def test_a_partition_without_cold_records_is_empty(replica: ReplicaThread) -> None:
    assert offset_at(replica, EARLIEST, partition=0) == (NONE, 0, -1)
    assert offset_at(replica, LATEST, partition=0) == (NONE, 0, -1)
    with RawConnection(replica) as connection:
        answer = connection.fetch(TOPIC, 0, partition=0, max_wait_ms=10)
        assert (answer.error_code, answer.high_watermark, bytes(answer.records or b"")) == (NONE, 0, b"")  # type: ignore[arg-type]
        assert connection.fetch(TOPIC, 0, partition=PARTITION + 1).error_code == UNKNOWN_TOPIC
        assert connection.fetch("another", 0).error_code == UNKNOWN_TOPIC


def test_several_partitions_share_the_limit_of_one_fetch(replica: ReplicaThread) -> None:
    with RawConnection(replica) as connection:
        found = connection.fetch_many([(TOPIC, PARTITION, at, -1, 1 << 20) for at in (0, 240, 480)], max_bytes=1)
    lengths = [len(bytes(each.partitions[0].records or b"")) for each in found.topics]  # type: ignore[arg-type]
    assert lengths[0] > 0, "the first one is given whole batches above the limit"
    assert lengths[1:] == [0, 0]


def test_a_fetch_of_hundreds_of_partitions_is_answered_as_a_short_one(
    replica: ReplicaThread, made: VerifiedStore
) -> None:
    """Such a one is looked at in turns, as a broker's is."""
    with RawConnection(replica) as connection:
        asked = [(TOPIC, PARTITION, 0, -1, 1 << 20), *[(TOPIC, 0, 0, -1, 1 << 20)] * 300]
        found = [each.partitions[0] for each in connection.fetch_many(asked, max_bytes=1 << 20).topics]
    records = bytes(found[0].records or b"")  # type: ignore[arg-type]
    assert records
    assert made.segments[0].log.startswith(records)
    assert [(each.error_code, each.high_watermark) for each in found[1:]] == [(NONE, 0)] * 300


def test_an_offset_that_is_not_cold_yet_is_waited_for_and_not_out_of_range(replica: ReplicaThread) -> None:
    assert fetch_code(replica, 3 * RECORDS) == NONE
    assert fetch_code(replica, 3 * RECORDS + 1) == OFFSET_NOT_AVAILABLE


# What changes


def test_an_owner_waits_with_no_more_partitions_than_are_free(
    replica: ReplicaThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "MAX_WAITING_PARTITIONS", 2)
    with RawConnection(replica) as first, RawConnection(replica) as second:
        long_poll = threading.Thread(
            target=lambda: first.fetch(TOPIC, 3 * RECORDS, partition=PARTITION, max_wait_ms=3_000), daemon=True
        )
        long_poll.start()
        while replica.replica.waiting_partitions.total == 0:
            time.sleep(0.001)
        started_s = time.monotonic()
        second.fetch(TOPIC, 3 * RECORDS, partition=PARTITION, max_wait_ms=60_000)
        assert time.monotonic() - started_s < 30, "it is answered at once"
        long_poll.join(30)


def test_a_fetch_at_the_end_is_answered_when_a_new_segment_is_seen(replica: ReplicaThread, made: VerifiedStore) -> None:
    found: list[Any] = []

    def wait() -> None:
        with RawConnection(replica) as connection:
            found.append(connection.fetch(TOPIC, 3 * RECORDS, partition=PARTITION, max_wait_ms=60_000))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while replica.replica.waiting_partitions.total == 0:
        time.sleep(0.001)
    grow(made)
    replica.look()
    waiting.join(30)
    assert found[0].high_watermark == 4 * RECORDS
    assert bytes(found[0].records)
    assert replica.replica.waiting_partitions.total == 0


def test_topics_come_and_go_with_the_bucket(replica: ReplicaThread, made: VerifiedStore) -> None:
    before = cluster_checkpoint()
    other = TopicEntry(name="other", topic_id=UUID(int=5), partition_count=2, configs={})
    both = ClusterCheckpoint(version=8, cluster_id=before.cluster_id, topics=(*before.topics, other))
    checkpoints.write_cluster_checkpoint(made.store, both)
    replica.look()
    assert topics(replica) == {TOPIC: PARTITION + 1, "other": 2}
    gone = ClusterCheckpoint(version=9, cluster_id=before.cluster_id, topics=(other,))
    checkpoints.write_cluster_checkpoint(made.store, gone)
    replica.look()
    assert topics(replica) == {"other": 2}
    assert fetch_code(replica, 0) == UNKNOWN_TOPIC


def test_a_wrong_setting_in_the_bucket_hides_the_configs_of_no_other_topic(
    replica: ReplicaThread, made: VerifiedStore, caplog: pytest.LogCaptureFixture
) -> None:
    before = cluster_checkpoint()
    wrong = {"word": {"retention.ms": "soon"}, "long": {"follower.replication.throttled.replicas": "é" * 20_000}}
    others = tuple(
        TopicEntry(name=name, topic_id=UUID(int=number), partition_count=1, configs=configs)
        for number, (name, configs) in enumerate(wrong.items(), start=5)
    )
    settings = {"": {"log.retention.ms": "5", "log.segment.bytes": "many"}}
    forged = replace(before, version=8, topics=(*before.topics, *others), settings=settings)
    checkpoints.write_cluster_checkpoint(made.store, forged)
    replica.look()
    request = messages.request(DESCRIBE_CONFIGS, 1)
    names = (TOPIC, *wrong)
    resources = tuple(
        request.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None) for name in names
    )
    with RawConnection(replica) as connection:
        described = request.DescribeConfigsRequest(resources=resources)
        first, answer = (connection.ask(DESCRIBE_CONFIGS, 1, described) for _ in range(2))
    assert first == answer
    assert [each.error_code for each in answer.results] == [NONE, INVALID_CONFIG, INVALID_CONFIG]
    shown = {each.name: each.value for each in answer.results[0].configs}
    assert (shown["retention.ms"], shown["segment.bytes"]) == ("5", str(1 << 30))
    assert caplog.text.count("they count for nothing here: log.segment.bytes") == 1


def test_what_retention_took_since_the_last_look_is_out_of_range(replica: ReplicaThread, made: VerifiedStore) -> None:
    made.write_head(log_start_offset=RECORDS)
    made.path(0).unlink()
    with RawConnection(replica) as connection:
        answer = connection.fetch(TOPIC, 0, partition=PARTITION)
    assert (answer.error_code, answer.log_start_offset, bytes(answer.records or b"")) == (OUT_OF_RANGE, RECORDS, b"")  # type: ignore[arg-type]
    assert offset_at(replica, EARLIEST) == (NONE, RECORDS, -1)
    assert read(replica, RECORDS) == b"".join(each.log for each in made.segments[1:])


# What is wrong


def test_an_object_that_the_checkpoint_still_names_is_asked_for_again(
    replica: ReplicaThread, made: VerifiedStore, caplog: pytest.LogCaptureFixture
) -> None:
    aside = made.root.parent / "aside"
    shutil.move(made.path(1), aside)
    assert fetch_code(replica, RECORDS + 5) == STORAGE_ERROR
    assert made.rows[1].object_key in caplog.text
    assert fetch_code(replica, 5) == NONE
    shutil.move(aside, made.path(1))
    assert read(replica) == b"".join(each.log for each in made.segments)


def test_a_damaged_chunk_is_never_served(replica: ReplicaThread, made: VerifiedStore) -> None:
    made.flip(1, 20)
    assert fetch_code(replica, RECORDS) == CORRUPT
    assert replica.replica.counters.cold_corruptions == 1
    last = made.tail(1).chunks[-1].first_offset
    assert read(replica, last).startswith(made.segments[1].log[made.tail(1).chunks[-1].position :])


def test_a_damaged_checkpoint_leaves_what_was_seen(replica: ReplicaThread, made: VerifiedStore) -> None:
    head = made.root / object_key.partition_checkpoint_key(made_topic_id(), PARTITION)
    data = bytearray(head.read_bytes())
    data[len(data) // 2] ^= 1
    head.write_bytes(data)
    replica.look()
    assert replica.ask("/readyz")[1]["unreadable_partitions"] == [f"{TOPIC}-{PARTITION}"]
    assert read(replica) == b"".join(each.log for each in made.segments)
    made.write_head()
    replica.look()
    assert replica.ask("/readyz")[1]["unreadable_partitions"] == []


def made_topic_id() -> UUID:
    return cluster_checkpoint().topics[0].topic_id


def test_without_the_store_the_view_stays_and_its_age_grows(replica: ReplicaThread, bucket: Bucket) -> None:
    assert fetch_code(replica, 0) == NONE
    bucket.away = True
    with pytest.raises(StoreUnavailable):
        replica.look()
    assert topics(replica) == {TOPIC: PARTITION + 1}
    assert offset_at(replica, LATEST) == (NONE, 3 * RECORDS, -1)
    assert fetch_code(replica, 2 * RECORDS) == STORAGE_ERROR
    health = replica.ask("/readyz")[1]
    looks = 0
    while not health["store_away"] and looks < 100:
        # What was read ahead before the store went away had its answer only now, and that is the newest one.
        with pytest.raises(StoreUnavailable):
            replica.look()
        looks += 1
        health = replica.ask("/readyz")[1]
    assert health["store_away"]
    time.sleep(0.05)
    assert replica.ask("/readyz")[1]["view_age_ms"] >= health["view_age_ms"] + 50
    bucket.away = False
    replica.look()
    assert replica.ask("/readyz")[1]["view_age_ms"] < health["view_age_ms"] + 50
    assert fetch_code(replica, 2 * RECORDS) == NONE


def test_a_store_without_a_clusters_checkpoint_is_no_bucket_of_ours(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="there is no cluster's checkpoint in file://"):
        with ReplicaThread(tmp_path / "replica", Bucket(tmp_path / "empty")):
            pass


# What must never happen


def listing(root: Path) -> dict[str, tuple[int, int]]:
    return {str(each): (each.stat().st_mtime_ns, each.stat().st_size) for each in sorted(root.rglob("*"))}


def test_nothing_is_written_to_the_bucket(tmp_path: Path, made: VerifiedStore, bucket: Bucket) -> None:
    before = listing(made.root)
    with ReplicaThread(tmp_path / "replica", bucket) as replica:
        read(replica)
        replica.look()
        offset_at(replica, 1_100)
    assert listing(made.root) == before
