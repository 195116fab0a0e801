"""X6: consumers of the brokers and of a read replica, Spark and an export give the same records of random logs.

Which ones is in the book of those who wrote: each record at the offset that was acknowledged, and how its transaction
ended. `TIERED_LOGS` says how many logs there are; a hundred at a time are the partitions of a topic.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from pyiceberg.catalog.sql import SqlCatalog

from jobs import export
from pyspark_tiered.brokers import BrokerThread
from tests.components.read_replicas import ReplicaThread
from tests.spark.committed_rows import Rows, committed_records, spark_batch
from tiered.cold.opening import open_store
from tiered.peer.topic_admin import alter_configs
from tiered.testing import LocalCluster, cluster

pytestmark = [pytest.mark.spark, pytest.mark.soak]

TOGETHER = 100
WAIT_S = 60.0
LATEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD = -1, -4, -6
NEVER = 1 << 62
FATES = 5 * ("committed",) + 4 * ("aborted",) + ("fenced",)
KINDS = ("hot", "cold", "across the seam", "transactions open", "aborted on both sides of a seam")


@dataclass(slots=True, eq=False)
class Transaction:
    fate: str = "open"


@dataclass(slots=True)
class Topic:
    """Random logs, what was written into them, and where it is."""

    name: str
    broker: LocalCluster
    thread: BrokerThread
    chance: random.Random
    logs: list[list[tuple[int, bytes, Transaction]]]
    """By partition, in their order: offset, value and transaction of each acknowledged record."""
    transactions: list[Transaction] = field(default_factory=list)

    def stable_end(self, number: int) -> int:
        """Where the first open transaction of that log begins."""
        return next((offset for offset, _, of in self.logs[number] if of.fate == "open"), NEVER)

    def committed(self, number: int) -> Rows:
        """What a reader of committed records is given."""
        given = [each for each in self.logs[number] if each[2].fate in ("none", "committed")]
        stable_end = self.stable_end(number)
        return [(number, offset, value) for offset, value, _ in given if offset < stable_end]

    def offsets(self, which: int, *, isolation_level: int = 0) -> list[int]:
        """By partition, as the broker has them."""
        asked = dict.fromkeys(range(len(self.logs)), which)
        listed = self.thread.cluster.list_offsets(self.name, asked, isolation_level=isolation_level)
        return list(self.thread.submit(listed).result().values())

    def move(self, *, keeps_local: bool) -> None:
        """Returns when the logs without an open transaction are in the store, and gone from the disk unless that
        `keeps_local` copies. Others go as far as the broker likes."""

        def late() -> object:
            ends, cold = self.offsets(LATEST), self.offsets(EARLIEST_PENDING_UPLOAD)
            local = ends if keeps_local else self.offsets(EARLIEST_LOCAL)
            rows = enumerate(zip(ends, cold, local, strict=True))
            return [each for each in rows if len({*each[1]}) > 1 and self.stable_end(each[0]) == NEVER]

        self._alter({"segment.ms": "1", "remote.copy.lag.ms": "0"})
        wait_for_none(late, "logs and their end, cold end and local start")
        self._alter({"segment.ms": None, "remote.copy.lag.ms": None})

    def _alter(self, configs: dict[str, str | None]) -> None:
        (done,) = self.thread.submit(alter_configs(self.thread.cluster, self.name, configs)).result()
        assert done.error_code == 0

    def cold_ends(self) -> list[int]:
        """How far readers of the bucket alone get, or farther."""
        ends = self.offsets(EARLIEST_PENDING_UPLOAD)
        wait_for_none(lambda: self.broker.health()["stale_checkpoints"], "checkpoints")
        return ends

    def wait_for_markers(self) -> None:
        """They come after a commit's answer."""

        def late() -> object:
            stable, ends = self.offsets(LATEST, isolation_level=1), self.offsets(LATEST)
            wanted = [min(end, self.stable_end(number)) for number, end in enumerate(ends)]
            return [each for each in enumerate(zip(stable, wanted, strict=True)) if each[1][0] != each[1][1]]

        wait_for_none(late, "logs and their last stable offset, by the broker and by the book")

    def exported(self, folder: Path, *more: str) -> Rows:
        """All of a table that the topic was exported into, now and whenever this was asked before."""
        meta, tables = f"sqlite:///{folder}/tables.db", f"file://{folder}/tables"
        words = ["--store", self.broker.store_url, "--topic", self.name, "--table", "doors.all", "--meta", meta]
        assert export.main([*words, "--warehouse", tables, *more]) == 0
        scan = SqlCatalog("tiered", uri=meta, warehouse=tables).load_table("doors.all").scan()
        rows = scan.to_arrow().select(["_partition", "_offset", "value"])
        return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def wait_for_none(late: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while found := late():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}: {found}"
        time.sleep(0.05)


