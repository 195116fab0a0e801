"""Batches that Spark writes."""

from collections.abc import Sequence

import pyarrow as pa


def batch(**columns: Sequence[object]) -> pa.RecordBatch:
    types = {"partition": pa.int32(), "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))}
    arrays = [pa.array(values, types.get(name)) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, list(columns))
