"""A checksum of a set of records that does not depend on their order: how two sides show that they hold the same.

Owns the definition, once for Python and once for Spark. Each record's partition, offset, timestamp, key and
value go through SHA-256; the first 60 bits of each digest are added up.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# One record in a canonical form; `key` and `value` are never null in this demo.
_SPARK_DIGEST = """
  cast(conv(substr(sha2(concat(
    encode(concat_ws('/', partition, offset, unix_millis(timestamp), ''), 'utf-8'), key, encode('/', 'utf-8'), value
  ), 256), 1, 15), 16, 10) as decimal(20, 0))
"""


@dataclass(slots=True)
class Checksum:
    """How many records, and the sum of their digests. Adding records is commutative and associative."""

    records: int = 0
    digest_sum: int = 0

    def add_record(self, *, partition: int, offset: int, timestamp_ms: int, key: bytes, value: bytes) -> None:
        text = b"%d/%d/%d/%b/%b" % (partition, offset, timestamp_ms, key, value)
        self.records += 1
        self.digest_sum += int(hashlib.sha256(text).hexdigest()[:15], 16)

    def __add__(self, other: "Checksum") -> "Checksum":
        return Checksum(self.records + other.records, self.digest_sum + other.digest_sum)

    def __str__(self) -> str:
        return f"{self.digest_sum & (2**64 - 1):016x}"


def checksum_of(frame: "DataFrame") -> Checksum:
    """The checksum of a Spark frame with the columns of Spark's Kafka source. Runs a job over all its rows."""
    row = frame.selectExpr(f"{_SPARK_DIGEST} as digest").selectExpr("count(1) as n", "sum(digest) as s").collect()[0]
    return Checksum(int(row["n"]), int(row["s"] or 0))
