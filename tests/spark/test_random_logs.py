"""Whatever is in a bucket, whatever part is asked for, and however it is split: each record once, as it was written."""

import json
import os
import random
from pathlib import Path

import pytest

from pyspark_tiered.batch import BatchReader
from pyspark_tiered.options import parse_options
from tests.spark.bucket import Bucket
from tests.spark.random_log import WrittenLog, expected_rows, write_random_segments
from tiered.cold.opening import open_store
from tiered.formats.record_batch import Record

COLUMNS = ("partition", "offset", "key", "value", "timestamp", "headers")


def read(options: dict[str, str]) -> dict[int, list[Record]]:
    """Every row of every split by partition, sorted by offset."""
    reader = BatchReader(parse_options(options, streaming=False), COLUMNS)
    found: dict[int, list[Record]] = {}
    for split in reader.partitions():
        for batch in reader.read(split):
            for row in batch.to_pylist():
                found.setdefault(row["partition"], []).append(
                    Record(
                        offset=row["offset"],
                        timestamp_ms=round(row["timestamp"].timestamp() * 1000),
                        key=row["key"],
                        value=row["value"],
                        headers=tuple((each["key"], each["value"]) for each in row["headers"] or ()),
                    )
                )
    return {partition: sorted(rows, key=lambda row: row.offset) for partition, rows in found.items()}


def check_one(folder: Path, seed: int) -> None:
    random_ = random.Random(seed)
    bucket = Bucket(
        store=open_store(f"file://{folder}/{seed}"),
        chunk_bytes=random_.choice((200, 3000, 1 << 20)),
        page_entries=random_.choice((1, 2, 1000)),
    )
    logs: dict[int, WrittenLog] = {}
    for partition in range(random_.randrange(1, 4)):
        logs[partition] = write_random_segments(bucket, random_, "orders", partition)
        bucket.partitions["orders", partition].log_start_offset = random_.choice(
            (0, 0, logs[partition].end_offset // 3)
        )
    bucket.publish()
    for _ in range(3):
        starts, ends = {}, {}
        for partition, log in logs.items():
            first = bucket.partitions["orders", partition].log_start_offset
            ends[partition] = random_.randrange(first, log.end_offset + 1)
            starts[partition] = random_.randrange(first, ends[partition] + 1)
        read_committed = random_.random() < 0.5
        options = {
            "store": bucket.url,
            "subscribe": "orders",
            "includeHeaders": "true",
            "startingOffsets": json.dumps({"orders": starts}),
            "endingOffsets": json.dumps({"orders": ends}),
            "isolation": "read_committed" if read_committed else "read_uncommitted",
            "splitBytes": str(random_.choice((300, 3000, 1 << 20, 64 << 20))),
        }
        if random_.random() < 0.5:
            options["minPartitions"] = str(random_.randrange(1, 40))
        if random_.random() < 0.5:
            options["maxRecordsPerPartition"] = str(random_.choice((1, 7, 1000)))
        wanted = {
            partition: expected_rows(log.rows, starts[partition], ends[partition], read_committed=read_committed)
            for partition, log in logs.items()
        }
        assert read(options) == {partition: rows for partition, rows in wanted.items() if rows}, f"seed {seed}"


@pytest.mark.parametrize("seed", range(8))
def test_each_record_comes_back_once_as_it_was_written(tmp_path: Path, seed: int) -> None:
    check_one(tmp_path, seed)


@pytest.mark.soak
def test_each_record_comes_back_once_of_many_logs(tmp_path: Path) -> None:
    first = int.from_bytes(os.urandom(4), "big")
    for seed in range(first, first + int(os.environ.get("TIERED_LOGS", "2000"))):
        check_one(tmp_path, seed)
