"""An object of the bucket that may not be deleted keeps no other there, and the store is not called away for it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fault_s3.moto_server import BUCKET
from tests.fault_s3.tiering_broker import committed, eventually, fill, make_topic, tiering_broker, uploaded
from tiered.testing.faulty_s3 import FaultyS3
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
        first, second = await make_topic(broker, "t", partitions=2, retention_ms=1, local_retention_ms=1)
        for partition in (first, second):
            fill(partition, SEGMENTS + 1, at_ms=1)
        await eventually(lambda: len(uploaded(faults)) == 2 * SEGMENTS)
        await eventually(lambda: broker.upload_backlog()[0] == 0)
        keys = [row.object_key for partition in (first, second) for row in await committed(broker, partition)]
        await broker.retention.round()
        with undeletable(endpoint_url, f"{prefix}/{keys[0]}"):
            await broker.lifecycle.sweep()
            left = [key for key in keys if broker.store.head(key) is not None]
            assert left == keys[:1]
            health = broker.health()
            assert (health["store_away"], health["store_trouble"], health["undeletable_objects"]) == (False, None, 1)
            assert keys[0] in caplog.text

            deletes = faults.count("DELETE")
            await broker.lifecycle.sweep()
            assert faults.count("DELETE") == deletes, "neither what is gone nor what is refused is deleted again"