class Writer:
    """A producer with one transaction after another, or with none. All that it has sent is answered for."""

    def __init__(self, topic: Topic, codec: str, transactional_id: str | None = None) -> None:
        self._topic = topic
        self._settings: dict[str, str | int] = {"bootstrap.servers": topic.broker.bootstrap, "log_level": 0}
        self._settings |= {"compression.type": codec}
        if transactional_id is not None:
            self._settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
        self.transaction = None if transactional_id else Transaction("none")
        self._begin()

    def _begin(self) -> None:
        """Whoever had the transactional id before is fenced."""
        self._producer = Producer(self._settings)
        if self.transaction is None:
            self._producer.init_transactions(WAIT_S)

    def write(self, numbers: set[int]) -> None:
        if self.transaction is None:
            self._producer.begin_transaction()
            self.transaction = Transaction()
            self._topic.transactions.append(self.transaction)
        told = partial(self._told, self.transaction)
        chance = self._topic.chance
        for number in sorted(numbers):
            for _ in range(chance.randint(1, 5)):
                value = chance.randbytes(chance.randint(4, 200)).hex()
                self._producer.produce(self._topic.name, value, partition=number, on_delivery=told)
        assert self._producer.flush(WAIT_S) == 0

    def _told(self, transaction: Transaction, error: KafkaError | None, message: Message) -> None:
        number, offset, value = message.partition(), message.offset(), message.value()
        assert error is None, error
        assert None not in (number, offset, value)
        self._topic.logs[number].append((offset, value, transaction))  # type: ignore[index, arg-type]

    def end(self, *fates: str) -> None:
        """The open transaction, if there is one."""
        if self.transaction is None or self.transaction.fate != "open":
            return
        transaction, self.transaction = self.transaction, None
        transaction.fate = self._topic.chance.choice(fates)
        match transaction.fate:
            case "committed":
                self._producer.commit_transaction(WAIT_S)
            case "aborted":
                self._producer.abort_transaction(WAIT_S)
            case "fenced":
                self._begin()


