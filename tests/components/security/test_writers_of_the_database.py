"""What somebody can do who writes to the database: the lines of docs/security.md that begin with "Can"."""

import json
import os
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.components.tiers import create, eventually, fill, read

Make = Callable[..., BrokerProcess]
NEXT = "(SELECT change_number FROM cluster)"
SMALL = {"segment_bytes": 4096, "tiered_purge_grace_ms": 86_400_000}


def write(broker: BrokerProcess, *statements: str) -> None:
    """As any program with SQL would, and with the number by which brokers notice a change."""
    change = "UPDATE cluster SET change_number = change_number + 1"
    with closing(sqlite3.connect(broker.data / "meta.db", timeout=30)) as database, database:
        for statement in (change, *statements):
            database.execute(statement)


def status_of_a_new_topic(broker: BrokerProcess, name: str) -> int:
    body = json.dumps({"name": name}).encode()
    request = urllib.request.Request(
        f"{broker.http}/api/v1/topics", data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def objects(broker: BrokerProcess) -> list[Path]:
    """The broker may delete folders meanwhile: `os.walk` passes over what has gone."""
    walk = os.walk(broker.data / "objects")
    return [Path(folder, name) for folder, _, names in walk for name in names if name.endswith(".seg")]


def test_whoever_writes_a_rule_there_has_its_right_at_once(make_broker: Make) -> None:
    broker = make_broker(settings={"tiered.authorizer": "acl", "super.users": "User:nobody"}).start()
    assert status_of_a_new_topic(broker, "orders") == 403
    write(
        broker,
        "INSERT INTO acl VALUES ('CLUSTER', 'kafka-cluster', 'LITERAL', 'User:ANONYMOUS', '*', 'ALL', 'ALLOW', 1)",
        f"UPDATE cluster SET security_change_number = {NEXT}",
    )
    eventually(lambda: status_of_a_new_topic(broker, "orders") == 201, "the rule counts", broker)


def test_whoever_retires_segments_there_has_their_objects_deleted_whatever_the_topics_grace(make_broker: Make) -> None:
    broker = make_broker(settings={"tiered.upload.interval.ms": 50, "tiered.sweep.interval.ms": 100}).start()
    for topic in ("orders", "others"):
        assert create(broker, topic, **SMALL) == 0
        fill(broker, topic, 5)
        broker.wait_cold(topic, end_offset=4)
    kept = [path for path in objects(broker) if "others" in str(path)]
    assert len(objects(broker)) > len(kept) > 0
    write(
        broker,
        f"UPDATE segment SET state = 'retired', retired_at_ms = 1, purge_after_ms = 1, change_number = {NEXT} "
        "WHERE state = 'committed' AND topic_id = (SELECT topic_id FROM topic WHERE name = 'orders')",
    )
    eventually(lambda: sorted(objects(broker)) == sorted(kept), "the objects are deleted", broker)
    assert len(read(broker, "others")) == 5
