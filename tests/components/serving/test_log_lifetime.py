"""How logs end and begin anew: lost disks, torn tails, retention over both tiers, deleted topics and records."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.tiers import (
    DELETE_RECORDS,
    DELETE_TOPICS,
    NONE,
    create,
    eventually,
    fill,
    keys_in_checkpoint,
    read,
    read_code,
    topic_id,
    wait_checkpoint,
)
from tests.faults.bucket import files_under, objects, verify_store
from tests.warm_start import WarmProcess
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.meta import topics
from tiered.meta.engine import Database
from tiered.wire import messages

OFFSET_OUT_OF_RANGE, OUT_OF_ORDER_SEQUENCE, KAFKA_STORAGE_ERROR = 1, 45, 56
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH = 22, 23
SETTINGS = {
    "log.segment.bytes": 20_000,  # ten records of `fill`
    "log.retention.check.interval.ms": 100,
    "tiered.sweep.interval.ms": 100,
    "tiered.checkpoint.interval.ms": 100,
    "tiered.purge.grace.ms": 0,
    "log.local.retention.bytes": 1,
}


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """Not started yet."""
    return make_broker(settings=SETTINGS)


@pytest.fixture
def store(broker: BrokerProcess) -> Iterator[ObjectStore]:
    (broker.data / "objects").mkdir(parents=True)
    opened = open_store(f"file://{broker.data / 'objects'}")
    yield opened
    opened.close()


def meta_url(broker: BrokerProcess) -> str:
    return f"sqlite:///{broker.data / 'meta.db'}"


def new_producer_id(connection: RawConnection) -> int:
    namespace = messages.request(INIT_PRODUCER_ID, 1)
    request = namespace.InitProducerIdRequest(transactional_id=None, transaction_timeout=60_000)
    return int(connection.ask(INIT_PRODUCER_ID, 1, request).producer_id)


def idempotent(producer_id: int, sequence: int) -> bytes:
    return batch(
        [b"i" * 1_900],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        first_ms=int(time.time() * 1000),
    )


# Lost disks


def test_lost_local_log_goes_on_where_the_store_ends_and_knows_its_producers(
    broker: BrokerProcess, store: ObjectStore
) -> None:
    broker.start()
    assert create(broker, "orders") == NONE
    with RawConnection(broker) as connection:
        producer_id = new_producer_id(connection)
        for sequence in range(20):
            assert connection.produce("orders", idempotent(producer_id, sequence)).base_offset == sequence
    fill(broker, "orders", 1)  # rolls the second segment
    broker.wait_cold("orders", end_offset=20, only=True)
    assert broker.stop() == 0
    shutil.rmtree(broker.data / "log")
    for _ in range(2):  # A crash right after the first start must not lose what was found.
        broker.start()
        broker.kill()
    broker.start()
    found = broker.segments("orders")
    assert (found["log_start_offset"], found["local_log_start_offset"], found["log_end_offset"]) == (0, 20, 20)
    with RawConnection(broker) as connection:
        assert connection.produce("orders", idempotent(producer_id, 19)).base_offset == 19, "a retry is known"
        assert connection.produce("orders", idempotent(producer_id, 21)).error_code == OUT_OF_ORDER_SEQUENCE
        assert connection.produce("orders", idempotent(producer_id, 20)).base_offset == 20
    assert len(read(broker, "orders")) == 21
    broker.kill()
    broker.start()
    with RawConnection(broker) as connection:
        assert connection.produce("orders", idempotent(producer_id, 20)).base_offset == 20, "known after a kill too"
        assert connection.produce("orders", idempotent(producer_id, 21)).base_offset == 21
        assert epoch_end(connection, "orders", 0) == (0, 20), "the first epoch ends where the lost disk's records end"
    fill(broker, "orders", 10)
    broker.wait_cold("orders", end_offset=30)
    wait_checkpoint(broker, meta_url(broker), store, "orders")


def epoch_end(connection: RawConnection, topic: str, leader_epoch: int) -> tuple[int, int]:
    """(leader epoch, end offset) by OffsetForLeaderEpoch."""
    namespace = messages.request(OFFSET_FOR_LEADER_EPOCH, 3)
    request = namespace.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=(
            namespace.OffsetForLeaderTopic(
                topic=topic,
                partitions=(
                    namespace.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=leader_epoch),
                ),
            ),
        ),
    )
    answer = connection.ask(OFFSET_FOR_LEADER_EPOCH, 3, request).topics[0].partitions[0]
    assert int(answer.error_code) == NONE
    return int(answer.leader_epoch), int(answer.end_offset)


def test_local_tail_torn_below_the_end_of_the_store_begins_anew_there(broker: BrokerProcess) -> None:
    broker.settings["log.local.retention.bytes"] = -2  # both segments stay here
    broker.start()
    assert create(broker, "orders") == NONE
    with RawConnection(broker) as connection:
        producer_id = new_producer_id(connection)
        for sequence in range(25):
            connection.produce("orders", idempotent(producer_id, sequence))
    broker.wait_cold("orders", end_offset=20)
    broker.kill()
    # As after a power loss: the later files never reached the disk, an earlier one in part.
    folder = next((broker.data / "log").iterdir()) / "0"
    for path in [*folder.glob("*0010.*"), *folder.glob("*0020.*"), *folder.glob("recovery-point*")]:
        path.unlink()
    os.truncate(folder / f"{0:020}.log", 9_000)
    broker.start()
    assert broker.segments("orders")["log_end_offset"] == 20
    with RawConnection(broker) as connection:
        assert connection.produce("orders", idempotent(producer_id, 19)).base_offset == 19
        assert connection.produce("orders", idempotent(producer_id, 20)).base_offset == 20
    assert [offset for offset, _ in read(broker, "orders")] == list(range(21))


def delete_before(broker: BrokerProcess, topic: str, offset: int) -> tuple[int, int]:
    """(error code, low watermark) by DeleteRecords."""
    namespace = messages.request(DELETE_RECORDS, 1)
    partition = namespace.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = namespace.DeleteRecordsRequest(
        topics=(namespace.DeleteRecordsTopic(name=topic, partitions=(partition,)),), timeout=10_000
    )
    with RawConnection(broker) as connection:
        answer = connection.ask(DELETE_RECORDS, 1, request).topics[0].partitions[0]
    return int(answer.error_code), int(answer.low_watermark)


def test_a_partition_that_lost_records_keeps_no_other_from_being_served_and_opens_once_they_are_given_up(
    broker: BrokerProcess,
) -> None:
    broker.start()
    for topic in ("lost", "whole"):
        assert create(broker, topic, remote_storage_enable="false") == NONE
    fill(broker, "lost", 25)
    written = fill(broker, "whole", 25)
    folder = broker.data / "log" / str(topic_id(broker, "lost")) / "0"
    assert broker.stop() == 0
    for path in folder.glob(f"{0:020}.*"):
        path.unlink()
    broker.start()
    assert read(broker, "whole") == written
    assert read_code(broker, "lost") == KAFKA_STORAGE_ERROR
    assert broker.get("/readyz")["failed_partitions"] == ["lost-0"]
    assert broker.metric("tiered_failed_partitions") == 1
    assert "accept the loss of what is missing: POST /api/v1/topics/lost/partitions/0/delete-records" in broker.log()
    assert delete_before(broker, "lost", 10) == (NONE, 10)
    assert [offset for offset, _ in read(broker, "lost", offset=10)] == list(range(10, 25))
    fill(broker, "lost", 1, first=25)
    assert broker.get("/readyz")["failed_partitions"] == []


# Retention


@pytest.mark.parametrize("configs", [{"retention_bytes": 60_000}, {"retention_ms": 1}], ids=["by size", "by time"])
def test_total_retention_takes_objects_and_local_segments(
    configs: dict[str, int], broker: BrokerProcess, store: ObjectStore
) -> None:
    broker.start()
    assert create(broker, "orders") == NONE
    written = fill(broker, "orders", 95)
    broker.wait_cold("orders", end_offset=90, only=True)
    assert len(objects(broker.data / "objects")) == 9
    alter(broker, "orders", **configs)
    least = 60 if "retention_bytes" in configs else 95  # By time the active segment expires and goes too, as in Kafka.
    eventually(lambda: broker.segments("orders")["log_start_offset"] >= least, "the log start moves", broker)
    start = broker.segments("orders")["log_start_offset"]
    assert start <= 70 or "retention_ms" in configs

    def exact() -> bool:
        keys = {each["object_key"] for each in broker.segments("orders")["segments"] if each["object_key"]}
        return objects(broker.data / "objects") == keys

    eventually(exact, "retired objects are deleted", broker)
    assert read_code(broker, "orders", offset=start - 1) == OFFSET_OUT_OF_RANGE
    assert read(broker, "orders", offset=start) == written[start:]
    wait_checkpoint(broker, meta_url(broker), store, "orders")
    broker.kill()
    broker.start()
    assert broker.segments("orders")["log_start_offset"] >= start
    wait_checkpoint(broker, meta_url(broker), store, "orders")
    # Where retention.ms is 1 this expires at once: nothing is said of what stays.
    fill(broker, "orders", 1)


def alter(broker: BrokerProcess, topic: str, **configs: object) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    resource = ConfigResource(
        ResourceType.TOPIC, topic, {name.replace("_", "."): str(value) for name, value in configs.items()}
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.alter_configs([resource])[resource].result(30)


def test_local_topic_keeps_everything_here_and_its_retention_too(broker: BrokerProcess) -> None:
    broker.start()
    assert create(broker, "local", remote_storage_enable="false") == NONE
    written = fill(broker, "local", 55)
    broker.kill()
    broker.start()
    assert read(broker, "local") == written
    assert objects(broker.data / "objects") == set()
    alter(broker, "local", remote_storage_enable="false", retention_bytes=40_000)
    eventually(lambda: broker.segments("local")["log_start_offset"] >= 30, "retention", broker)
    start = broker.segments("local")["log_start_offset"]
    assert start <= 40
    eventually(lambda: broker.segments("local")["segments"][0]["base_offset"] == start, "its files go", broker)
    assert read(broker, "local", offset=start) == written[start:]
    # It may become tiered later: the store then begins where the log does.
    alter(broker, "local", remote_storage_enable="true")
    broker.wait_cold("local", end_offset=50, only=True)
    assert read(broker, "local", offset=start) == written[start:]


def test_deleted_records_in_the_middle_of_a_segment_stay_deleted_in_its_object(
    broker: BrokerProcess, store: ObjectStore
) -> None:
    broker.start()
    assert create(broker, "orders") == NONE
    written = fill(broker, "orders", 5)
    assert delete_before(broker, "orders", 3) == (NONE, 3)
    broker.kill()
    broker.start()
    written += fill(broker, "orders", 20, first=5)
    broker.wait_cold("orders", end_offset=20, only=True)
    for _ in range(2):
        assert read(broker, "orders", offset=3) == written[3:]
        assert read_code(broker, "orders", offset=2) == OFFSET_OUT_OF_RANGE
        broker.kill()
        broker.start()
    wait_checkpoint(broker, meta_url(broker), store, "orders")
    verify_store(broker.data / "objects", objects(broker.data / "objects"))


@pytest.mark.parametrize("crash_at", ["", "purge.deleted", "forget.checkpoints_removed"])
def test_nothing_stays_of_a_deleted_topic(crash_at: str, broker: BrokerProcess, store: ObjectStore) -> None:
    broker.start(environ={"TIERED_CRASH_AT": crash_at} if crash_at else {})
    assert create(broker, "gone") == NONE
    assert create(broker, "stays") == NONE
    fill(broker, "gone", 35)
    fill(broker, "stays", 15)
    broker.wait_cold("gone", end_offset=30)
    broker.wait_cold("stays", end_offset=10)
    wait_checkpoint(broker, meta_url(broker), store, "gone")
    gone, stays = topic_id(broker, "gone"), topic_id(broker, "stays")
    namespace = messages.request(DELETE_TOPICS, 5)
    with RawConnection(broker) as connection:
        try:
            answer = connection.ask(
                DELETE_TOPICS, 5, namespace.DeleteTopicsRequest(topic_names=("gone",), timeout=10_000)
            )
            assert int(answer.responses[0].error_code) == NONE
        except OSError:
            assert crash_at
    if crash_at:
        broker.wait_killed()
        broker.start()

    def nothing_left() -> bool:
        files = [path for path in files_under(broker.data / "objects") if str(gone) in str(path)]
        return not files and keys_in_checkpoint(store, gone) == []

    eventually(nothing_left, "its objects and checkpoints are gone", broker)
    eventually(lambda: tombstones(broker) == [], "its rows are gone", broker)
    assert not (broker.data / "log" / str(gone)).exists()
    assert (broker.data / "log" / str(stays)).exists()
    assert len(read(broker, "stays")) == 15
    assert create(broker, "gone") == NONE, "its name is free"


def tombstones(broker: BrokerProcess) -> list[str]:
    database = Database.open(meta_url(broker))
    try:
        return [row.name for row in database.run_sync(topics.list_tombstones)]
    finally:
        database.close_sync()


def test_checkpoint_follows_a_commit_that_a_kill_hid_from_it(broker: BrokerProcess, store: ObjectStore) -> None:
    broker.start(environ={"TIERED_CRASH_AT": "upload.committed:2"})
    assert create(broker, "orders") == NONE
    try:
        fill(broker, "orders", 25)
    except OSError:
        pass
    broker.wait_killed()
    broker.start()
    assert broker.segments("orders")["cold_end_offset"] == 20
    wait_checkpoint(broker, meta_url(broker), store, "orders")


# Starts that are refused


def refused(broker: BrokerProcess, *arguments: str) -> str:
    """What a start says that ends with exit code 1."""
    with tempfile.TemporaryFile("w+") as words:
        process = WarmProcess("tiered.cli", [*broker.words(), *arguments], environ=os.environ, stderr=words.fileno())
        with process.stdout:
            assert process.stdout.read() == ""
        code = process.wait(30)
        words.seek(0)
        said = words.read()
    assert code == 1, said
    assert "Traceback" not in said, said
    return said


def test_second_broker_on_the_same_folder_is_refused(broker: BrokerProcess) -> None:
    broker.start()
    broker.kafka_port = broker.http_port = 0
    said = refused(broker)
    assert f"process {broker.pid}" in said
    assert "choose another --data" in said


def test_wrong_broker_id_or_foreign_catalogue_is_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.start()
    broker.stop()
    assert "--broker-id 1" in refused(broker, "--broker-id", "7")
    assert "belongs to cluster" in refused(broker, "--meta", f"sqlite:///{tmp_path / 'other.db'}")
    broker.start()
    assert create(broker, "orders") == NONE
    broker.stop()
    (broker.data / "owner.json").unlink()
    assert "--broker-id 1" in refused(broker, "--broker-id", "7")
    broker.start()
    fill(broker, "orders", 1)


def test_checkpoints_that_cannot_be_written_are_one_line_in_the_log_and_one_when_they_can(
    broker: BrokerProcess,
) -> None:
    broker.start()
    eventually(lambda: broker.get("/readyz")["stale_checkpoints"] == 0, "the bucket is the cluster's", broker)
    in_the_way = broker.data / "objects" / "checkpoints"
    in_the_way.rename(broker.data / "aside")
    in_the_way.write_text("a file where a folder should be")
    assert create(broker, "orders") == NONE
    eventually(lambda: broker.metric("tiered_checkpoint_failures_total") >= 3, "it tries again", broker)
    assert broker.log().count("could not be written") == 1
    in_the_way.unlink()
    (broker.data / "aside").rename(in_the_way)
    eventually(lambda: "checkpoints are written again" in broker.log(), "it says so", broker)
    assert broker.log().count("could not be written") == 1
