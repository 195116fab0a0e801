"""The rehearsal: write, tier, lose the database and every disk, restore from the bucket, and read as if nothing was."""

import json
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec

from tiered.cli import main
from tiered.cli.output import in_utc
from tiered.cold.bucket import checkpoints, group_checkpoints
from tiered.cold.bucket.signs_of_life import live_brokers
from tiered.cold.opening import open_store
from tiered.errors import InvalidConfig
from tiered.formats.object_key import PARTITION_CHECKPOINTS_PREFIX
from tiered.meta import cluster as cluster_row
from tiered.meta.engine import Database
from tiered.meta.producer_ids import allocate_block
from tiered.testing import LocalCluster, cluster

pytest_plugins = ["tests.meta_databases"]
pytestmark = pytest.mark.slow

QUICK = {"tiered.group.checkpoint.interval.ms": "50", "tiered.sweep.interval.ms": "100"}
WAIT_S = 60.0
Records = dict[tuple[str, int], list[tuple[Any, ...]]]


def eventually(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def produce(c: LocalCluster, topic: str, first: int, count: int, *, partitions: int, **options: object) -> None:
    producer = Producer({"bootstrap.servers": c.bootstrap, "linger.ms": 5, **options})
    for number in range(first, first + count):
        producer.produce(
            topic,
            key=None if number % 5 == 0 else b"key-%d" % (number % 7),
            value=None if number % 11 == 0 else b"%s %d " % (topic.encode(), number) * 20,
            headers=[("number", str(number).encode())],
            partition=number % partitions,
            timestamp=1_600_000_000_000 + number,
        )
    assert producer.flush(WAIT_S) == 0


def open_transaction(c: LocalCluster, topic: str) -> None:
    """Leaves a record in a transaction that nobody ends."""
    producer = Producer({"bootstrap.servers": c.bootstrap, "transactional.id": "left-open"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"never decided", partition=0)
    assert producer.flush(WAIT_S) == 0


def is_decided(c: LocalCluster, topic: str) -> bool:
    """Whether the one record of partition 0, in a transaction, has its marker behind it."""
    admin, where = AdminClient({"bootstrap.servers": c.bootstrap}), TopicPartition(topic, 0)
    latest = {where: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    levels = (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    return all(admin.list_offsets(latest, isolation_level=level)[where].result(WAIT_S).offset == 2 for level in levels)


def read_all(c: LocalCluster, topics: list[str]) -> Records:
    """Every record of these topics, by partition: offset, time, key, value, headers."""
    consumer = Consumer({"bootstrap.servers": c.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: Records = {}
    try:
        for topic in topics:
            for number in consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions:
                start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WAIT_S)
                records: list[tuple[Any, ...]] = []
                consumer.assign([TopicPartition(topic, number, start)])
                deadline = time.monotonic() + WAIT_S
                while (records[-1][0] + 1 if records else start) < end:
                    assert time.monotonic() < deadline, (topic, number, len(records), start, end)
                    message = consumer.poll(1.0)
                    if message is not None:
                        assert message.error() is None, message.error()
                        records.append(as_tuple(message))
                found[topic, number] = records
    finally:
        consumer.close()
    return found


def as_tuple(message: Message) -> tuple[Any, ...]:
    return message.offset(), message.timestamp(), message.key(), message.value(), message.headers()


def commit(c: LocalCluster, group: str, positions: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": c.bootstrap, "group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def positions_of(c: LocalCluster, group: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    consumer = Consumer({"bootstrap.servers": c.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(*each) for each in partitions], timeout=WAIT_S)
    consumer.close()
    return {(each.topic, each.partition): each.offset for each in found}


def has_group_offsets(store_url: str, wanted: dict[str, dict[tuple[str, int], int]]) -> bool:
    """Whether the bucket alone says how far these groups are."""
    store = open_store(store_url)
    counted: dict[str, int] = {}
    for slot in group_checkpoints.list_slots(store):
        found = group_checkpoints.read_group_checkpoint(store, slot)
        for group in found[0].groups if found is not None else ():
            counted[group.group_id] = sum(each.offset for each in group.offsets)
    return all(counted.get(group) == sum(offsets.values()) for group, offsets in wanted.items())


def restored(store_url: str, meta_url: str, *more: str) -> int:
    return main(["restore", "--from", store_url, "--meta", meta_url, *more])


TOPICS = {"plain": 2, "zstd": 1, "gzip": 3, "cut": 1, "tail": 1, "joined": 1}


class FirstLife:
    """A cluster that wrote, tiered, and lost everything but its bucket."""

    def __init__(self, folder: Path) -> None:
        self.store_url = f"file://{folder}/bucket"
        data = folder / "first"
        with cluster(store=self.store_url, data=data, settings=QUICK) as c:
            for topic, partitions in TOPICS.items():
                c.create_topic(topic, partitions=partitions, configs={"retention.ms": -1, "max.message.bytes": 77_777})
            c.create_topic("gone", partitions=1)
            c.create_topic("never-uploaded", partitions=2)
            c.create_topic("undecided", partitions=1)
            produce(c, "plain", 0, 300, partitions=2)
            produce(c, "zstd", 0, 200, partitions=1, **{"compression.type": "zstd"})
            produce(c, "gzip", 0, 300, partitions=3, **{"compression.type": "gzip", "enable.idempotence": True})
            produce(c, "cut", 0, 100, partitions=1)
            produce(c, "tail", 0, 50, partitions=1)
            produce(c, "gone", 0, 20, partitions=1)
            self._join(c)
            admin = AdminClient({"bootstrap.servers": c.bootstrap})
            for topic in (*TOPICS, "gone"):
                c.tier(topic, timeout_s=WAIT_S)
            self.earlier_heads = folder / "earlier"
            shutil.copytree(folder / "bucket" / PARTITION_CHECKPOINTS_PREFIX, self.earlier_heads)
            produce(c, "plain", 300, 40, partitions=2, **{"compression.type": "lz4"})
            c.tier("plain", keep_local=False, timeout_s=WAIT_S)
            admin.delete_records([TopicPartition("cut", 0, 30)])[TopicPartition("cut", 0)].result(WAIT_S)
            admin.delete_topics(["gone"])["gone"].result(WAIT_S)
            self.records = read_all(c, list(TOPICS))
            produce(c, "tail", 50, 9, partitions=1)  # Of these only the disk knows.
            self.on_disk_only = read_all(c, ["tail"])
            open_transaction(c, "undecided")
            self.positions = {
                "behind": {("plain", 0): 17, ("plain", 1): 170, ("gzip", 2): 1},
                "at-the-end": {("zstd", 0): 200, ("tail", 0): 57},
            }
            for group, offsets in self.positions.items():
                commit(c, group, offsets)
            assert main(["snapshot", "create", "audit", "gzip", "--owner", "alice", "--http", c.http_url]) == 0
            eventually(lambda: has_group_offsets(self.store_url, self.positions), "groups are in the bucket")
            eventually(self._is_written_down, "the bucket knows of the deletions")
            found = checkpoints.read_cluster_checkpoint(open_store(self.store_url))
            assert found is not None
            self.topic_ids = {each.name: each.topic_id for each in found.topics}
            c.broker.kill()
        self.first_data = data

    def _join(self, c: LocalCluster) -> None:
        """Twenty small segments of a topic, transactions that end and that are aborted among them; most become one."""
        admin = AdminClient({"bootstrap.servers": c.bootstrap})
        for name, value in (("segment.bytes", "2000"), ("segment.bytes", "1000000"), ("tiered.disk.only.max.ms", "1")):
            wanted = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, "joined", incremental_configs=[wanted])
            admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
            producer = Producer({"bootstrap.servers": c.bootstrap, "transactional.id": f"{name}={value}"})
            producer.init_transactions(WAIT_S)
            for number in range(20 if value == "2000" else 2):
                producer.begin_transaction()
                producer.produce("joined", b"%d " % number * 200, partition=0)
                producer.commit_transaction(WAIT_S) if number % 3 else producer.abort_transaction(WAIT_S)
                produce(c, "joined", 5 * number, 5, partitions=1)
        eventually(self._is_joined, "small objects are one")

    def _is_joined(self) -> bool:
        store = open_store(self.store_url)
        cluster_checkpoint = checkpoints.read_cluster_checkpoint(store)
        assert cluster_checkpoint is not None
        topic_id = next(topic.topic_id for topic in cluster_checkpoint.topics if topic.name == "joined")
        head = checkpoints.read_partition_checkpoint(store, topic_id, 0)
        return head is not None and any(segment.joined_count for segment in head.checkpoint.segments)

    def _is_written_down(self) -> bool:
        store = open_store(self.store_url)
        found = checkpoints.read_cluster_checkpoint(store)
        names = {each.name: each.topic_id for each in found.topics} if found is not None else {}
        if names.keys() != {*TOPICS, "never-uploaded", "undecided"}:
            return False
        if found is None or [each.name for each in found.pins] != ["audit"]:
            return False
        head = checkpoints.read_partition_checkpoint(store, names["cut"], 0)
        return head is not None and head.checkpoint.log_start_offset == 30


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> FirstLife:
    return FirstLife(tmp_path_factory.mktemp("first-life"))


@pytest.fixture
def bucket(lost: FirstLife, tmp_path: Path) -> str:
    """A copy of the bucket, for a restore changes it."""
    shutil.copytree(Path(lost.store_url.removeprefix("file://")), tmp_path / "bucket")
    for sign in (tmp_path / "bucket/checkpoints/alive").rglob("1"):
        os.utime(sign, (0, 0))  # The cluster was killed long ago.
    return f"file://{tmp_path}/bucket"


def test_a_restored_cluster_reads_and_goes_on_as_if_nothing_was(
    lost: FirstLife, bucket: str, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    assert restored(bucket, database_url, "--apply") == 0
    assert "is restored" in capsys.readouterr().out
    with (
        caplog.at_level(logging.INFO, "tiered"),
        cluster(store=bucket, sql=database_url, data=tmp_path / "second", settings=QUICK) as c,
    ):
        begun = [record for record in caplog.records if "begins anew where the store ends" in record.getMessage()]
        assert len(begun) == sum(TOPICS.values())
        assert {record.levelname for record in begun} == {"INFO"}, "the restore has planned it"
        assert read_all(c, list(TOPICS)) == lost.records
        assert positions_of(c, "behind", list(lost.positions["behind"])) == lost.positions["behind"]
        assert positions_of(c, "at-the-end", [("zstd", 0), ("tail", 0)]) == {("zstd", 0): 200, ("tail", 0): 50}
        admin = AdminClient({"bootstrap.servers": c.bootstrap})
        assert admin.list_topics(timeout=WAIT_S).topics.keys() == {
            *TOPICS,
            "never-uploaded",
            "undecided",
            "__consumer_offsets",
        }

        capsys.readouterr()
        assert main(["snapshot", "list", "--http", c.http_url, "--json"]) == 0
        (snapshot,) = json.loads(capsys.readouterr().out)
        assert (snapshot["name"], snapshot["owner"], snapshot["topic"]) == ("audit", "alice", "gzip")
        assert [each["end_offset"] for each in snapshot["partitions"]] == [100, 100, 100]
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            admin.delete_records([TopicPartition("gzip", 0, 20)])[TopicPartition("gzip", 0)].result(WAIT_S)

        produce(c, "tail", 1_000, 5, partitions=1, **{"enable.idempotence": True})
        c.tier("tail", keep_local=False, timeout_s=WAIT_S)
        after = read_all(c, ["tail"])["tail", 0]
        assert [each[0] for each in after] == list(range(55))
        assert after[:50] == lost.records["tail", 0]
    assert main(["verify", bucket]) == 0
    found = checkpoints.read_cluster_checkpoint(open_store(bucket))
    assert found is not None
    assert {each.name: each.topic_id for each in found.topics} == lost.topic_ids
    assert {each.name for each in found.topics if each.configs.get("max.message.bytes") == "77777"} == set(TOPICS)


def test_with_the_disk_nothing_is_lost_that_was_not_uploaded(
    lost: FirstLife, bucket: str, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "kept"
    shutil.copytree(lost.first_data, data)
    assert main(["disk-report", str(data)]) == 0
    report = tmp_path / "broker-1.json"
    report.write_text(capsys.readouterr().out)
    assert restored(bucket, database_url, "--disk", str(report), "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    tail = next(topic for topic in plan["topics"] if topic["topic"] == "tail")["partitions"][0]
    assert (tail["cold_end_offset"], tail["end_offset"], tail["from_disk_of"]) == (50, 59, 1)
    assert plan["moved_offsets"] == []
    assert len(plan["unended_transactions"]) == 1
    assert restored(bucket, database_url, "--disk", str(data), "--apply") == 0
    assert "with the data folders that were given" in capsys.readouterr().out
    with (
        pytest.raises(InvalidConfig, match="is not that disk"),
        cluster(store=bucket, sql=database_url, data=tmp_path / "another", settings=QUICK),
    ):
        pass
    for _ in range(2):
        with cluster(store=bucket, sql=database_url, data=data, settings=QUICK) as c:
            eventually(partial(is_decided, c, "undecided"), "what was left open is aborted")
            after = read_all(c, list(TOPICS))
            assert after["tail", 0][:59] == lost.on_disk_only["tail", 0]
            assert {where: records for where, records in after.items() if where != ("tail", 0)} == {
                where: records for where, records in lost.records.items() if where != ("tail", 0)
            }
            assert positions_of(c, "at-the-end", [("zstd", 0), ("tail", 0)]) == lost.positions["at-the-end"]
            produce(c, "tail", 1_000, 5, partitions=1, **{"enable.idempotence": True})
            assert read_all(c, ["tail"])["tail", 0][:59] == lost.on_disk_only["tail", 0]
            c.tier("tail", timeout_s=WAIT_S)
    assert main(["verify", bucket]) == 0


def test_uploads_come_back_that_were_committed_after_the_last_checkpoint(
    lost: FirstLife, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One topic has its checkpoints of an earlier moment, two have none, one of which has objects that were joined."""
    meta_url = f"sqlite:///{tmp_path}/meta.db"
    heads = tmp_path / "bucket" / PARTITION_CHECKPOINTS_PREFIX
    earlier, missing = str(lost.topic_ids["plain"]), [str(lost.topic_ids[name]) for name in ("gzip", "joined")]
    shutil.copytree(lost.earlier_heads / earlier, heads / earlier, dirs_exist_ok=True)
    for topic_id in missing:
        shutil.rmtree(heads / topic_id)
    assert restored(bucket, meta_url, "--json") == 0
    topics = {topic["topic"]: topic["partitions"] for topic in json.loads(capsys.readouterr().out)["topics"]}
    assert [partition["taken_back"] > 0 for name in ("plain", "gzip", "joined") for partition in topics[name]] == [
        True
    ] * 6
    assert [partition["taken_back"] for partition in topics["zstd"]] == [0]
    assert restored(bucket, meta_url) == 0
    assert "uploads that no checkpoint names, in 6 partitions" in capsys.readouterr().out
    # The disk has the records from the uploads' end on alone.
    assert restored(bucket, meta_url, "--disk", str(lost.first_data)) == 0
    assert restored(bucket, meta_url, "--apply") == 0
    assert main(["verify", bucket]) == 0
    with cluster(store=bucket, sql=meta_url, data=tmp_path / "second", settings=QUICK) as c:
        assert read_all(c, list(TOPICS)) == lost.records
        produce(c, "plain", 1_000, 10, partitions=2)
        c.tier("plain", keep_local=False, timeout_s=WAIT_S)
        assert len(read_all(c, ["plain"])["plain", 0]) == len(lost.records["plain", 0]) + 5
    assert main(["verify", bucket]) == 0


def test_the_plan_names_what_is_lost_and_is_the_same_each_time(
    lost: FirstLife, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta_url = f"sqlite:///{tmp_path}/meta.db"
    outputs = []
    for _ in range(2):
        assert restored(bucket, meta_url, "--plan", "--json") == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert not (tmp_path / "meta.db").exists()
    plan = json.loads(outputs[0])
    assert plan["applied"] is False
    assert {each["topic"]: each["topic_id"] for each in plan["topics"]} == {
        name: str(topic_id) for name, topic_id in lost.topic_ids.items()
    }
    tail = next(each for each in plan["topics"] if each["topic"] == "tail")["partitions"][0]
    assert (tail["end_offset"], tail["lost_before"]) == (50, 57)
    age_ms = time.time() * 1000 - tail["latest_upload_ms"]
    assert 0 < age_ms < 3_600_000
    assert [
        (each["group_id"], each["committed_offset"], each["restored_offset"]) for each in plan["moved_offsets"]
    ] == [("at-the-end", 57, 50)]
    assert restored(bucket, meta_url) == 0
    words = capsys.readouterr().out
    (row,) = [line for line in words.splitlines() if line.startswith("tail-0 ")]
    assert in_utc(tail["latest_upload_ms"]) in row
    assert "at-the-end: tail-0 from 57 to 50" in words
    assert "50..56" in words
    (row,) = [line for line in words.splitlines() if line.startswith("never-uploaded-0 ")]
    assert row.endswith("not known")


def test_a_restore_that_was_interrupted_is_done_again(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    meta_url = f"sqlite:///{tmp_path}/meta.db"
    with monkeypatch.context() as context:
        # As kill -9 in the middle of the one transaction: the bucket is taken over, the database is still empty.
        context.setattr("tiered.meta.restore.ROWS_AT_ONCE", 1)
        context.setattr("tiered.meta.restore.text_of", lambda _text: (_ for _ in ()).throw(KeyboardInterrupt))
        assert restored(bucket, meta_url, "--apply") == 130
    assert restored(bucket, meta_url, "--apply") == 0
    assert restored(bucket, meta_url, "--apply") == 0
    assert "already" in capsys.readouterr().out
    with cluster(store=bucket, sql=meta_url, data=tmp_path / "second", settings=QUICK) as c:
        assert positions_of(c, "behind", [("plain", 0)]) == {("plain", 0): 17}
        assert restored(bucket, meta_url, "--apply") == 1
        assert "brokers serve it" in capsys.readouterr().err


def test_only_an_empty_database_is_restored_into(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with cluster(data=tmp_path / "other") as c:
        other = c.sql_url
    before = checkpoints.read_cluster_checkpoint(open_store(bucket))
    assert restored(bucket, other, "--apply") == 1
    assert "give --meta an empty one" in capsys.readouterr().err
    assert restored(bucket, other, "--plan") == 1
    assert "only an empty one" in capsys.readouterr().out
    assert checkpoints.read_cluster_checkpoint(open_store(bucket)) == before


def test_the_old_cluster_can_write_no_checkpoint_and_delete_no_object_any_more(
    lost: FirstLife, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta_url = f"sqlite:///{tmp_path}/meta.db"
    zombie = tmp_path / "zombie"
    shutil.copytree(lost.first_data, zombie)
    # Its bucket is a copy for this test alone, so it is moved there as an operator would.
    (catalogue,) = zombie.rglob("meta.db")
    with closing(sqlite3.connect(catalogue)) as conn, conn:
        conn.execute("UPDATE cluster SET store = ?", (bucket,))
    store = open_store(bucket)
    topic_id = lost.topic_ids["plain"]
    with cluster(store=bucket, data=zombie, settings={**QUICK, "tiered.purge.grace.ms": 0}) as c:
        eventually(lambda: c.health()["stale_checkpoints"] == 0, "the bucket is as the old cluster is")
        eventually(lambda: live_brokers(store, c.health()["cluster_id"]) == (1,), "the old cluster is known to live")
        assert restored(bucket, meta_url, "--apply") == 1
        assert "nothing was changed: broker 1 of the cluster wrote to the store within" in capsys.readouterr().err
        assert restored(bucket, meta_url, "--json") == 1, "a plan that would be refused"
        assert json.loads(capsys.readouterr().out)["live_brokers"] == [1]
        # Refused as long as the old cluster still writes the checkpoints of its groups between plan and change.
        eventually(
            lambda: restored(bucket, meta_url, "--apply", "--take-from-live-brokers") == 0, "the store is taken over"
        )
        before = checkpoints.read_partition(store, topic_id, 0)
        assert before is not None
        admin = AdminClient({"bootstrap.servers": c.bootstrap})
        admin.delete_records([TopicPartition("plain", 0, 160)])[TopicPartition("plain", 0)].result(WAIT_S)
        admin.delete_topics(["zstd"])["zstd"].result(WAIT_S)
        commit(c, "behind", {("plain", 0): 99})
        eventually(lambda: c.health()["stale_checkpoints"] > 0, "the old cluster cannot write a checkpoint")
        time.sleep(1)  # Several rounds of its sweeper.
    assert checkpoints.read_partition(store, topic_id, 0) == before
    for each in before.segments:
        assert store.head(each.object_key) is not None
    with cluster(store=bucket, sql=meta_url, data=tmp_path / "second", settings=QUICK) as c:
        assert read_all(c, list(TOPICS)) == lost.records
        assert positions_of(c, "behind", [("plain", 0)]) == {("plain", 0): 17}


def test_numbers_begin_a_life_that_the_old_cluster_never_had(bucket: str, tmp_path: Path) -> None:
    meta_url = f"sqlite:///{tmp_path}/meta.db"
    former = checkpoints.read_cluster_checkpoint(open_store(bucket))
    assert former is not None
    assert restored(bucket, meta_url, "--apply") == 0
    database = Database.open(meta_url)
    row = database.run_sync(cluster_row.load)
    assert row.cluster_id != former.cluster_id
    assert row.change_number > former.version + (1 << 20)
    assert database.run_sync(allocate_block).start >= 1 << 32
    database.close_sync()
    claimed = checkpoints.read_cluster_checkpoint(open_store(bucket))
    assert claimed is not None
    assert (claimed.cluster_id, claimed.previous_cluster_ids) == (row.cluster_id, (former.cluster_id,))
