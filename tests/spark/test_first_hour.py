"""The README followed with the defaults: after an hour everything is in the bucket, and the bucket alone is enough.

The hour is skipped (`tests.support.passing_time`): the broker is whole, and waits for nothing.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from tests.support.passing_time import PassingBroker, passing_broker
from tiered.cli import main
from tiered.testing import cluster

pytestmark = pytest.mark.spark

README = (Path(__file__).parents[2] / "README.md").read_text()
RECORDS = {f"{number}".encode(): f"order {number}".encode() for number in range(1, 10_001)}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.split("## Five minutes")[1], re.DOTALL)


def steps(*numbers: int) -> str:
    """The commands of the README's steps, but for what makes the demonstration short, does not end, or is not ours."""
    tour = re.split(r"^# \d\..*\n", blocks("sh")[0], flags=re.MULTILINE)
    commands = "".join(tour[number] for number in numbers)
    commands = re.sub(r" --config \S+", "", commands)
    return re.sub(r"^(sleep|sqlite3|curl -sN) .*\n", "", commands, flags=re.MULTILINE)


def follow(broker: PassingBroker, commands: str, folder: Path) -> str:
    """What a shell prints. Raises where a command fails."""
    environ = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TIERED_BOOTSTRAP": broker.bootstrap,
        "TIERED_HTTP_URL": broker.http,
    }
    # A pipe fails where one of its commands does. Whoever reads the first lines alone reads to the end here, for curl
    # fails where it can write no more.
    commands = re.sub(r"\| (head\b.*)", r"| { \1; cat > /dev/null; }", commands)
    script = "set -eu -o pipefail\n" + commands.replace("127.0.0.1:8080", broker.http)
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout


def test_all_that_the_readme_writes_is_in_the_bucket_an_hour_later_and_comes_back_from_it_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    words = ("--data", f"{tmp_path}/data", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with passing_broker(*words) as broker:
        follow(broker, steps(1, 2), tmp_path)
        broker.let_pass(minutes=55)
        assert "only disks have" in follow(broker, "tiered topics describe orders", tmp_path)
        broker.let_pass(minutes=10)
        assert "only disks have" not in follow(broker, "tiered topics describe orders", tmp_path)
        assert " both " in follow(broker, steps(3, 4, 5), tmp_path)
        assert_nothing_waits(broker)
    store = f"file://{tmp_path}/data/objects"

    names: dict[str, Any] = {}
    exec(blocks("python")[-1].replace("file:///absolute/path/to/data/objects", store), names)
    rows = names["past"].select("key", "value").collect()
    assert [(bytes(key), bytes(value)) for key, value in sorted(rows)] == sorted(RECORDS.items())

    meta = f"sqlite:///{tmp_path}/restored.db"
    assert main(["restore", "--from", store, "--meta", meta, "--apply"]) == 0
    with cluster(store=store, sql=meta, data=tmp_path / "restored") as c:
        consumer = Consumer({"bootstrap.servers": c.bootstrap, "group.id": "again"})
        consumer.assign([TopicPartition("orders", partition, 0) for partition in range(3)])
        messages = consumer.consume(len(RECORDS), timeout=30)
        consumer.close()
    assert {message.key(): message.value() for message in messages} == RECORDS


def assert_nothing_waits(broker: PassingBroker) -> None:
    with urlopen(f"http://{broker.http}/readyz", timeout=10) as answer:
        health = json.load(answer)
    waits = ("upload_backlog_bytes", "upload_backlog_age_ms", "disk_only_age_ms", "held_back_ms", "stale_checkpoints")
    assert {name: health[name] for name in waits} == dict.fromkeys(waits, 0)
