"""Rows that are ready made: a data source for Spark that reads nothing, checks nothing and decodes nothing.

Owns a control for `spark_side`: all that Spark does with the rows of a Python data source and none of what the product
does but the care for Spark's workers. No source of this kind can be faster in the same session.
"""

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pyspark_tiered.columns import ddl
from pyspark_tiered.worker import acknowledge_at_once, keep_freed_memory, settle
from tiered.formats.arrow import COLUMNS, DEFAULT_BATCH_BYTES, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "ready-rows"


class ReadyRows(DataSource):
    """`rows` rows with values of `sizeBytes` bytes, by `tasks` tasks; each gives one Arrow batch again and again."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl(headers=False)

    def reader(self, schema: "StructType") -> DataSourceReader:  # noqa: ARG002 - Spark passes it by name
        rows, size_bytes, tasks = (int(self.options[name]) for name in ("rows", "sizeBytes", "tasks"))
        return _Reader(rows // tasks, size_bytes, tasks)


class _Reader(DataSourceReader):
    def __init__(self, rows: int, size_bytes: int, tasks: int) -> None:
        self._rows, self._size_bytes, self._tasks = rows, size_bytes, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:  # noqa: ARG002 - all are alike
        keep_freed_memory()
        left = self._rows
        whole = _batch(min(left, DEFAULT_BATCH_BYTES // self._size_bytes), self._size_bytes)
        while left >= whole.num_rows:
            yield whole
            left -= whole.num_rows
        if left:
            yield _batch(left, self._size_bytes)
        settle()
        acknowledge_at_once()


@lru_cache(maxsize=8)  # Spark's workers live on between tasks.
def _batch(rows: int, size_bytes: int) -> "pa.RecordBatch":
    import pyarrow as pa

    made = {
        "key": [None] * rows,
        "value": [os.urandom(size_bytes) for _ in range(rows)],
        "topic": ["ready"] * rows,
        "partition": [0] * rows,
        "offset": list(range(rows)),
        "timestamp": [0] * rows,
        "timestampType": [0] * rows,
    }
    schema = arrow_schema(COLUMNS)
    return pa.RecordBatch.from_arrays([pa.array(made[each.name], each.type) for each in schema], schema=schema)
