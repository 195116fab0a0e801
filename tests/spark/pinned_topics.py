"""Records appended to topics that Spark pins."""

from collections.abc import Iterator

import pyarrow as pa

from pyspark_tiered.client_options import ClientOptions
from pyspark_tiered.write import write_rows
from pyspark_tiered.write_options import WriteOptions
from tiered.testing import LocalCluster


def append(broker: LocalCluster, topic: str, count: int) -> None:
    client = ClientOptions(batch_bytes=1100)
    options = WriteOptions(bootstrap_servers=broker.bootstrap, topic=topic, columns=("value",), client=client)
    write_rows(options, iter([pa.RecordBatch.from_arrays([pa.array([b"v" * 1000] * count)], ["value"])]))


def offsets_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]
