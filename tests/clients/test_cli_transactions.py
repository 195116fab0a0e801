"""Transactions on the command line, against a broker where real producers have them open."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.command_line import Tiered
from tests.support.topics import create
from tests.support.transactional_producers import WAIT_S, begun, send
from tiered.cli.output import in_utc

NEVER_HANDED_OUT = 1 << 40


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    """A broker of its own that believes producers, as brokers before KIP-890 did."""
    data = tmp_path_factory.mktemp("transactions") / "data"
    process = BrokerProcess(data, settings={"transaction.partition.verification.enable": "false"}).start()
    yield Tiered(process)
    process.ensure_stopped()


def hang(tiered: Tiered, topic: str, producer_id: int = NEVER_HANDED_OUT, epoch: int = 3) -> None:
    """A batch of a transaction of which no coordinator knows."""
    with RawConnection(tiered.broker) as connection:
        data = batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
        assert connection.produce(topic, data, transactional_id="hung").error_code == 0


def until(look: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stable_offset(tiered: Tiered, topic: str) -> int:
    return int(tiered.broker.get(f"/api/v1/topics/{topic}")["partitions"][0]["last_stable_offset"])


def test_transactional_ids_are_listed_with_what_becomes_of_their_transactions(tiered: Tiered) -> None:
    topic = create(tiered.broker, "listed")
    done, left = (begun(tiered.broker.bootstrap, name, topic) for name in ("listed-done", "listed-open"))
    done.commit_transaction(WAIT_S)
    listed = {each["transactional_id"]: each for each in tiered.json("transactions", "list")}
    assert (listed["listed-open"]["state"], listed["listed-open"]["coordinator"]) == ("Ongoing", 1)
    assert listed["listed-done"]["producer_id"] != listed["listed-open"]["producer_id"]
    shown = [line.split() for line in tiered.out("transactions", "list", "--state", "ongoing").decode().splitlines()]
    assert shown[0] == ["TRANSACTIONAL-ID", "STATE", "PRODUCER", "COORDINATOR", "SINCE", "PARTITIONS"]
    (row,) = [line for line in shown if line[0] == "listed-open"]
    assert row[:4] == ["listed-open", "Ongoing", str(listed["listed-open"]["producer_id"]), "1"]
    (described,) = tiered.json("transactions", "describe", "listed-open")
    assert row[4:] == [in_utc(described["started_at_ms"]), "listed:0"]
    assert listed["listed-open"]["started_at_ms"] == described["started_at_ms"]
    assert listed["listed-open"]["partitions"] == [{"topic": "listed", "partition": 0}]
    assert "listed-done" not in [line[0] for line in shown]
    quiet = tiered.out("transactions", "list", "-q", "--state", "ongoing").decode().split()
    assert "listed-open" in quiet
    assert "listed-done" not in quiet
    until(lambda: "listed-done" in tiered.out("transactions", "list", "--state", "complete-commit").decode())
    (done_row,) = [row for row in tiered.json("transactions", "list") if row["transactional_id"] == "listed-done"]
    assert (done_row["started_at_ms"], done_row["partitions"]) == (None, [])
    assert tiered.out("transactions", "list", "--older-than", "1h").startswith(b"no such transactional id")
    until(lambda: [each["transactional_id"] for each in tiered.json("transactions", "list", "--older-than", "1s")])
    left.abort_transaction(WAIT_S)


def test_a_transaction_is_described_with_its_partitions_and_since_when(tiered: Tiered) -> None:
    topic = create(tiered.broker, "described", partitions=3)
    made = begun(tiered.broker.bootstrap, "described", topic, transaction_timeout_ms=90_000)
    send(made, topic, "more", partition=2)
    (found,) = tiered.json("transactions", "describe", "described")
    assert (found["state"], found["timeout_ms"], found["coordinator"]) == ("Ongoing", 90_000, 1)
    assert found["partitions"] == [{"topic": "described", "partition": each} for each in (0, 2)]
    assert abs(found["started_at_ms"] - time.time() * 1000) < 60_000
    shown = tiered.out("transactions", "describe", "described").decode()
    assert "described  Ongoing, open since 2" in shown
    assert "time-out 90 s" in shown
    assert "described  0,2" in shown
    made.commit_transaction(WAIT_S)
    until(lambda: "nothing is open" in tiered.out("transactions", "describe", "described").decode())
    assert "did you mean described" in tiered.failure("transactions", "describe", "describd")


def test_what_ends_a_read_of_committed_records_is_said(tiered: Tiered) -> None:
    topic = create(tiered.broker, "unsettled", partitions=3)
    tiered.out("produce", topic, "-p", "1", lines=b"settled\n")
    made = begun(tiered.broker.bootstrap, "slow-writer", topic)
    send(made, topic, "more", partition=2)
    committed = ("consume", topic, "--isolation", "read_committed")
    done = tiered.run(*committed)
    assert done.stdout == b"settled\n"
    (described,) = tiered.json("transactions", "describe", "slow-writer")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(
        "tiered consume: unsettled:0,2: read_committed ends at the open transaction of slow-writer "
        f"(producer {described['producer_id']} epoch {described['producer_epoch']}), open since 2"
    )
    assert "the open transaction of slow-writer" in tiered.run(*committed, "-g", "of-unsettled").stderr.decode()
    assert tiered.out("consume", topic, "-c", "3").count(b"\n") == 3, "uncommitted records are shown without a word"
    assert tiered.out(*committed, "-p", "1") == b"settled\n", "nothing is open there"
    assert tiered.out(*committed, "-o", ":0", "-p", "0") == b"", "it was to end before"
    made.commit_transaction(WAIT_S)
    until(lambda: tiered.out(*committed).count(b"\n") == 3)
    hang(tiered, topic)
    (line,) = tiered.run(*committed, "-p", "0").stderr.decode().splitlines()
    assert f"an open transaction of producer {NEVER_HANDED_OUT} epoch 3" in line
    assert "`tiered transactions find-hanging --topic unsettled` says whether it hangs" in line


def test_an_abort_ends_what_is_open_and_fences_the_producer(tiered: Tiered) -> None:
    topic = create(tiered.broker, "aborted")
    made = begun(tiered.broker.bootstrap, "aborted", topic)
    assert stable_offset(tiered, topic) == 0
    assert tiered.out("transactions", "abort", "aborted") == b"aborted aborted\n"
    assert stable_offset(tiered, topic) == 2, "a record and a marker"
    with pytest.raises(KafkaException):
        made.commit_transaction(WAIT_S)
    assert tiered.out("transactions", "abort", "aborted") == b"aborted needs no change\n"
    assert "TRANSACTIONAL_ID_NOT_FOUND" in tiered.failure("transactions", "abort", "aborted", "nobodys")


def test_what_no_coordinator_knows_of_is_found_and_ended_on_its_partition(tiered: Tiered) -> None:
    topic = create(tiered.broker, "hanging")
    hang(tiered, topic)
    (found,) = tiered.json("transactions", "find-hanging", "--topic", topic)
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 0, 0)
    assert (found["producer_id"], found["producer_epoch"], found["transactional_id"]) == (NEVER_HANDED_OUT, 3, None)
    assert found in tiered.json("transactions", "find-hanging", "--broker-id", "1")
    assert tiered.json("transactions", "find-hanging", "--broker-id", "2") == []
    command = f"tiered transactions abort --topic {topic} --partition 0 --start-offset 0"
    assert command in tiered.out("transactions", "find-hanging").decode()
    assert "begins at offset 1" in tiered.failure(*command.split()[1:-1], "1")
    assert stable_offset(tiered, topic) == 0
    tiered.out(*command.split()[1:])
    assert stable_offset(tiered, topic) == 2
    assert tiered.out("transactions", "find-hanging", "--topic", topic) == b"nothing hangs\n"


def test_what_a_coordinator_will_end_does_not_hang_and_is_not_ended_on_one_partition(tiered: Tiered) -> None:
    topic = create(tiered.broker, "going-on")
    made = begun(tiered.broker.bootstrap, "going-on", topic)
    assert tiered.json("transactions", "find-hanging", "--topic", topic) == []
    lines = tiered.out("transactions", "find-hanging", "--topic", topic).decode().splitlines()
    assert lines[0] == "nothing hangs"
    assert lines[2] == "1 other transaction open on a partition: the producer or the time-out ends it."
    assert lines[4].split()[:3] == ["going-on", "0", "0"]
    assert lines[4].split()[-1] == "going-on"
    where = ("--topic", topic, "--partition", "0", "--start-offset", "0")
    assert "`tiered transactions abort going-on`" in tiered.failure("transactions", "abort", *where)
    made.commit_transaction(WAIT_S)


def test_what_is_open_where_its_producers_transaction_is_not_hangs_there_alone(tiered: Tiered) -> None:
    here, elsewhere = create(tiered.broker, "in-it"), create(tiered.broker, "not-in-it")
    made = begun(tiered.broker.bootstrap, "half", here)
    (described,) = tiered.json("transactions", "describe", "half")
    hang(tiered, elsewhere, described["producer_id"], described["producer_epoch"])
    found = tiered.json("transactions", "find-hanging", "--topic", here, "--topic", elsewhere)
    assert [(each["topic"], each["transactional_id"]) for each in found] == [(elsewhere, None)]
    tiered.out("transactions", "abort", "--topic", elsewhere, "--partition", "0", "--start-offset", "0")
    assert stable_offset(tiered, elsewhere) == 2
    made.commit_transaction(WAIT_S)
    until(lambda: stable_offset(tiered, here) == 2)


def test_a_transaction_beyond_the_longest_time_out_hangs(tiered: Tiered) -> None:
    topic = create(tiered.broker, "too-long")
    made = begun(tiered.broker.bootstrap, "too-long", topic)
    asked = ("transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "1s")
    until(lambda: [each["transactional_id"] for each in tiered.json(*asked)] == ["too-long"])
    assert "tiered transactions abort too-long" in tiered.out(*asked).decode()
    made.abort_transaction(WAIT_S)


@pytest.mark.parametrize(
    "wrong",
    [(), ("id", "--topic", "t"), ("--topic", "t"), ("--topic", "t", "--partition", "0"), ("--start-offset", "0")],
)
def test_an_abort_names_ids_or_one_place(tiered: Tiered, wrong: tuple[str, ...]) -> None:
    assert "--start-offset" in tiered.failure("transactions", "abort", *wrong, code=2)
