"""A stream from the first of many cold records reaches the tail, each record once, though it is killed on the way."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pyspark_tiered.brokers import BrokerThread
from tests.broker_process import BrokerProcess
from tests.spark.live_topics import create
from tiered.formats.record_batch import Record, encode_batch

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PARTITIONS = 3
KILLS = 10
VALUE_BYTES = 1024
BATCH_RECORDS = 900
SETTINGS = {
    "log.segment.bytes": 32 << 20,
    "log.local.retention.bytes": 64 << 20,
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 1000,
    "tiered.checkpoint.interval.ms": 500,
}
APP = Path(__file__).with_name("stream_app.py")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", settings=SETTINGS).start()
    yield process
    process.ensure_stopped()


class Filler(threading.Thread):
    """Appends numbered records: at first as fast as it can, then slowly, so that there is a tail to reach."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(name="filler", daemon=True)
        self._thread = BrokerThread(broker.bootstrap, client_id="filler", timeout_ms=60_000)
        self._over = threading.Event()
        self.ends = [0] * PARTITIONS

    def append(self) -> None:
        for partition, first in enumerate(self.ends):
            rows = [
                Record(
                    offset=number,
                    timestamp_ms=1_700_000_000_000,
                    key=None,
                    value=f"{first + number}-".encode().ljust(VALUE_BYTES, b"."),
                )
                for number in range(BATCH_RECORDS)
            ]
            produce = self._thread.cluster.produce("orders", partition, encode_batch(rows))
            assert self._thread.submit(produce).result().base_offset == first
            self.ends[partition] += BATCH_RECORDS

    def run(self) -> None:
        while not self._over.wait(0.2):
            self.append()

    def close(self) -> None:
        self._over.set()
        self.join()
        self._thread.close()


def start(folder: Path, broker: BrokerProcess, how: str) -> subprocess.Popen[bytes]:
    options = {
        "store": f"file://{broker.data}/objects",
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100000",
    }
    told = [f"{name}={value}" for name, value in options.items()]
    with (folder / "app.log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, str(APP), str(folder / "out"), str(folder / "checkpoint"), how, *told],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def kill(app: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and its Python workers, in the middle of whatever they do."""
    os.killpg(app.pid, signal.SIGKILL)
    app.wait()


def planned(folder: Path) -> int:
    """How many micro-batches the checkpoint knows."""
    return len(list((folder / "checkpoint" / "offsets").glob("[0-9]*")))


def test_each_record_arrives_once_though_the_stream_is_killed_ten_times(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, "orders", PARTITIONS)
    filler = Filler(broker)
    wanted_bytes = int(os.environ.get("TIERED_COLD_MIB", "4096")) << 20
    while sum(filler.ends) * VALUE_BYTES < wanted_bytes:
        filler.append()
    filler.start()
    random_ = random.Random(6)
    try:
        for number in range(KILLS):
            before, app = planned(tmp_path), start(tmp_path, broker, "forever")
            deadline = time.monotonic() + 300
            while planned(tmp_path) < before + 2 and time.monotonic() < deadline:
                assert app.poll() is None, (tmp_path / "app.log").read_text()
                time.sleep(0.1)
            assert planned(tmp_path) > before, f"it does not move after {number} kills"
            time.sleep(random_.random() * 3)
            kill(app)
    finally:
        filler.close()
    app = start(tmp_path, broker, "once")
    assert app.wait(1800) == 0, (tmp_path / "app.log").read_text()
    counted = (
        spark.read.parquet(str(tmp_path / "out"))
        .groupBy("partition")
        .agg(
            f.count("*").alias("rows"),
            f.countDistinct("offset").alias("offsets"),
            f.max("offset").alias("last"),
            f.sum((f.col("told") == f.col("offset")).cast("int")).alias("right"),
        )
        .collect()
    )
    assert {row["partition"]: (row["rows"], row["offsets"], row["last"], row["right"]) for row in counted} == {
        partition: (end, end, end - 1, end) for partition, end in enumerate(filler.ends)
    }
