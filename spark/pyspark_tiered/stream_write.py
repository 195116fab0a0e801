"""`writeStream.format("tiered")`: each micro-batch is written as a batch write is.

Owns the class that Spark asks for alone. A module of its own, because Spark has its base class since 4.1 and batch
writes need no more than 4.0.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_tiered.write import WrittenRecords, tell_of_remains, write_rows
from pyspark_tiered.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(DataSourceStreamArrowWriter):
    """Spark writes micro-batches with this. Pickled to the tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRecords:
        return write_rows(self._options, iterator)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        tell_of_remains(messages)
