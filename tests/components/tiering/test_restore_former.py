"""A restore that takes what only SQL has from an older copy of the database, which is left as it is."""

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tiered.cli import main
from tiered.cold.bucket import group_checkpoints
from tiered.cold.opening import open_store
from tiered.formats.object_key import group_checkpoint_key
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.testing import LocalCluster, cluster

pytestmark = pytest.mark.slow

WAIT_S = 60.0
PASSWORD = "the secret of ann"
SLOTS = 4
SETTINGS = {
    "tiered.authorizer": "acl",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "tiered.group.checkpoint.interval.ms": "50",
    "offsets.topic.num.partitions": str(SLOTS),
}
NEWER_IN_BUCKET, NEWER_IN_DATABASE = "group-a", "group-b"


def life(folder: Path, bucket: str, **options: object) -> LocalCluster:
    listeners = {"GUARDED": "SASL_PLAINTEXT"}
    return cluster(store=bucket, data=folder, settings=SETTINGS, listeners=listeners, **options)  # type: ignore[arg-type]


def eventually(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def consumer(bootstrap: str, group: str, **login: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **login})


def commit(c: LocalCluster, group: str, offset: int) -> None:
    one = consumer(c.bootstrap, group)
    one.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    one.close()


def committed(c: LocalCluster, group: str) -> int:
    one = consumer(c.bootstrap, group)
    (offset,) = one.committed([TopicPartition("orders", 0)], timeout=WAIT_S)
    one.close()
    return int(offset.offset)


def in_bucket(bucket: str, group: str) -> int | None:
    """The group's offset as the bucket's checkpoint has it."""
    stored = group_checkpoints.read_group_checkpoint(open_store(bucket), coordinator_slot(group, SLOTS))
    groups = () if stored is None else stored[0].groups
    return next((its.offsets[0].offset for its in groups if its.group_id == group), None)


def first_as_ann(c: LocalCluster) -> bytes:
    """The first record, as the user reads it who may do nothing but that."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    ann = consumer(c.bootstrap_at("GUARDED"), "ann", **login, **{"sasl.username": "ann", "sasl.password": PASSWORD})
    ann.assign([TopicPartition("orders", 0, 0)])
    message = ann.poll(WAIT_S)
    ann.close()
    assert message is not None, "no record"
    assert message.error() is None, message.error()
    value = message.value()
    assert isinstance(value, bytes)
    return value


def quotas(c: LocalCluster, capfd: pytest.CaptureFixture[str]) -> object:
    capfd.readouterr()
    assert main(["quotas", "list", "--bootstrap", c.bootstrap, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def grant(c: LocalCluster, folder: Path) -> None:
    """The user, what it may read, and how much."""
    password = folder / "password"
    password.write_text(PASSWORD)
    at = ("--bootstrap", c.bootstrap)
    assert main(["users", "create", "ann", "--password-file", str(password), *at]) == 0
    rules = ("--consumer", "--topic", "orders", "--group", "ann", "--principal", "User:ann")
    assert main(["acls", "add", *rules, *at]) == 0
    assert main(["quotas", "set", "--user", "ann", "producer_byte_rate=1048576", *at]) == 0


def test_users_quotas_rules_and_the_newer_offsets_come_back_from_the_former_database(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert coordinator_slot(NEWER_IN_BUCKET, SLOTS) != coordinator_slot(NEWER_IN_DATABASE, SLOTS)
    bucket, former = f"file://{tmp_path}/bucket", tmp_path / "former.db"
    lagging = tmp_path / "bucket" / group_checkpoint_key(coordinator_slot(NEWER_IN_DATABASE, SLOTS))
    with life(tmp_path / "first", bucket, topics={"orders": 1}) as c:
        producer = Producer({"bootstrap.servers": c.bootstrap})
        for number in range(10):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(WAIT_S) == 0
        c.tier("orders", timeout_s=WAIT_S)
        grant(c, tmp_path)
        assert first_as_ann(c) == b"0"
        limits = quotas(c, capfd)
        for group in (NEWER_IN_BUCKET, NEWER_IN_DATABASE):
            commit(c, group, 2)
            eventually(lambda group=group: in_bucket(bucket, group) == 2, group)  # type: ignore[misc]
        behind = lagging.read_bytes()
        commit(c, NEWER_IN_DATABASE, 5)
        with (
            closing(sqlite3.connect(c.sql_url.removeprefix("sqlite:///"))) as now,
            closing(sqlite3.connect(former)) as copy,
        ):
            now.backup(copy)
        commit(c, NEWER_IN_BUCKET, 7)
        eventually(lambda: in_bucket(bucket, NEWER_IN_BUCKET) == 7, "the later commit is in the bucket")
        c.broker.kill()
    lagging.write_bytes(behind)  # As if the slot's last minute had not been uploaded.
    for sign in (tmp_path / "bucket/checkpoints/alive").rglob("1"):
        os.utime(sign, (0, 0))  # The cluster was killed long ago.
    before = former.read_bytes()
    meta = f"sqlite:///{tmp_path}/second.db"
    restore = ["restore", "--from", bucket, "--meta", meta, "--former-meta", f"sqlite:///{former}"]
    capfd.readouterr()
    assert main(restore) == 0
    words = capfd.readouterr().out
    assert "1 user and 1 quota from the former database" in words
    assert "access rules come back, from the former database (3):\n  ALLOW User:ann from *: READ on GROUP ann" in words
    assert "users come back with their passwords, from the former database (1):\n  ann\n" in words
    assert main([*restore, "--json"]) == 0
    plan = json.loads(capfd.readouterr().out)
    assert (plan["users"], plan["quotas"], plan["left_out_access_rules"]) == (["ann"], 1, [])
    assert main([*restore, "--apply"]) == 0
    assert (former.read_bytes(), [*tmp_path.glob("former.db-*")]) == (before, [])
    with life(tmp_path / "second", bucket, sql=meta) as c:
        assert first_as_ann(c) == b"0"
        assert quotas(c, capfd) == limits
        assert {group: committed(c, group) for group in (NEWER_IN_BUCKET, NEWER_IN_DATABASE)} == {
            NEWER_IN_BUCKET: 7,
            NEWER_IN_DATABASE: 5,
        }
