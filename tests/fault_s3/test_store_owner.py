"""One prefix is one cluster's: a second cluster is refused before it is ready, or uploads and deletes nothing there."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fault_s3.tiering_broker import eventually, fill, make_topic, store_at
from tiered.broker.broker import Broker
from tiered.broker.people.partition_totals import PartitionTotals
from tiered.broker.replaceable_parts import BrokerParts
from tiered.cold.bucket import checkpoints
from tiered.cold.bucket.contents import read_bucket
from tiered.cold.bucket.signs_of_life import live_brokers
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectInfo, ObjectStore, listed
from tiered.cold.timed_store import TimedStore
from tiered.config import BrokerSettings, ServeOptions
from tiered.errors import InvalidConfig
from tiered.formats import object_key
from tiered.formats.checkpoint import encode_cluster_checkpoint
from tiered.runtime import SystemClock
from tiered.server.http.metrics.broker import METRICS
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind

HEAD = object_key.cluster_checkpoint_key()


Opener = Callable[..., ObjectStore]


@pytest.fixture(params=["s3", "file"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the one store that two clusters are given; with a name, another one."""
    if request.param == "file":
        return lambda name="": LocalStore(tmp_path / f"bucket{name}")
    faults, prefix = request.getfixturevalue("faults"), request.getfixturevalue("prefix")
    return lambda name="": store_at(faults, f"{prefix}{name}")


@pytest.fixture
def bucket(opener: Opener) -> Iterator[ObjectStore]:
    """The same store, as the test sees it."""
    bucket = opener()
    yield bucket
    bucket.close()


@asynccontextmanager
async def serving(folder: Path, store: ObjectStore) -> AsyncIterator[Broker]:
    """A broker with a database of its own, that uploads at once and keeps no local copy of what is uploaded."""
    settings = {"log.local.retention.bytes": "0", "tiered.upload.interval.ms": "20"}
    options = ServeOptions(
        data_dir=folder,
        meta_url=f"sqlite:///{folder}.db",
        store_url="file:///unused",
        settings=BrokerSettings.of(settings),
    )
    broker = Broker(options, SystemClock(), BrokerParts(store=store))
    async with asyncio.TaskGroup() as tasks:
        try:
            await broker.start(tasks, advertised=("127.0.0.1", 9092))
        except InvalidConfig:
            await broker.abandon()
            raise
        yield broker
        broker.begin_stop()
        await broker.stop()


async def test_a_second_cluster_is_refused_before_it_is_ready(
    opener: Opener, bucket: ObjectStore, tmp_path: Path
) -> None:
    async with serving(tmp_path / "first", opener()) as first:
        first_id = first.cluster_id
        await eventually(lambda: live_brokers(bucket, first_id) == (1,))
        before = {key for key, _ in listed(bucket, "")}
        with pytest.raises(ExceptionGroup) as caught:
            async with serving(tmp_path / "second", opener()):
                pass
        assert {key for key, _ in listed(bucket, "")} == before
    assert live_brokers(bucket, first_id) == ()
    (error,) = caught.value.exceptions
    assert isinstance(error, InvalidConfig)
    assert f"belongs to cluster {first_id}, and the database of --meta is a new one" in str(error)
    assert "tiered restore" in str(error)
    # The first one starts again, and so does the second one where the prefix was emptied for it.
    async with serving(tmp_path / "first", opener()) as first:
        assert (first.cluster_id, first.store.is_ours) == (first_id, True)
    for key, _ in listed(bucket, ""):
        bucket.delete(key)
    async with serving(tmp_path / "second", opener()) as second:
        assert second.store.is_ours


class MeetingStore(TimedStore):
    """Two that write the first head meet before either does."""

    def __init__(self, store: ObjectStore, barrier: threading.Barrier) -> None:
        super().__init__(store, SystemClock())
        self._barrier = barrier

    def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None) -> ObjectInfo:
        if create_only and key == HEAD:
            self._barrier.wait()
        return super().put(key, data, create_only=create_only, if_match=if_match)


