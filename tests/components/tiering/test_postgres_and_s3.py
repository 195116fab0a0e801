"""A broker as it runs in production, its catalogue in PostgreSQL and its cold tier in S3, when either goes away."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.tiers import (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    NONE,
    REQUEST_TIMED_OUT,
    create,
    eventually,
    fill,
    read,
    read_code,
    wait_checkpoint,
)
from tests.fault_s3.moto_server import BUCKET, aws_environment, moto_s3, store_url
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind, faulty_s3
from tiered.wire import fetch as fetch_codec

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

pytest_plugins = ["tests.postgres"]

SETTINGS = {
    "log.segment.bytes": 20_000,  # ten records
    "log.retention.check.interval.ms": 200,
    "tiered.sweep.interval.ms": 300,
    "tiered.checkpoint.interval.ms": 100,
    # Cold as soon as it is committed.
    "log.local.retention.bytes": 1,
}
AWAY = (S3FaultKind.SLOW_DOWN, S3FaultKind.RESET, S3FaultKind.TRUNCATE, S3FaultKind.SERVER_ERROR)


class Site:
    """A broker with PostgreSQL and, behind a proxy, S3."""

    def __init__(self, make_broker: Callable[..., BrokerProcess], meta_url: str, s3_url: str, faults: FaultyS3) -> None:
        self.faults = faults
        self.meta_url = meta_url
        self.prefix = f"p-{uuid4()}"
        self.store: ObjectStore = open_store(store_url(s3_url, self.prefix))
        self.client: Any = boto3.session.Session().client("s3", endpoint_url=s3_url, region_name="us-east-1")
        self.broker = make_broker("--meta", meta_url, "--store", store_url(faults.url, self.prefix), settings=SETTINGS)

    def away(self) -> None:
        """From now on S3 answers nothing that is of use."""
        self.faults.misbehave(seed=1, probability=1.0, kinds=AWAY)

    def close(self) -> None:
        self.faults.heal()
        self.broker.ensure_stopped()
        self.store.close()
        self.client.close()


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with moto_s3() as url:
        yield url


@pytest.fixture
def site(make_broker: Callable[..., BrokerProcess], postgres_url: str, s3_url: str) -> Iterator[Site]:
    with faulty_s3(s3_url) as faults, aws_environment():
        made = Site(make_broker, postgres_url, s3_url, faults)
        yield made
        made.close()


def test_log_outlives_restarts_and_kills_in_both_tiers(site: Site) -> None:
    broker = site.broker.start()
    assert create(broker, "orders") == NONE
    written = fill(broker, "orders", 35)
    broker.wait_cold("orders", end_offset=30, only=True)
    assert read(broker, "orders") == written
    wait_checkpoint(broker, site.meta_url, site.store, "orders")
    assert broker.stop() == 0
    broker.start()
    assert read(broker, "orders") == written
    written += fill(broker, "orders", 8, first=35)
    broker.kill()
    broker.start()
    written += fill(broker, "orders", 20, first=43)
    broker.wait_cold("orders", end_offset=60, only=True)
    assert read(broker, "orders") == written
    wait_checkpoint(broker, site.meta_url, site.store, "orders")


def test_postgresql_may_go_and_come_back_while_records_flow(site: Site, postgres_server: "PostgresServer") -> None:
    broker = site.broker.start()
    assert create(broker, "orders") == NONE
    written = fill(broker, "orders", 25)
    broker.wait_cold("orders", end_offset=20, only=True)
    postgres_server.stop()
    try:
        written += fill(broker, "orders", 25, first=25)
        assert read(broker, "orders") == written, "both tiers are read without SQL"
        assert create(broker, "later") == REQUEST_TIMED_OUT
        assert broker.segments("orders")["cold_end_offset"] == 20
    finally:
        postgres_server.start()
    eventually(lambda: create(broker, "later") == NONE, "topics can be created again", broker)
    broker.wait_cold("orders", end_offset=40, only=True)
    written += fill(broker, "orders", 5, first=50)
    assert read(broker, "orders") == written
    fill(broker, "later", 3)
    assert "Traceback" not in broker.log(), broker.log()
    wait_checkpoint(broker, site.meta_url, site.store, "orders")


def test_s3_may_go_and_come_back_while_records_flow(site: Site) -> None:
    broker = site.broker.start()
    assert create(broker, "orders") == NONE
    written = fill(broker, "orders", 25)
    broker.wait_cold("orders", end_offset=20, only=True)
    site.away()
    written += fill(broker, "orders", 25, first=25)
    assert read(broker, "orders", offset=20) == written[20:]
    assert read_code(broker, "orders") == KAFKA_STORAGE_ERROR, "an error that every consumer answers with a retry"
    eventually(lambda: broker.metric("tiered_upload_failures_total") > 0, "an upload fails", broker)
    assert broker.segments("orders")["local_log_start_offset"] == 20, "what is not in the store stays here"
    assert broker.metric("tiered_upload_backlog_bytes") > 0
    site.faults.heal()
    broker.wait_cold("orders", end_offset=40, only=True)
    assert read(broker, "orders") == written
    assert "Traceback" not in broker.log(), broker.log()
    wait_checkpoint(broker, site.meta_url, site.store, "orders")


def test_broker_starts_and_stops_while_s3_is_away(site: Site) -> None:
    broker = site.broker.start()
    assert create(broker, "orders") == NONE
    written = fill(broker, "orders", 30)
    broker.wait_cold("orders", end_offset=20, only=True)
    site.away()
    broker.kill()
    broker.start()
    written += fill(broker, "orders", 10, first=30)
    assert read(broker, "orders", offset=20) == written[20:]
    assert broker.stop() == 0
    broker.start()
    site.faults.heal()
    broker.wait_cold("orders", end_offset=30, only=True)
    assert read(broker, "orders") == written
    wait_checkpoint(broker, site.meta_url, site.store, "orders")


def test_altered_and_missing_objects_are_errors_and_never_wrong_bytes(site: Site) -> None:
    """T8"""
    broker = site.broker.start()
    assert create(broker, "orders", partitions=3) == NONE
    written = [fill(broker, "orders", 25, partition=number) for number in range(3)]
    for number in range(3):
        broker.wait_cold("orders", number, end_offset=20, only=True)
    altered, missing = (_object_key(broker, number, index=1) for number in (0, 1))
    where = f"{site.prefix}/{altered}"
    data = bytearray(site.client.get_object(Bucket=BUCKET, Key=where)["Body"].read())
    data[len(data) // 3] ^= 1
    site.client.put_object(Bucket=BUCKET, Key=where, Body=bytes(data))
    site.client.delete_object(Bucket=BUCKET, Key=f"{site.prefix}/{missing}")
    for number in (0, 1):
        assert read_code(broker, "orders", partition=number) == CORRUPT_MESSAGE
        assert read(broker, "orders", partition=number, offset=20) == written[number][20:]
        with RawConnection(broker) as connection:
            answer = connection.fetch("orders", 10, partition=number)
            assert (answer.error_code, answer.records or b"") == (CORRUPT_MESSAGE, b"")
    assert read(broker, "orders", partition=2) == written[2], "other partitions go on"
    assert broker.metric("tiered_cold_corruptions_total") >= 4
    data[len(data) // 3] ^= 1
    site.client.put_object(Bucket=BUCKET, Key=where, Body=bytes(data))
    assert read(broker, "orders", partition=0) == written[0], "a restored object is read again"
    fill(broker, "orders", 3, partition=1)


def _object_key(broker: BrokerProcess, partition: int, *, index: int) -> str:
    found: str = broker.segments("orders", partition)["segments"][index]["object_key"]
    return found


def test_client_that_gives_up_leaves_the_download_to_the_next_one(site: Site) -> None:
    """T7"""
    broker = site.broker.start()
    assert create(broker, "orders") == NONE
    written = fill(broker, "orders", 15)
    broker.wait_cold("orders", end_offset=10, only=True)
    before = site.faults.count("GET", path_contains=".seg")
    site.faults.inject(S3FaultKind.DELAY, method="GET", path_contains=".seg", times=2, seconds=1.0)
    connection = RawConnection(broker)
    asked = fetch_codec.FetchTopic("orders", None, [fetch_codec.FetchPartition(0, -1, 0, -1, -1, 1 << 20)])
    request = fetch_codec.FetchRequest(-1, -1, 500, 1, 1 << 20, 0, 0, -1, [asked])
    connection.send(fetch_codec.API_KEY, 11, fetch_codec.encode_fetch_request(request, 11))
    eventually(lambda: site.faults.count("GET", path_contains=".seg") > before, "the download begins", broker)
    connection.close()
    time.sleep(0.3)
    assert read(broker, "orders") == written
    assert site.faults.count("GET", path_contains=".seg") == before + 2, "one tail and one chunk, each once"
