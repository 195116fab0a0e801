"""`spark/jobs/export.py`: an Iceberg table holds every record of the topic once, whoever reads it and whatever died."""

import io
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import fastavro
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from jobs import export as job
from pyspark_tiered import iceberg_table
from tests.spark.bucket import Bucket, batches_of, records
from tiered.errors import LostRace
from tiered.formats.record_batch import Record

pytestmark = pytest.mark.spark

JSON_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "placed": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


class Exporter:
    """Runs the job on one bucket, and reads the tables with others' eyes."""

    def __init__(self, folder: Path, bucket: Bucket) -> None:
        self._folder = folder
        self._catalog = f"sqlite:///{folder}/meta.db"
        self._warehouse = f"file://{folder}/tables"
        self._bucket = bucket

    def run(self, *more: str, schema: object = None, form: str = "raw") -> int:
        words = ["--store", self._bucket.url, "--topic", "orders", "--table", "shop.orders", "--format", form]
        words += ["--meta", self._catalog, "--warehouse", self._warehouse]
        if schema is not None:
            path = self._folder / "schema.json"
            path.write_text(json.dumps(schema))
            words += ["--schema", str(path)]
        return job.main([*words, *more])

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog("tiered", uri=self._catalog, warehouse=self._warehouse)

    def rows(self, name: str = "orders") -> list[dict[str, Any]]:
        """By pyiceberg, and held against what DuckDB reads."""
        scan = self.catalog.load_table(f"shop.{name}").scan()
        found = scan.to_arrow().sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        counted = scan.to_duckdb("rows").sql("SELECT count(*) FROM rows").fetchall()
        assert counted == [(len(found),)]
        files = [each.file.file_path for each in scan.plan_files()]
        if files:
            mine = found.drop_columns([each for each in ("_headers", "tags") if each in found.column_names])
            names = ", ".join(f'"{each}"' for each in mine.column_names)
            sql = f"select {names} from read_parquet(?, union_by_name = true, hive_partitioning = false) order by 2, 3"
            paths = [each.removeprefix("file://") for each in files]
            again: Any = duckdb.connect().sql(sql, params=[paths]).to_arrow_table()
            assert again.to_pylist() == mine.to_pylist()
        return [dict(each) for each in found.to_pylist()]


@pytest.fixture
def exporter(tmp_path: Path, bucket: Bucket) -> Exporter:
    return Exporter(tmp_path, bucket)


def add(bucket: Bucket, partition: int, first: int, values: list[bytes | None]) -> None:
    rows = [
        Record(offset=first + at, timestamp_ms=1_700_000_000_000 + at * 3_600_000, key=b"k", value=value)
        for at, value in enumerate(values)
    ]
    bucket.add_segment("orders", partition, batches_of(rows))
    bucket.publish()


def offsets(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["_partition"], row["_offset"]) for row in rows]


def test_a_table_grows_by_what_is_new_and_holds_the_same_rows(
    spark: SparkSession, exporter: Exporter, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    for partition in (0, 1):
        bucket.add_segment("orders", partition, batches_of(records(0, 100)))
    bucket.publish()
    assert exporter.run() == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["rows"], first["bad_rows"], first["bad_table"], first["commits"]) == (200, 0, None, 1)
    assert exporter.run() == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 0
    bucket.add_segment("orders", 1, batches_of(records(100, 50)))
    bucket.add_segment("orders", 2, batches_of(records(0, 10)))
    bucket.publish()
    assert exporter.run() == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 60
    found = exporter.rows()
    assert offsets(found) == [(0, at) for at in range(100)] + [(1, at) for at in range(150)] + [
        (2, at) for at in range(10)
    ]
    written = {row.offset: row for row in records(0, 150)}
    for row in found:
        record = written[row["_offset"]]
        assert (row["_key"], row["value"], row["_topic"]) == (record.key, record.value, "orders")
        assert int(row["_timestamp"].timestamp() * 1000) == record.timestamp_ms
        assert [(each["key"], each["value"]) for each in row["_headers"] or ()] == list(record.headers)