async def test_of_two_new_clusters_that_start_at_once_one_serves(opener: Opener, tmp_path: Path) -> None:
    barrier, over = threading.Barrier(2, timeout=60), asyncio.Event()
    served: list[str] = []
    refused: list[str] = []

    async def run(name: str) -> None:
        try:
            async with serving(tmp_path / name, MeetingStore(opener(), barrier)) as broker:
                served.append(broker.cluster_id)
                await over.wait()
        except* InvalidConfig as group:
            refused.extend(map(str, group.exceptions))
            over.set()

    async with asyncio.timeout(60):
        await asyncio.gather(run("one"), run("two"))
    (winner,), (words,) = served, refused
    assert f"belongs to cluster {winner}, and --meta is that of cluster" in words


async def test_a_store_that_is_away_at_the_start_is_written_to_by_one_cluster(
    faults: FaultyS3, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faults.inject(S3FaultKind.SERVER_ERROR, times=None)
    async with (
        serving(tmp_path / "one", store_at(faults, prefix)) as one,
        serving(tmp_path / "two", store_at(faults, prefix)) as two,
    ):
        brokers = [one, two]
        written = [(await make_topic(broker, "orders"))[0] for broker in brokers]
        for broker, partition in zip(brokers, written, strict=True):
            fill(partition, 5, at_ms=broker.clock.now_ms())
        faults.heal()
        await eventually(lambda: all(each.store.is_ours or each.store.other_cluster_id for each in brokers))
        (winner,) = [number for number, each in enumerate(brokers) if each.store.is_ours]
        loser, kept = brokers[1 - winner], written[1 - winner]
        await eventually(lambda: written[winner].log.local_log_start_offset == 4)
        await loser.store_owner.tick()
        await loser.retention.round()
        assert loser.serving
        assert (kept.cold_end_offset, kept.log.local_log_start_offset) == (0, 0)
        assert loser.health(PartitionTotals())["store_belongs_to"] == brokers[winner].cluster_id
        assert gauge(loser) == 1
        assert gauge(brokers[winner]) == 0
    ours = [key for key, _ in listed(store_at(faults, prefix), object_key.SEGMENTS_PREFIX)]
    assert len(ours) == 4
    assert [each.getMessage() for each in caplog.records if "nothing is uploaded any more" in each.getMessage()] != []


async def test_a_cluster_whose_store_is_taken_over_keeps_what_it_takes_from_then_on(
    opener: Opener, bucket: ObjectStore, tmp_path: Path
) -> None:
    async with serving(tmp_path / "data", opener()) as broker:
        (partition,) = await make_topic(broker, "orders")
        fill(partition, 3, at_ms=broker.clock.now_ms())
        await eventually(lambda: partition.log.local_log_start_offset == 2)
        await broker.checkpoints.write_stale()
        head, etag = checkpoints.read_stored_cluster_checkpoint(bucket) or (None, "")
        assert head is not None
        restored = replace(head, cluster_id="restored", previous_cluster_ids=(broker.cluster_id,))
        bucket.put(HEAD, encode_cluster_checkpoint(restored), if_match=etag)
        await broker.store_owner.tick()
        before = set(listed(bucket, ""))
        fill(partition, 3, at_ms=broker.clock.now_ms())
        await broker.retention.round()
        await broker.lifecycle.sweep(at_start=True)
        await broker.checkpoints.write_stale()
        assert (partition.cold_end_offset, partition.log.local_log_start_offset) == (2, 2)
        assert set(listed(bucket, "")) == before
    with pytest.raises(ExceptionGroup, match="unhandled") as caught:
        async with serving(tmp_path / "data", opener()):
            pass
    assert "which was restored from this one" in str(caught.value.exceptions[0])
    # It goes on below a prefix of its own, where its objects are and no checkpoint.
    moved = opener("-moved")
    for key, size_bytes in listed(bucket, object_key.SEGMENTS_PREFIX):
        moved.put(key, bucket.get(key, max_bytes=size_bytes)[0])
    async with serving(tmp_path / "data", moved) as broker:
        (partition,) = broker.topics.by_name("orders").partitions
        await eventually(lambda: partition.log.local_log_start_offset == 5)
        await broker.checkpoints.write_stale()
        (told,) = read_bucket(opener("-moved"), parallel=1).partitions.values()
        assert [segment.base_offset for segment in told.segments] == [0, 1, 2, 3, 4]


def gauge(broker: Broker) -> object:
    """The metric `tiered_store_foreign`."""
    (metric,) = [each for each in METRICS if each.name == "tiered_store_foreign"]
    return metric.read(broker)
