"""What `tiered consume` shows of records that others sent, where it begins, and how it ends."""

import json
import signal
import subprocess

import pytest
from confluent_kafka import Producer

from tests.clients.command_lines import RUN_S, line_of, numbers, started, tiered
from tests.support.claimed_times import break_stored
from tests.support.command_line import Tiered

__all__ = ["numbers", "started", "tiered"]


def test_records_of_other_clients_are_shown_as_text_and_json(tiered: Tiered) -> None:
    producer = Producer({"bootstrap.servers": tiered.broker.bootstrap, "compression.type": "lz4", "log_level": 0})
    producer.produce("others", "grüße", "k", timestamp=1234, headers=[("h", b"\xff"), ("n", None)], partition=0)
    producer.produce("others", None, b"\x00\xff", timestamp=1235, partition=0)
    assert producer.flush(RUN_S) == 0
    assert tiered.out("consume", "others") == "grüße\n\n".encode()
    assert (
        tiered.out("consume", "others", "-k", r"\t", "--null", "∅")
        == "k\tgrüße\n".encode() + b"\x00\xff\t" + "∅\n".encode()
    )
    assert [json.loads(line) for line in tiered.out("consume", "others", "--format", "json").splitlines()] == [
        {
            "topic": "others", "partition": 0, "offset": 0, "timestamp_ms": 1234, "key": "k", "value": "grüße",
            "headers": [{"name": "h", "value_base64": "/w=="}, {"name": "n", "value": None}],
        },
        {
            "topic": "others", "partition": 0, "offset": 1, "timestamp_ms": 1235, "key_base64": "AP8=", "value": None,
            "headers": [],
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], range(100)),
        (["-o", "beginning", "-c", "3"], range(3)),
        (["-o", "97"], range(97, 100)),
        (["-o", "100"], []),
        (["-o", "-2"], [98, 99]),
        (["-o", "-1000", "-c", "1"], [0]),
        (["-o", "end", "-e"], []),
        (["-o", "@0", "-c", "1"], [0]),
        (["-o", "@2999-01-01"], []),
        (["--from-beginning", "-c", "1", "-p", "0", "-p", "0"], [0]),
        (["-o", "-5", "-f", "-c", "5"], range(95, 100)),
        (["-o", "10:13"], range(10, 13)),
        (["-o", ":2"], range(2)),
        (["-o", "97:1000"], range(97, 100)),
        (["-o", "@0:@-1h"], []),
        (["-o", "98:@2999-01-01"], [98, 99]),
        (["-o", "99:end"], [99]),
    ],
)
def test_it_begins_and_ends_where_it_is_told(
    tiered: Tiered, numbers: str, argv: list[str], expected: list[int]
) -> None:
    assert list(map(int, tiered.out("consume", numbers, *argv).split())) == list(expected)


@pytest.mark.parametrize(
    ("argv", "said", "code"),
    [
        (["-o", "101"], "partition 0 of numbers has no offset 101: it has 0 to 99", 1),
        (["-p", "1"], "numbers has no partition 1", 2),
    ],
)
def test_where_nothing_is_it_says_what_is_there(
    tiered: Tiered, numbers: str, argv: list[str], said: str, code: int
) -> None:
    assert said in tiered.failure("consume", numbers, *argv, code=code)


def test_a_range_shows_what_each_partition_has_of_it(tiered: Tiered) -> None:
    tiered.out("topics", "create", "clipped", "-p", "4")
    for partition, count in ((0, 10), (1, 5), (3, 10)):
        lines = b"".join(b"%d/%d\n" % (partition, number) for number in range(count))
        tiered.out("produce", "clipped", "-p", str(partition), lines=lines)
    tiered.out("topics", "delete-records", "clipped:3", "--before", "6", "--execute")
    shown = sorted(tiered.out("consume", "clipped", "-o", "3:8").decode().split())
    assert shown == ["0/3", "0/4", "0/5", "0/6", "0/7", "1/3", "1/4", "3/6", "3/7"]
    done = tiered.run("consume", "clipped", "-o", "10:20")
    assert done.stdout == b""
    assert b"no partition has a record in the range 10:20" in done.stderr
    assert "has no offset 10" in tiered.failure("consume", "clipped", "-o", "10"), "without an end it is a mistake"


