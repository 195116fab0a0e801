"""Option `transactionalIdPrefix`: readers of committed records see a write whole or never, and once, whatever fails."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_tiered.brokers import Brokers
from pyspark_tiered.stream_write import StreamWriter
from pyspark_tiered.transactional_write import (
    ABORTED_TOGETHER,
    COMMITTED_TOGETHER,
    OpenTransaction,
    WrittenRecords,
    abort,
    abort_write,
    commit,
)
from pyspark_tiered.write import BatchWriter, write_rows
from pyspark_tiered.write_options import WriteOptions, parse_write_options
from tests.spark.commit_gate import CommitGate, Fate, commit_gate
from tests.spark.committed_rows import committed_records
from tests.spark.executors import two_executors
from tests.spark.transactional_app import TASKS, TRANSACTION_TIMEOUT_MS, TaskFate, failing_first, fate_in
from tests.spark.written_batches import batch
from tiered.broker.transactions.coordinator import MAX_TOGETHER
from tiered.errors import InvalidConfig, InvalidRequest
from tiered.peer.producer import TransactionalName
from tiered.testing import LocalCluster, cluster

pytestmark = pytest.mark.spark

PARTITIONS = 2
SCHEMA = StructType([StructField("value", StringType())])
APP = Path(__file__).with_name("transactional_app.py")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with cluster(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}) as running:
        yield running


@pytest.fixture(scope="module")
def gates(broker: LocalCluster) -> Iterator[CommitGate]:
    with commit_gate(broker.http_url) as gate:
        yield gate


@pytest.fixture
def gate(gates: CommitGate) -> CommitGate:
    gates.fates.clear()
    gates.commits = gates.aborts = 0
    return gates


@pytest.fixture
def topic(broker: LocalCluster) -> str:
    return broker.create_topic(partitions=PARTITIONS)


def values(broker: LocalCluster, topic: str) -> list[bytes]:
    return sorted(value for _, _, value in committed_records(broker.bootstrap, topic, PARTITIONS))


def numbered(spark: SparkSession, rows: int, tasks: int = 3) -> DataFrame:
    return spark.range(0, rows, numPartitions=tasks).select(f.col("id").cast("string").alias("value"))


def wanted(rows: int) -> list[bytes]:
    return sorted(str(number).encode() for number in range(rows))


def given(broker: LocalCluster, topic: str, catalog: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "topic": topic,
        "transactionalIdPrefix": "nightly",
        "catalog": catalog,
        **more,
    }


def options_of(broker: LocalCluster, topic: str) -> WriteOptions:
    return parse_write_options(given(broker, topic, broker.http_url), SCHEMA)


def nothing_is_open(broker: LocalCluster, topic: str) -> bool:
    """Readers of committed records get as far as all others."""
    asked = {(topic, partition): -1 for partition in range(PARTITIONS)}
    with Brokers(broker.bootstrap) as everything, Brokers(broker.bootstrap, read_committed=True) as committed:
        return everything.list_offsets(asked) == committed.list_offsets(asked)


def soon_nothing_is_open(broker: LocalCluster, topic: str, within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not nothing_is_open(broker, topic):
        if time.monotonic() > deadline:
            with urlopen(f"{broker.http_url}/api/v1/transactions") as answer:
                pytest.fail(f"a transaction stays open: {answer.read().decode()}")
        time.sleep(0.05)


# Batches


def test_a_batch_is_seen_whole_and_once_though_the_answer_to_its_commit_is_lost(
    spark: SparkSession, broker: LocalCluster, gate: CommitGate, topic: str
) -> None:
    gate.fates.append(Fate.LOSES_ANSWER)
    frame = numbered(spark, 300)
    frame.write.format("tiered").mode("append").options(**given(broker, topic, gate.url)).save()
    soon_nothing_is_open(broker, topic)
    assert values(broker, topic) == wanted(300)
    assert gate.commits == 2


def test_of_a_batch_that_fails_nothing_is_ever_seen_and_nothing_stays_open(
    spark: SparkSession, broker: LocalCluster, gate: CommitGate, topic: str
) -> None:
    # The last task's last row can be no record, and those before it were sent.
    bad = numbered(spark, 6000).withColumn("partition", f.when(f.col("value") == "5999", 9).cast("int"))
    told = given(broker, topic, gate.url, **{"kafka.batch.size": "2000"})
    with pytest.raises(Exception, match="a row's partition is 9"):
        bad.write.format("tiered").mode("append").options(**told).save()
    assert gate.commits == 0
    assert gate.aborts
    soon_nothing_is_open(broker, topic)
    assert values(broker, topic) == []


def told_of(tasks: int) -> list[WrittenRecords]:
    """What so many tasks tell, of transactions that nobody has begun."""
    ids = [
        OpenTransaction(transactional_id=f"many-{each}", producer_id=each, producer_epoch=0) for each in range(tasks)
    ]
    return [WrittenRecords(records=1, transaction=each) for each in ids]


def test_more_tasks_than_can_be_committed_together_are_refused_with_what_to_do(
    broker: LocalCluster, gate: CommitGate, topic: str
) -> None:
    assert COMMITTED_TOGETHER == MAX_TOGETHER
    options = parse_write_options(given(broker, topic, gate.url), SCHEMA)
    with pytest.raises(InvalidRequest, match=r"5001 tasks .* write fewer partitions, with df\.coalesce"):
        commit(options, told_of(COMMITTED_TOGETHER + 1), "many")
    assert gate.commits == 0


def test_any_number_of_tasks_is_aborted_with_no_more_in_a_request_than_brokers_take(
    broker: LocalCluster, gate: CommitGate, topic: str
) -> None:
    assert ABORTED_TOGETHER <= MAX_TOGETHER
    options = parse_write_options(given(broker, topic, gate.url), SCHEMA)
    name = TransactionalName(transactional_id="many-last", timeout_ms=600_000)
    last = write_rows(options, iter([batch(value=["a"])]), name)
    abort(options, [*told_of(ABORTED_TOGETHER), last])
    assert gate.aborts == 2
    soon_nothing_is_open(broker, topic)


# Streams


def test_a_micro_batch_whose_task_fails_and_that_is_written_again_after_its_commit_is_seen_once(
    spark: SparkSession, broker: LocalCluster, gate: CommitGate, topic: str, tmp_path: Path
) -> None:
    source = tmp_path / "in"

    def run() -> None:
        frame = spark.readStream.schema("value string").text(str(source))
        query = (
            frame.mapInArrow(failing_first, "value string")
            .writeStream.format("tiered")
            .options(**given(broker, topic, gate.url))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)

    for number in range(2):
        numbered(spark, 100).select(f.concat(f.lit(f"{number}-"), "value").alias("value")).write.mode("append").text(
            str(source)
        )
        run()
    # As after a driver that died when the brokers had committed, and Spark had not.
    for file in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        file.unlink()
    run()
    assert gate.commits == 3
    soon_nothing_is_open(broker, topic)
    assert values(broker, topic) == sorted(f"{number}-{row}".encode() for number in range(2) for row in range(100))


def test_attempts_of_one_task_leave_each_other_alone_and_one_of_them_is_seen(broker: LocalCluster, topic: str) -> None:
    options = options_of(broker, topic)
    assert options.transactions is not None
    names = [
        TransactionalName(transactional_id="speculating-0", timeout_ms=1000),
        TransactionalName(transactional_id="speculating-1", timeout_ms=600_000),
    ]
    written = [write_rows(options, iter([batch(value=["a", "b"])]), each) for each in names]
    commit(options, written[1:], "by-hand")
    # The other one is what a killed attempt leaves: it holds readers up until it times out.
    soon_nothing_is_open(broker, topic)
    assert values(broker, topic) == [b"a", b"b"]


@pytest.mark.parametrize(("passed_over", "taken"), [(0, 1), (1, 0)])
def test_what_another_attempt_left_open_ends_with_the_commit_of_the_one_that_spark_took(
    broker: LocalCluster, topic: str, passed_over: int, taken: int
) -> None:
    options = options_of(broker, topic)
    write, another = f"w{taken}", f"w{taken}0"
    _, others, written = (
        write_rows(options, iter([batch(value=[value])]), TransactionalName(transactional_id=name, timeout_ms=600_000))
        for name, value in (
            (f"nightly-{write}-0-{passed_over}", "a"),
            (f"nightly-{another}-0-0", "x"),
            (f"nightly-{write}-0-{taken}", "a"),
        )
    )
    commit(options, [written], write)
    # What another write has open is nobody else's.
    commit(options, [others], another)
    soon_nothing_is_open(broker, topic)
    assert values(broker, topic) == [b"a", b"x"]


def test_what_a_killed_task_left_open_ends_with_the_abort_of_its_batch(broker: LocalCluster, topic: str) -> None:
    writer = BatchWriter(options_of(broker, topic))
    writer.write(iter([batch(value=["a"])]))
    assert not nothing_is_open(broker, topic)
    # Spark has no message of a task that it killed, though it may have come to its end.
    writer.abort([None])
    soon_nothing_is_open(broker, topic)


def test_what_a_killed_task_left_open_ends_with_the_abort_of_its_micro_batch(broker: LocalCluster, topic: str) -> None:
    options = options_of(broker, topic)
    write_rows(
        options, iter([batch(value=["a"])]), TransactionalName(transactional_id="nightly-q-1-0-1", timeout_ms=600_000)
    )
    StreamWriter(options).abort([None, WrittenRecords(records=0, query="q")], 1)
    soon_nothing_is_open(broker, topic)


def test_what_a_task_writes_while_spark_kills_it_ends_with_the_abort_too(broker: LocalCluster, topic: str) -> None:
    options = options_of(broker, topic)
    assert options.transactions is not None
    name = TransactionalName(transactional_id="nightly-late-0-0", timeout_ms=600_000)
    late: list[WrittenRecords] = []

    def between_both_looks() -> None:
        late.append(write_rows(options, iter([batch(value=["a"])]), name))

    abort_write(options, options.transactions, [None, None], "late", pause=between_both_looks)
    assert late
    soon_nothing_is_open(broker, topic)


def test_a_name_that_is_written_under_again_takes_back_what_was_left_open(broker: LocalCluster, topic: str) -> None:
    options = options_of(broker, topic)
    name = TransactionalName(transactional_id="left-open", timeout_ms=600_000)
    left, again = (write_rows(options, iter([batch(value=["a", "b"])]), name) for _ in range(2))
    with pytest.raises(InvalidRequest, match="nothing of this write is committed"):
        commit(options, [left], "fenced")
    commit(options, [again], "fenced")
    soon_nothing_is_open(broker, topic)
    assert values(broker, topic) == [b"a", b"b"]


def test_a_task_without_rows_has_nothing_to_commit(broker: LocalCluster, topic: str) -> None:
    options = options_of(broker, topic)
    empty = write_rows(options, iter([]), TransactionalName(transactional_id="empty", timeout_ms=5000))
    assert empty.transaction is None
    commit(options, [empty, None], "empty")


def test_a_time_out_that_brokers_do_not_allow_is_named(broker: LocalCluster, topic: str) -> None:
    options = options_of(broker, topic)
    too_long = TransactionalName(transactional_id="long", timeout_ms=2**31 - 1)
    with pytest.raises(InvalidConfig, match=r"kafka\.transaction\.timeout\.ms .* longer than transaction\.max"):
        write_rows(options, iter([batch(value=["a"])]), too_long)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"catalog": "http://h:1"}, "option catalog is for writes with transactions"),
        ({"kafka.transaction.timeout.ms": "5"}, "is for writes with transactions"),
        ({"transactionalIdPrefix": "n"}, "needs catalog"),
        ({"transactionalIdPrefix": " ", "catalog": "http://h:1"}, "give a name that no other job has"),
        ({"transactionalIdPrefix": "n", "catalog": "h:1"}, "HTTP address"),
        ({"transactionalIdPrefix": "n", "catalog": "http://h:1", "kafka.acks": "1"}, "needs kafka.acks=all"),
    ],
)
def test_options_that_do_not_go_together_are_named(told: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        parse_write_options({"kafka.bootstrap.servers": "h:1", "topic": "t", **told}, SCHEMA)


# Drivers and executors that die


def killed_until_done(broker: LocalCluster, gate: CommitGate, folder: Path, source: str, target: str) -> int:
    """Starts the application until it ends by itself; how often it was killed."""
    with two_executors(folder) as master:
        for kills in count():
            with (folder / "app.log").open("ab") as output:
                app = subprocess.Popen(
                    [sys.executable, str(APP), str(folder), master, broker.bootstrap, gate.url, source, target],
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env=os.environ | {"PYSPARK_PYTHON": sys.executable},
                )
            gate.kill = lambda app=app: os.killpg(app.pid, signal.SIGKILL)  # type: ignore[misc]
            try:
                code = app.wait(3600)
            finally:
                if app.poll() is None:
                    os.killpg(app.pid, signal.SIGKILL)
                    app.wait()
            if code == 0:
                return kills
            assert code == -signal.SIGKILL, (folder / "app.log").read_text()
    raise AssertionError("unreachable")


def copied(broker: LocalCluster, gate: CommitGate, folder: Path, batches: int) -> int:
    """The topic is copied in so many micro-batches, each record once; how often the driver died."""
    source, target = broker.create_topic(partitions=TASKS), broker.create_topic(partitions=PARTITIONS)
    numbers = range(100 * batches)
    plain = WriteOptions(bootstrap_servers=broker.bootstrap, topic=source, columns=("value", "partition"))
    rows = batch(value=[str(number) for number in numbers], partition=[number % TASKS for number in numbers])
    write_rows(plain, iter([rows]))
    kills = killed_until_done(broker, gate, folder, source, target)
    # An attempt that Spark passes over may begin its transaction after the last commit: that one times out.
    soon_nothing_is_open(broker, target, within_s=TRANSACTION_TIMEOUT_MS / 1000 + 30)
    assert values(broker, target) == wanted(100 * batches)
    return kills


@pytest.mark.soak
def test_each_row_is_seen_once_through_hundreds_of_commits_that_meet_any_fate(
    java: str, broker: LocalCluster, gate: CommitGate, tmp_path: Path
) -> None:
    del java
    commits = int(os.environ.get("TIERED_KILLS", "200"))
    random_ = random.Random(7)
    gate.fates += random_.choices(list(Fate), weights=(12, 2, 1, 1), k=commits)
    wanted_kills = sum(each in (Fate.KILLS_BEFORE, Fate.KILLS_AFTER) for each in gate.fates)
    assert copied(broker, gate, tmp_path, batches=commits) == wanted_kills
    given = Counter(fate_in(number)[1] for number in range(commits))
    met = {fate: len(list((tmp_path / "met").glob(f"{fate.value}-*"))) for fate in TaskFate}
    # A first attempt that is slow by itself may be overtaken before it meets another fate.
    assert all(2 * met[fate] >= given[fate] for fate in TaskFate), met
    print(f"{commits} micro-batches, {wanted_kills} drivers killed, and of tasks:", met)
