"""With the data source API of Spark 4.0 batches work, and streams say what they need.

The real 4.0 cannot be installed beside the one that all other tests use. So a process of its own takes away what is
newer than 4.0 before anything of ours is imported.
"""

import subprocess
import sys

import pytest

_AS_IN_4_0 = """
import sys
from pyspark.sql import datasource

for name in (
    "Filter EqualTo EqualNullSafe GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual In IsNull IsNotNull Not "
    "StringStartsWith StringEndsWith StringContains DataSourceStreamArrowWriter"
).split():
    delattr(datasource, name)

sys.modules["pyspark.sql.streaming.datasource"] = None
"""


def _run(then: str) -> str:
    done = subprocess.run([sys.executable, "-c", _AS_IN_4_0 + then], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module", ["batch", "write", "job_arguments", "job_waves", "iceberg_table", "compaction", "job_run"]
)
def test_what_reads_and_writes_batches_needs_nothing_newer(module: str) -> None:
    _run(f"import pyspark_tiered.{module}")


def test_streams_say_which_spark_they_need() -> None:
    said = _run(
        """
from pyspark_tiered import DefaultSource
from tiered.errors import InvalidConfig

source = DefaultSource({"store": "file:///nowhere", "subscribe": "orders"})
for ask in (lambda: source.streamReader(None), lambda: source.streamWriter(None, False)):
    try:
        ask()
    except InvalidConfig as error:
        print(error)
"""
    )
    reads, writes = said.splitlines()
    assert reads.startswith('readStream with format("tiered") needs Spark 4.2 or newer'), reads
    assert writes.startswith('writeStream with format("tiered") needs Spark 4.1 or newer'), writes
