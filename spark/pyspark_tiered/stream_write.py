"""`writeStream.format("tiered")`: each micro-batch is written as a batch write is.

Owns the class that Spark asks for alone. A module of its own, because Spark has its base class since 4.1 and batch
writes need no more than 4.0.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_tiered.transactional_write import WrittenRecords, commit, name_in_stream
from pyspark_tiered.write import take_back, write_rows
from pyspark_tiered.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(DataSourceStreamArrowWriter):
    """Spark writes micro-batches with this. Pickled to the tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRecords:
        if self._options.transactions is None:
            return write_rows(self._options, iterator)
        name, query = name_in_stream(self._options.transactions)
        return write_rows(self._options, iterator, name, query=query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        commit(self._options, messages, str(_query_of(messages)), str(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        take_back(self._options, messages, _query_of(messages))


def _query_of(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    """The driver's process knows the query from its tasks alone: None where none of them has ended."""
    return next((each.query for each in messages if isinstance(each, WrittenRecords)), None)
