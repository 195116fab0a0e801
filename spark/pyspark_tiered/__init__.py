"""`format("tiered")`: reads cold segments from the bucket and the tail from the brokers, and writes to topics.

Owns the name and what Spark asks first. Spark imports every module named `pyspark_*` at the first query of a
session, so nothing heavy is imported here: not pyarrow, not boto3, not asyncio.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource", "register"]


class DefaultSource(DataSource):
    """The source as Spark knows it. Where the package is installed, Spark finds it by itself."""

    @classmethod
    def name(cls) -> str:
        return "tiered"

    def schema(self) -> str:
        from pyspark_tiered.columns import ddl
        from pyspark_tiered.options import check_names, wants_headers

        check_names(self.options)
        return ddl(headers=wants_headers(self.options))

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from pyspark_tiered.batch import reader_for
        from pyspark_tiered.columns import columns_of
        from pyspark_tiered.options import parse_options

        options = parse_options(dict(self.options), streaming=False)
        return reader_for(options, columns_of(schema))

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802 - Spark's name
        if find_spec("pyspark.sql.streaming.datasource") is None:
            raise _too_old("readStream", "4.2")
        from pyspark_tiered.columns import columns_of
        from pyspark_tiered.options import parse_options
        from pyspark_tiered.stream import StreamReader

        options = parse_options(dict(self.options), streaming=True)
        return StreamReader(options, columns_of(schema))

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from pyspark_tiered.write import BatchWriter
        from pyspark_tiered.write_options import parse_write_options
        from tiered.errors import InvalidConfig

        if overwrite:
            raise InvalidConfig('mode("overwrite") is not possible, records are only appended: use mode("append")')
        return BatchWriter(parse_write_options(dict(self.options), schema))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":  # noqa: N802, ARG002
        # Output mode complete says overwrite: as with Spark's Kafka sink, its rows are appended.
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            raise _too_old("writeStream", "4.1")
        from pyspark_tiered.stream_write import StreamWriter
        from pyspark_tiered.write_options import parse_write_options

        return StreamWriter(parse_write_options(dict(self.options), schema))


def register(spark: "SparkSession") -> None:
    """Makes `format("tiered")` known to this session, from whichever Python the driver was started.

    Raises `InvalidConfig` that names PYSPARK_PYTHON where Spark's workers cannot load the package.
    """
    from pyspark_tiered.session_python import check_workers, use_this_python

    use_this_python(spark)
    spark.dataSource.register(DefaultSource)
    check_workers(spark, DefaultSource.name())


def _too_old(what: str, since: str) -> Exception:
    from tiered.errors import InvalidConfig

    return InvalidConfig(
        f'{what} with format("tiered") needs Spark {since} or newer, and this is {pyspark.__version__}: '
        "reading and writing in batches works here"
    )