def write_by_turns(topic: Topic, writers: Sequence[Writer], weights: Sequence[int], *, stay_open: float) -> None:
    """In random order, each partition by its weight. At the end a transaction stays open with that probability."""
    chance = topic.chance
    for _ in range(150):
        writer = chance.choice(writers)
        if chance.random() < 0.75:
            count = chance.randint(1, 2 + len(weights) // 5)
            writer.write(set(chance.choices(range(len(weights)), weights, k=count)))
        else:
            writer.end(*FATES)
    for writer in writers:
        if chance.random() >= stay_open:
            writer.end(*FATES)


def check_some(folder: Path, seed: int, count: int) -> Counter[str]:
    """So many logs of one topic; how much of each kind there was."""
    chance = random.Random(seed)
    keeps_local = chance.random() < 0.25
    defaults = {
        "segment.bytes": chance.choice((3_000, 10_000, 30_000)),
        "remote.copy.lag.ms": chance.choice((0, 3_600_000, 3_600_000)),
        "local.retention.bytes": -1 if keeps_local else 0,
    }
    weights = [chance.choice([(0, 1), (1, 0), (1, 1), (3, 1), (1, 3)]) for _ in range(count)]
    with (
        cluster(topics={"doors": count}, topic_defaults=defaults) as broker,
        BrokerThread(broker.bootstrap, client_id="doors", timeout_ms=30_000) as thread,
    ):
        topic = Topic("doors", broker, thread, chance, [[] for _ in range(count)])
        codecs = ("none", "zstd", "lz4", "snappy", "gzip")
        writers = [Writer(topic, "none"), *(Writer(topic, codec, f"writes-{codec}") for codec in codecs)]
        write_by_turns(topic, writers, [before for before, _ in weights], stay_open=chance.choice((0, 0.3)))
        topic.move(keeps_local=keeps_local)
        seams = topic.cold_ends()
        exported = topic.exported(folder)
        write_by_turns(topic, writers, [after for _, after in weights], stay_open=0.4)
        topic.wait_for_markers()
        ends, cold_ends = topic.offsets(LATEST), topic.cold_ends()

        def hold(door: str, found: Rows, stored: Sequence[int] = ends) -> None:
            """Each log is what it must be, at least up to where it is `stored`."""
            logs: list[Rows] = [[] for _ in range(count)]
            for row in found:
                logs[row[0]].append(row)
            for number, log in enumerate(logs):
                wanted = topic.committed(number)
                least = sum(offset < stored[number] for _, offset, _ in wanted)
                assert log == wanted[: max(least, len(log))], f"seed {seed}, log {number} of {count}: {door}"

        bucket = {"store": broker.store_url, "splitBytes": str(chance.choice((2_000, 64 << 20)))}
        hold("a consumer", committed_records(broker.bootstrap, topic.name, count))
        hold("Spark from both", spark_batch(topic.name, {**bucket, "kafka.bootstrap.servers": broker.bootstrap}))
        hold("Spark from the bucket", spark_batch(topic.name, bucket), cold_ends)
        with ReplicaThread(folder / "replica", open_store(broker.store_url)) as replica:
            of_replica = committed_records(f"127.0.0.1:{replica.kafka_port}", topic.name, count)
        hold("a consumer of the read replica", of_replica, cold_ends)
        hold("an export of the bucket", exported, seams)
        hold("an export that went on to the brokers", topic.exported(folder, "--bootstrap", broker.bootstrap))
        found = counted(topic, ends, cold_ends)
        for writer in writers:
            writer.end("aborted")
    return found


def counted(topic: Topic, ends: Sequence[int], cold_ends: Sequence[int]) -> Counter[str]:
    found = Counter(f"transactions {each.fate}" for each in topic.transactions)
    for number, (log, end, cold_end) in enumerate(zip(topic.logs, ends, cold_ends, strict=True)):
        assert cold_end <= topic.stable_end(number), "what is in the bucket is stable"
        place = "hot" if cold_end == 0 else "cold" if cold_end == end else "across the seam"
        cold = [of for offset, _, of in log if offset < cold_end and of.fate in ("aborted", "fenced")]
        hot = {id(of) for offset, _, of in log if offset >= cold_end}
        found += Counter({"logs": 1, place: 1, "records": len(log), "aborted records in the bucket": len(cold)})
        found["aborted on both sides of a seam"] += len({id(of) for of in cold if id(of) in hot})
    return found


@pytest.mark.usefixtures("spark")
def test_all_doors_give_the_records_that_were_committed(tmp_path: Path) -> None:
    logs, first = int(os.environ.get("TIERED_LOGS", "1000")), int.from_bytes(os.urandom(4), "big")
    started = time.monotonic()
    found = Counter[str]()
    for seed, done in enumerate(range(0, logs, TOGETHER), start=first):
        folder, count = tmp_path / str(seed), min(TOGETHER, logs - done)
        folder.mkdir()
        try:
            found += check_some(folder, seed, count)
        except BaseException as error:
            error.add_note(f"seed {seed}, {count} logs")
            raise
    print(f"{time.monotonic() - started:.0f} s: {dict(sorted(found.items()))}")
    assert logs < 1000 or all(found[each] for each in KINDS), "this says less than it should"
