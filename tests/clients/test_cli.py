"""The command line against a broker: what it sends others read, what others send it shows, and it ends well."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.command_lines import RUN_S, line_of, started, tiered
from tests.support.command_line import COMMAND, Tiered
from tiered.cli.output import in_utc

__all__ = ["started", "tiered"]


def read_with_confluent(broker: BrokerProcess, topic: str, partitions: int, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Any] = []
    deadline = time.monotonic() + RUN_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        found += [message for message in consumer.consume(count, 0.5) if message.error() is None]
    consumer.close()
    return found


# Produce


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_other_clients_read_the_lines_with_keys_headers_and_nulls(tiered: Tiered, codec: str) -> None:
    topic = f"lines-{codec}"
    sent = tiered.json(
        "produce", topic, "-p", "0", "-k", r"\t", "--null", "NULL", "-H", "a=1", "-H", "b=NULL", "-z", codec,
        lines=b"key\tvalue\nno key\n\t\nNULL\tx\ny\tNULL\n\xff\t\xfe\nlast",
    )  # fmt: skip
    done = {"partition": 0, "records": 7, "first_offset": 0, "last_offset": 6}
    assert sent == {"topic": topic, "records": 7, "partitions": [done]}
    found = read_with_confluent(tiered.broker, topic, 1, 7)
    assert [(each.key(), each.value()) for each in found] == [
        (b"key", b"value"), (None, b"no key"), (b"", b""), (None, b"x"), (b"y", None),
        (b"\xff", b"\xfe"), (None, b"last"),
    ]  # fmt: skip
    assert all(each.headers() == [("a", b"1"), ("b", None)] for each in found)


def test_keys_go_where_the_java_clients_partitioner_sends_them(tiered: Tiered) -> None:
    tiered.out("topics", "create", "keyed", "-p", "5")
    tiered.out("produce", "keyed", "-k", ":", lines=b"".join(b"key-%d:ours\n" % number for number in range(100)))
    producer = Producer({"bootstrap.servers": tiered.broker.bootstrap, "partitioner": "murmur2_random", "log_level": 0})
    for number in range(100):
        producer.produce("keyed", b"theirs", b"key-%d" % number)
    assert producer.flush(RUN_S) == 0
    where: dict[bytes, set[int]] = {}
    for message in read_with_confluent(tiered.broker, "keyed", 5, 200):
        where.setdefault(message.key(), set()).add(message.partition())
    assert len(where) == 100
    assert all(len(partitions) == 1 for partitions in where.values())


def test_lines_without_keys_are_spread_over_the_partitions(tiered: Tiered, tmp_path: Path) -> None:
    tiered.out("topics", "create", "spread", "-p", "4")
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(1000)))
    sent = tiered.json("produce", "spread", str(path), "--batch-records", "50")
    assert sent["records"] == 1000
    assert [each["records"] for each in sent["partitions"]] == [250] * 4
    assert sorted(map(int, tiered.out("consume", "spread").split())) == list(range(1000))


def test_a_missing_topic_is_created_by_produce_and_never_by_consume(tiered: Tiered) -> None:
    assert "there is no topic absent" in tiered.failure("consume", "absent")
    tiered.out("produce", "absent", lines=b"now\n")
    assert tiered.out("consume", "absent") == b"now\n"


def test_no_lines_are_no_records_and_no_failure(tiered: Tiered) -> None:
    assert tiered.json("produce", "nothing") == {"topic": "nothing", "records": 0, "partitions": []}


def test_an_acks_of_one_is_stored_too(tiered: Tiered) -> None:
    tiered.out("produce", "leader-only", "--acks", "1", lines=b"x\n")
    assert tiered.out("consume", "leader-only") == b"x\n"


def test_a_line_that_is_too_large_is_refused_with_advice(tiered: Tiered) -> None:
    said = tiered.failure("produce", "large", "-p", "0", lines=b"fits\n" + b"x" * 2_000_000 + b"\n")
    assert "MESSAGE_TOO_LARGE" in said
    assert "max.message.bytes" in said
    assert "(1 record sent before)" in said or "(0 records sent before)" in said


def test_a_line_that_is_typed_is_sent_before_the_next_one(
    tiered: Tiered, started: list[subprocess.Popen[bytes]]
) -> None:
    tiered.out("topics", "create", "typed", "-p", "1")
    process = tiered.start("produce", "typed")
    started.append(process)
    follower = tiered.start("consume", "typed", "--follow")
    started.append(follower)
    assert process.stdin is not None
    for line in (b"first\n", b"second\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert line_of(follower.stdout) == line
    process.stdin.close()
    assert process.wait(RUN_S) == 0


def test_an_interrupted_produce_says_so_with_its_exit_code_and_no_traceback(
    tiered: Tiered, started: list[subprocess.Popen[bytes]]
) -> None:
    tiered.out("topics", "create", "interrupted", "-p", "1")
    process = tiered.start("produce", "interrupted")
    started.append(process)
    assert process.stdin is not None
    process.stdin.write(b"sent\n")
    process.stdin.flush()
    deadline = time.monotonic() + RUN_S
    while tiered.out("consume", "interrupted") != b"sent\n":
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    assert process.wait(RUN_S) == 130
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_on_a_terminal_produce_says_what_it_did_and_what_it_waits_for(tiered: Tiered) -> None:
    ours, theirs = os.openpty()
    environ = {**os.environ, **tiered.environ}
    process = subprocess.Popen(
        [*COMMAND, "produce", "told", "-p", "0"], stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, env=environ
    )
    os.close(theirs)
    said = b""
    try:
        while b"Ctrl-D ends" not in said:
            said += os.read(ours, 4096)
        os.write(ours, b"one\ntwo\n\x04")
        while b"sent to" not in said or not said.endswith(b"\n"):
            said += os.read(ours, 4096)
        assert process.wait(RUN_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"topic told created with 1 partition" in said
    assert b"2 records sent to partition 0 of told, offsets 0 to 1" in said


# Topics


def test_a_topics_life(tiered: Tiered) -> None:
    assert tiered.out("topics", "create", "life", "-p", "2", "-c", "retention.ms=1000s") == b"life created\n"
    assert "life" in tiered.out("topics", "list", "--quiet").decode().split()
    (described,) = tiered.json("topics", "describe", "life")
    assert described["partition_count"] == 2
    assert described["configs"] == [{"name": "retention.ms", "value": "1000000", "source": "topic"}]
    assert described["partitions"][1] == {
        "partition": 1, "leader": 1, "leader_epoch": 0, "replicas": [1], "in_sync_replicas": [1],
        "out_of_sync_replicas": [], "log_start_offset": 0, "local_log_start_offset": 0, "cold_end_offset": None,
        "high_watermark": 0, "disk_only_since_ms": None,
    }  # fmt: skip
    before_ms = time.time_ns() // 1_000_000
    tiered.out("produce", "life", "-p", "1", lines=b"a\nb\n")
    altered = ("-p", "3", "-c", "segment.bytes=1MiB", "--delete-config", "retention.ms")
    assert tiered.out("topics", "alter", "life", *altered) == b"life altered\n"
    (described,) = tiered.json("topics", "describe", "life")
    assert [each["high_watermark"] for each in described["partitions"]] == [0, 2, 0]
    since_ms = described["partitions"][1]["disk_only_since_ms"]
    assert before_ms <= since_ms <= time.time_ns() // 1_000_000
    assert described["configs"] == [{"name": "segment.bytes", "value": "1048576", "source": "topic"}]
    (everything,) = tiered.json("topics", "describe", "life", "--all-configs")
    assert {"name": "cleanup.policy", "value": "delete", "source": "default"} in everything["configs"]
    (listed,) = [each for each in tiered.json("topics", "list") if each["topic"] == "life"]
    assert listed["cleanup_policy"] == "delete"
    assert listed["local_bytes"] > 0
    rows = [line.split() for line in tiered.out("topics", "list").decode().splitlines()]
    assert rows[0] == ["TOPIC", "PARTITIONS", "REPLICAS", "LOCAL", "POLICY", "ID"]
    assert ["life", "3", "1", str(listed["local_bytes"]), "B", "delete", listed["topic_id"]] in rows
    table = tiered.out("topics", "describe", "life").decode().splitlines()
    assert table[0].startswith(f"life  id {described['topic_id']}  3 partitions, 1 replica")
    assert table[3].split() == ["1", "1", "0", "1", "1", "-", "0", "0", "-", "2"]
    assert f"the oldest record that only disks have was written at {in_utc(since_ms)}" in table
    nobody = tiered.out("topics", "describe", "life", "--http", "http://127.0.0.1:1").decode().splitlines()
    assert [line for line in table if line not in nobody] == [line for line in table if "only disks have" in line]
    assert any(line.startswith("what only disks have is not known: cannot reach http://127.0.0.1:1") for line in nobody)
    assert tiered.out("topics", "list", "--under-replicated").startswith(b"no under-replicated topic; every replica")
    assert tiered.out("topics", "list", "--under-min-isr").startswith(b"no topic under min.insync.replicas; enough")
    assert tiered.out("topics", "delete", "life") == b"life deleted\n"
    assert "life" not in tiered.out("topics", "list", "--quiet").decode().split()


def test_each_of_several_topics_is_tried_and_any_failure_shows_in_the_exit_code(tiered: Tiered) -> None:
    tiered.out("topics", "create", "twin")
    done = tiered.run("topics", "create", "twin", "sibling", "--json", code=1)
    assert [(each["topic"], each["changed"]) for each in json.loads(done.stdout)] == [
        ("twin", False),
        ("sibling", True),
    ]
    assert b"TOPIC_ALREADY_EXISTS" in done.stderr
    assert tiered.out("topics", "create", "twin", "--if-not-exists") == b"twin needs no change\n"
    assert "UNKNOWN_TOPIC_OR_PARTITION" in tiered.failure("topics", "delete", "twin", "sibling", "cousin")
    assert tiered.out("topics", "delete", "cousin", "--if-exists") == b"cousin needs no change\n"


def test_more_replicas_in_sync_than_there_are_is_warned_of_and_taken(tiered: Tiered) -> None:
    warning = "min.insync.replicas is 2, and each partition has 1 replica: it counts as 1, and acks=all is refused as "
    done = tiered.run("topics", "create", "thin", "-c", "min.insync.replicas=2")
    assert done.stdout == b"thin created\n"
    assert f"tiered topics create: warning: thin: {warning}" in done.stderr.decode()
    (described,) = tiered.json("topics", "describe", "thin")
    (found,) = described["warnings"]
    assert found.startswith(warning)
    assert f"\nwarning: {warning}" in tiered.out("topics", "describe", "thin").decode()
    done = tiered.run("topics", "alter", "thin", "-c", "min.insync.replicas=3")
    assert b"tiered topics alter: warning: thin: min.insync.replicas is 3" in done.stderr
    assert tiered.out("produce", "thin", lines=b"a\n") == b"", "it is only a warning"
    assert tiered.out("topics", "alter", "thin", "-c", "min.insync.replicas=1") == b"thin altered\n"
    (described,) = tiered.json("topics", "describe", "thin")
    assert described["warnings"] == []


def test_what_is_only_checked_is_not_made(tiered: Tiered) -> None:
    assert tiered.out("topics", "create", "checked", "--validate-only") == b"checked could be created\n"
    assert "there is no topic checked" in tiered.failure("topics", "describe", "checked")


def test_the_brokers_reason_is_shown(tiered: Tiered) -> None:
    assert "no.such.config" in tiered.failure("topics", "create", "refused", "-c", "no.such.config=1")
    assert "INVALID_TOPIC_EXCEPTION" in tiered.failure("produce", "not a name")


# Brokers that are not there


@pytest.mark.parametrize("argv", [["topics", "list"], ["produce", "t"], ["consume", "t"]])
def test_a_broker_that_is_not_there_is_said_at_once_with_what_to_do(tiered: Tiered, argv: list[str]) -> None:
    said = tiered.failure(*argv, "--bootstrap", "127.0.0.1:1")
    assert "cannot reach 127.0.0.1:1: is the broker running? Start it with `tiered serve`" in said


def test_a_name_that_does_not_resolve_is_said_and_another_address_is_taken(tiered: Tiered) -> None:
    said = tiered.failure("topics", "list", "--bootstrap", "nobody.invalid:9092")
    assert "cannot reach nobody.invalid:9092: the name nobody.invalid does not resolve" in said
    tiered.out("topics", "list", "--bootstrap", f"nobody.invalid:9092,{tiered.broker.bootstrap}")


def test_an_address_of_something_else_is_recognised(tiered: Tiered) -> None:
    said = tiered.failure("topics", "list", "--bootstrap", f"127.0.0.1:{tiered.broker.http_port}")
    assert "is no Kafka address: HTTP is spoken at" in said


def test_lines_arrive_once_and_in_order_although_the_broker_is_killed(
    make_broker: Callable[..., BrokerProcess], started: list[subprocess.Popen[bytes]]
) -> None:
    broker = make_broker().start()
    commands = Tiered(broker)
    commands.out("topics", "create", "survivor", "-p", "1")
    process = commands.start("produce", "survivor", "--batch-records", "10")
    follower = commands.start("consume", "survivor", "--follow")
    started += [process, follower]
    assert process.stdin is not None
    for number in range(3000):
        process.stdin.write(b"%d\n" % number)
        if number == 1500:
            process.stdin.flush()
            assert line_of(follower.stdout) == b"0\n"
            broker.kill()
            broker.start()
    process.stdin.close()
    assert process.wait(RUN_S) == 0
    found = [line_of(follower.stdout) for _ in range(1, 3000)]
    assert found == [b"%d\n" % number for number in range(1, 3000)]
    assert commands.out("consume", "survivor").split() == [b"%d" % number for number in range(3000)]


# Segments


def test_segments_tell_where_records_are_and_cold_ones_read_the_same(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker(
        settings={
            "tiered.upload.interval.ms": 100,
            "log.retention.check.interval.ms": 100,
            "log.segment.delete.delay.ms": 0,
        }
    ).start()
    commands = Tiered(broker)
    commands.out("topics", "create", "cooling", "-p", "1", "-c", "segment.bytes=1048576", "-c", "local.retention.ms=1")
    lines = b"".join(b"%d %s\n" % (number, b"x" * 990) for number in range(3000))
    commands.out("produce", "cooling", "--batch-records", "100", lines=lines)
    assert commands.out("consume", "cooling") == lines
    broker.wait_cold("cooling", end_offset=2000, only=True)
    (partition,) = commands.json("segments", "cooling")["partitions"]
    segments = partition["segments"]
    assert segments[0]["tier"] == "cold"
    assert segments[0]["object_key"].startswith("segments/")
    assert segments[-1]["tier"] == "hot"
    assert [each["end_offset"] for each in segments[:-1]] == [each["base_offset"] for each in segments[1:]]
    table = commands.out("segments", "cooling", "-p", "0").decode().splitlines()
    assert table[1].split()[2] == "cold"
    assert "cold " in table[-1]
    (cost,) = commands.json("cost")["topics"]
    assert (cost["topic"], cost["cold_bytes"] >= segments[0]["size_bytes"]) == ("cooling", True)
    assert commands.out("cost").decode().splitlines()[1].startswith("cooling ")
    assert commands.out("consume", "cooling") == lines


def test_an_address_that_hangs_does_not_keep_a_command_from_the_others(tiered: Tiered) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hung:  # It accepts, and nobody reads.
        both = f"127.0.0.1:{hung.getsockname()[1]},{tiered.environ['TIERED_BOOTSTRAP']}"
        started_s = time.monotonic()
        tiered.out("topics", "list", "--bootstrap", both)
        assert time.monotonic() - started_s < 8
