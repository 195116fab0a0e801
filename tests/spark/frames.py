"""A data frame's rows in order."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def rows(frame: DataFrame) -> list[dict[str, object]]:
    """All rows by topic, partition and offset, timestamps in microseconds."""
    numbered = frame.withColumn("timestamp", f.unix_micros("timestamp")) if "timestamp" in frame.columns else frame
    found = [row.asDict(recursive=True) for row in numbered.collect()]
    for row in found:
        for name in ("key", "value"):
            if row.get(name) is not None:
                row[name] = bytes(row[name])
        for header in row.get("headers") or ():
            header["value"] = None if header["value"] is None else bytes(header["value"])
    return sorted(found, key=lambda row: tuple(row.get(name, 0) for name in ("topic", "partition", "offset")))