def test_bad_rows_are_set_aside_with_their_reason(
    spark: SparkSession, exporter: Exporter, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"id": 1, "price": 2, "placed": "2026-01-31T12:00:00Z", "tags": ["a", "b"], "unknown": {}}
    values = [
        json.dumps(good).encode(),
        b"{",
        None,
        b'{"price":1}',
        b'{"id":"1"}',
        b'{"id":true}',
        b'{"id":9,"price":null}',
    ]
    add(bucket, 0, 0, values)
    assert exporter.run(form="json", schema=JSON_SCHEMA) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rows"], summary["bad_rows"]) == (2, 5)
    found = exporter.rows()
    assert [(row["id"], row["price"], row["tags"]) for row in found] == [(1, 2.0, ["a", "b"]), (9, None, None)]
    assert found[0]["placed"].isoformat() == "2026-01-31T12:00:00+00:00"
    bad = exporter.rows("orders_bad")
    assert [(row["_offset"], row["_value"]) for row in bad] == [(at, values[at]) for at in range(1, 6)]
    assert bad[0]["_reason"].startswith("no JSON: ")
    assert [row["_reason"] for row in bad[1:]] == [
        "the record has no value: a tombstone",
        "the value has no id, which is required",
        'the value.id is "1" and not of type integer',
        "the value.id is true and not of type integer",
    ]


def test_avro_becomes_columns_and_a_wider_schema_widens_the_table(
    spark: SparkSession, exporter: Exporter, bucket: Bucket
) -> None:
    def encoded(row: dict[str, Any], schema: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
        return out.getvalue()

    add(bucket, 0, 0, [encoded({"id": 7, "note": "x"}, AVRO_SCHEMA), b"\xff", encoded({"id": 8}, AVRO_SCHEMA) + b"!"])
    assert exporter.run(form="avro", schema=AVRO_SCHEMA) == 0
    wider = AVRO_SCHEMA | {"fields": [*AVRO_SCHEMA["fields"], {"name": "paid", "type": "boolean"}]}
    add(bucket, 0, 3, [encoded({"id": 9, "paid": True}, wider)])
    assert exporter.run(form="avro", schema=wider) == 0
    assert [(row["id"], row["note"], row["paid"]) for row in exporter.rows()] == [(7, "x", None), (9, None, True)]
    reasons = [row["_reason"] for row in exporter.rows("orders_bad")]
    assert reasons[0].startswith("no Avro of this schema: ")
    assert reasons[1] == "no Avro of this schema: 1 bytes are left over"


def test_a_job_that_dies_between_two_commits_leaves_nothing_twice(
    spark: SparkSession, exporter: Exporter, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (0, 3, 6):
        add(bucket, 0, first, [b'{"id":1}', b"bad", b'{"id":2}'])
    monkeypatch.setattr(job, "WAVE_BYTES", 1)  # Every segment is a wave.
    real, left = iceberg_table.commit, 3

    def commit(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return real(*arguments)

    for allowed in (3, 0, 1, 2, 9):
        left = allowed
        monkeypatch.setattr(iceberg_table, "commit", commit)
        exporter.run(form="json", schema=JSON_SCHEMA)
    assert [offset for _, offset in offsets(exporter.rows())] == [0, 2, 3, 5, 6, 8]
    assert [offset for _, offset in offsets(exporter.rows("orders_bad"))] == [1, 4, 7]


def test_of_two_exports_at_the_same_time_one_loses(spark: SparkSession, exporter: Exporter, bucket: Bucket) -> None:
    add(bucket, 0, 0, [b"a", b"b"])
    assert exporter.run() == 0
    mine, theirs = (exporter.catalog.load_table("shop.orders") for _ in range(2))
    now = iceberg_table.exported(mine)
    assert now is not None
    assert now.offsets == {0: 2}
    iceberg_table.commit(theirs, [], now)
    with pytest.raises(LostRace, match="nothing was added to it"):
        iceberg_table.commit(mine, [], now)
    # Whoever else writes to the table does not make it forget.
    theirs.append(theirs.scan().to_arrow().slice(0, 0))
    assert iceberg_table.exported(exporter.catalog.load_table("shop.orders")) == now


def test_what_cannot_be_meant_is_told(
    spark: SparkSession, exporter: Exporter, bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    add(bucket, 0, 0, [b'{"id":1}'])
    assert exporter.run(form="json") == 2
    assert "--schema belongs to --format json" in capsys.readouterr().err
    assert exporter.run(form="json", schema={"type": "object"}) == 2
    assert "says no properties of the value" in capsys.readouterr().err
    assert exporter.run(form="json", schema={"properties": {"_offset": {"type": "integer"}}}) == 2
    assert "column _offset is there twice" in capsys.readouterr().err
    assert exporter.run(form="json", schema=JSON_SCHEMA) == 0
    assert exporter.run(form="json", schema={"properties": {"id": {"type": "string"}}}) == 2
    assert "the schema does not fit the table shop.orders" in capsys.readouterr().err
    bucket.topic_ids["orders"] = uuid4()
    bucket.partitions.clear()
    add(bucket, 0, 0, [b'{"id":1}'])
    assert exporter.run(form="json", schema=JSON_SCHEMA) == 2
    assert "was deleted and created again since the last export" in capsys.readouterr().err
