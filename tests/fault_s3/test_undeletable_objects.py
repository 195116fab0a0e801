"""An object of the bucket that may not be deleted keeps no other there, and the store is not called away for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tests.fault_s3.moto_server import BUCKET
from tests.fault_s3.tiering_broker import committed, eventually, fill, make_topic, tiering_broker, uploaded
from tiered.cold.s3.store import S3Store
from tiered.meta import topics
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind
from tiered.testing.moto_s3 import s3_client

SEGMENTS = 6


@contextmanager
def undeletable(endpoint_url: str, name: str) -> Iterator[None]:
    """The bucket's own policy forbids everybody to delete this object, as a lock would; moto enforces it."""
    denial = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObject",
        "Resource": f"arn:aws:s3:::{BUCKET}/{name}",
    }
    client = s3_client(endpoint_url)
    client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17", "Statement": [denial]}))
    try:
        yield
    finally:
        client.delete_bucket_policy(Bucket=BUCKET)
        client.close()


async def test_one_object_that_may_not_be_deleted_holds_up_no_other(
    tmp_path: Path, faults: FaultyS3, endpoint_url: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"tiered_purge_grace_ms": 0}
    async with tiering_broker(tmp_path, faults, prefix=prefix, **settings) as broker:
        # Records of 1970: the active segment, which has some, is not to be closed for its age as well.
        by_size_alone = {"segment_ms": 2**62, "tiered_disk_only_max_ms": -1}
        first, second = await make_topic(
            broker, "t", partitions=2, retention_ms=1, local_retention_ms=1, **by_size_alone
        )
        for partition in (first, second):
            fill(partition, SEGMENTS + 1, at_ms=1)
        await eventually(lambda: len(uploaded(faults)) == 2 * SEGMENTS)
        await eventually(lambda: all(partition.cold_end_offset == SEGMENTS for partition in (first, second)))
        keys = [row.object_key for partition in (first, second) for row in await committed(broker, partition)]
        await broker.retention.round()
        # It has closed the active segments, too, and objects stay until their partition's checkpoint is written.
        await eventually(lambda: all(partition.cold_end_offset == SEGMENTS + 1 for partition in (first, second)))
        await broker.checkpoints.write_stale()
        with undeletable(endpoint_url, f"{prefix}/{keys[0]}"):
            await broker.lifecycle.sweep()
            left = [key for key in keys if broker.store.head(key) is not None]
            assert left == keys[:1]
            health = broker.health(await broker.partition_totals())
            assert (health["store_away"], health["store_trouble"], health["undeletable_objects"]) == (False, None, 1)
            assert keys[0] in caplog.text

            deletes = faults.count("DELETE")
            await broker.lifecycle.sweep()
            assert faults.count("DELETE") == deletes, "neither what is gone nor what is refused is deleted again"


async def test_a_deleted_topic_whose_checkpoint_may_not_be_deleted_holds_up_no_other(
    tmp_path: Path, faults: FaultyS3
) -> None:
    async with tiering_broker(tmp_path, faults) as broker:
        ids = [(await make_topic(broker, name))[0].topic_partition.topic_id for name in ("a", "b", "c")]
        for name in ("a", "b", "c"):
            await broker.admin.delete_topic(broker.topics.by_name(name))

        async def remembered() -> set[UUID]:
            rows = await broker.database.read(
                lambda conn: topics.list_forgettable(conn, deleted_before_ms=2**60, limit=10)
            )
            return {row.topic_id for row in rows}

        assert await remembered() == set(ids)
        faults.inject(S3FaultKind.ACCESS_DENIED, method="DELETE", path_contains=str(ids[0]), times=None)
        await broker.lifecycle.forget_deleted_topics()
        assert await remembered() == {ids[0]}
        faults.heal()
        await broker.lifecycle.forget_deleted_topics()
        assert await remembered() == set()


def test_an_upload_that_may_not_be_ended_holds_up_no_other(
    faults: FaultyS3, endpoint_url: str, store: S3Store, prefix: str
) -> None:
    client = s3_client(endpoint_url)
    for key in ("a", "b", "c"):
        client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}/{key}")
    client.close()
    faults.inject(S3FaultKind.ACCESS_DENIED, method="DELETE", path_contains="/a", times=None)
    assert store.abort_abandoned_uploads("", started_before_ms=1 << 62) == ("b", "c")
    faults.heal()
    assert store.abort_abandoned_uploads("", started_before_ms=1 << 62) == ("a",)