def test_it_ends_before_the_first_record_since_a_time(tiered: Tiered) -> None:
    records = "".join(f'{{"value": "{each}", "timestamp_ms": {each}}}\n' for each in range(1000, 1005))
    tiered.out("produce", "timed", "-p", "0", "--format", "json", lines=records.encode())
    assert tiered.out("consume", "timed", "-o", "@1001:1003").split() == [b"1001", b"1002"]
    assert tiered.out("consume", "timed", "-o", ":@1002").split() == [b"1000", b"1001"]


def test_several_topics_and_a_pattern_are_read_at_once(tiered: Tiered) -> None:
    for topic in ("many-a", "many-b", "few-a"):
        tiered.out("topics", "create", topic, "-p", "2")
        for number in range(2):
            tiered.out("produce", topic, "-p", str(number), lines=b"x\n")
    template = ("--template", r"%t/%p\n")
    both = {b"many-a/0", b"many-a/1", b"few-a/0", b"few-a/1"}
    assert set(tiered.out("consume", "many-a", *template, "few-a", "many-a").split()) == both
    assert set(tiered.out("consume", "^many-", *template, "-p", "1").split()) == {b"many-a/1", b"many-b/1"}
    shown = set(tiered.out("consume", "^(many|few)-a$", *template, "-g", "of-several").split())
    assert shown == both
    assert tiered.out("consume", "^(many|few)-a$", "-g", "of-several") == b""


@pytest.mark.parametrize(
    ("topic", "said", "code"),
    [
        ("^nothing-", "no topic's name matches ^nothing-", 1),
        ("^(", "^( is no regular expression", 2),
        (r"%k\n", r"did you mean --template '%k\n'? -f follows the log here", 2),
    ],
)
def test_what_is_no_topic_is_told_apart(tiered: Tiered, topic: str, said: str, code: int) -> None:
    assert said in tiered.failure("consume", topic, code=code)


def test_following_shows_what_comes_and_ctrl_c_is_its_regular_end(
    tiered: Tiered, started: list[subprocess.Popen[bytes]]
) -> None:
    tiered.out("topics", "create", "followed", "-p", "3")
    tiered.out("produce", "followed", "-p", "1", lines=b"before\n")
    process = tiered.start("consume", "followed", "--follow")
    started.append(process)
    assert line_of(process.stdout) == b"before\n"
    for partition in range(3):
        tiered.out("produce", "followed", "-p", str(partition), lines=b"to %d\n" % partition)
        assert line_of(process.stdout) == b"to %d\n" % partition
    process.send_signal(signal.SIGINT)
    assert process.wait(RUN_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_a_reader_that_has_enough_is_no_failure(tiered: Tiered, started: list[subprocess.Popen[bytes]]) -> None:
    tiered.out("produce", "plenty", "-p", "0", lines=(b"x" * 999 + b"\n") * 2000)
    process = tiered.start("consume", "plenty")
    started.append(process)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1000)
    process.stdout.close()
    assert process.wait(RUN_S) == 0
    assert process.stderr.read() == b""


def test_a_batch_that_nobody_can_decode_ends_it_by_name_or_is_stepped_over(tiered: Tiered) -> None:
    tiered.out("topics", "create", "undecodable", "-p", "1")
    for value in (b"undecodable 0", b"undecodable 1", b"undecodable 2"):
        tiered.out("produce", "undecodable", lines=value + b"\n")
    (log_file,) = (
        file for file in (tiered.broker.data / "log").rglob("*.log") if b"undecodable 0" in file.read_bytes()
    )
    break_stored(log_file, 1)
    failed = tiered.run("consume", "undecodable", code=1)
    assert failed.stdout == b"undecodable 0\n"
    assert b"offsets 1 to 1 cannot be decoded" in failed.stderr
    assert b"--skip-bad-batches steps over them" in failed.stderr
    completed = tiered.run("consume", "undecodable", "--skip-bad-batches")
    assert completed.stdout == b"undecodable 0\nundecodable 2\n"
    assert b"offsets 1 to 1 cannot be decoded, and are stepped over" in completed.stderr
