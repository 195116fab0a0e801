"""An Iceberg table that a topic is exported to: its columns, what of the topic it holds, and one commit for both.

Owns the order that makes an export exact: data files first, then a single commit of the files with the offsets behind
them, which fails when anybody else has committed meanwhile. Must never let pyiceberg try such a commit again by itself:
it would put the same records behind those of another export.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from tiered.errors import InvalidConfig, LostRace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

OFFSETS = "tiered.export.offsets"
"""The property of each snapshot, and of the table, with what is in it: JSON."""
BAD_SUFFIX = "_bad"
FILE_BYTES = 128 << 20
"""Of Arrow data in one file at the most; Parquet makes less of it."""
_NO_RETRIES = {"commit.retry.num-retries": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The part of a topic that a table holds: every record below these offsets."""

    topic: str
    topic_id: str | None
    offsets: Mapping[int, int]

    def to_text(self) -> str:
        offsets = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        return json.dumps({"topic": self.topic, "topic_id": self.topic_id, "offsets": offsets})

    @classmethod
    def from_text(cls, text: str) -> "Exported":
        found = json.loads(text)
        offsets = {int(partition): int(offset) for partition, offset in found["offsets"].items()}
        return cls(topic=found["topic"], topic_id=found["topic_id"], offsets=offsets)


def open_catalog(url: str, warehouse: str, *, name: str = "tiered") -> "Catalog":
    """The SQL catalogue at `url`, as `tiered serve --meta` takes it; its tables are made where there are none."""
    try:
        from pyiceberg.catalog.sql import SqlCatalog
    except ImportError as error:
        raise InvalidConfig(
            f"{error}: run `pip install 'pyiceberg[sql-sqlite,pyiceberg-core]'` on the driver and on every executor"
        ) from error
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in ("sqlite", "postgresql"):
        raise InvalidConfig("--meta is no sqlite:///FILE and no postgresql://USER@HOST/DB")
    uri = f"postgresql+psycopg://{rest}" if scheme == "postgresql" else url
    location, properties = file_properties(warehouse)
    return SqlCatalog(name, uri=uri, warehouse=location, **properties)


def file_properties(url: str) -> tuple[str, dict[str, str]]:
    """A store's URL as pyiceberg takes it: where, and how to reach it. Credentials come from AWS's usual chain."""
    parts = urlsplit(url)
    if not parts.scheme:
        raise InvalidConfig(
            f"--warehouse {url} is no URL: write {Path(url).absolute().as_uri()} for that folder, or s3://bucket/prefix"
        )
    if parts.scheme not in ("file", "s3"):
        raise InvalidConfig(f"--warehouse {url} is neither s3://bucket/prefix nor file:///folder")
    names = {"endpoint_url": "s3.endpoint", "region": "s3.region"}
    found = dict(parse_qsl(parts.query))
    unknown = [name for name in found if name not in names]
    if unknown:
        raise InvalidConfig(
            f"--warehouse has {unknown[0]}, which files of tables do not know: give region, endpoint_url"
        )
    properties = {names[name]: value for name, value in found.items()}
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"), properties


def open_table(catalog: "Catalog", identifier: str, fields: "Sequence[pa.Field]", *, period: str | None) -> "Table":
    """The table, made or widened so that it has all `fields`; new tables are partitioned by `period` of `_timestamp`.

    Raises `InvalidConfig` when a column has another type already.
    """
    import pyarrow as pa
    from pyiceberg.exceptions import NoSuchTableError, ValidationError
    from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform

    names = [each.name for each in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidConfig(
            f"column {twice[0]} is there twice: names with _ at the front are those of the record itself"
        )
    schema = pa.schema(fields)
    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
        with catalog.create_table_transaction(identifier, schema, properties=dict(_NO_RETRIES)) as transaction:
            if period is not None:
                transforms: dict[str, Any] = {"hour": HourTransform(), "day": DayTransform(), "month": MonthTransform()}
                with transaction.update_spec() as spec:
                    spec.add_field("_timestamp", transforms[period], f"_{period}")
        return catalog.load_table(identifier)
    try:
        with table.transaction() as transaction:
            if any(table.properties.get(name) != value for name, value in _NO_RETRIES.items()):
                transaction.set_properties(dict(_NO_RETRIES))
            with transaction.update_schema() as update:
                update.union_by_name(schema)
    except (ValidationError, ValueError) as error:
        raise InvalidConfig(
            f"the schema does not fit the table {identifier}: {error}; export into another table"
        ) from error
    return catalog.load_table(identifier)


def exported(table: "Table") -> Exported | None:
    """The table's records, by the newest snapshot that says so; None for a table that no export has written to.

    The table's own property is asked only where the snapshots that said it have expired.
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        text = None if snapshot.summary is None else snapshot.summary.get(OFFSETS)
        if text is not None:
            return Exported.from_text(text)
        if snapshot.parent_snapshot_id is None:
            return None
        parent: Snapshot | None = table.snapshot_by_id(snapshot.parent_snapshot_id)
        if parent is None and OFFSETS in table.properties:
            return Exported.from_text(table.properties[OFFSETS])
        snapshot = parent
    return None


def commit(table: "Table", files: "Iterable[DataFile]", now: Exported) -> "Table":
    """The table with the files, and with what it holds now: both or neither.

    Raises `LostRace` when somebody else committed since `table` was loaded.
    """
    from pyiceberg.exceptions import CommitFailedException

    text = now.to_text()
    try:
        with table.transaction() as transaction:
            transaction.set_properties({OFFSETS: text})
            # Also without a file: the snapshot is what makes a race be noticed.
            with transaction.update_snapshot(snapshot_properties={OFFSETS: text}).fast_append() as append:
                for each in files:
                    append.append_data_file(each)
    except CommitFailedException as error:
        raise LostRace(
            f"somebody else changed table {'.'.join(table.name())} meanwhile, and nothing was added to it; run the "
            "export again, and one at a time"
        ) from error
    return table.refresh()


def write_files(
    metadata: str, properties: Mapping[str, str], batches: "Iterable[pa.RecordBatch]"
) -> "Iterator[DataFile]":
    """Writes the rows into new files of the table whose metadata this is, as JSON. Runs in a task.

    No reader sees the files before they are committed; those of a task that failed stay behind, as orphans.
    """
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for batch in batches:
        gathered.append(batch)
        gathered_bytes += batch.nbytes
        if gathered_bytes >= FILE_BYTES:
            yield from _written(metadata, properties, gathered)
            gathered, gathered_bytes = [], 0
    if gathered:
        yield from _written(metadata, properties, gathered)


def _written(metadata: str, properties: Mapping[str, str], batches: "Sequence[pa.RecordBatch]") -> "Iterator[DataFile]":
    import pyarrow as pa
    from pyiceberg.io import load_file_io

    # No public function writes a part of a table's data and leaves the commit to its caller.
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.table.metadata import TableMetadataUtil

    parsed = TableMetadataUtil.parse_raw(metadata)
    rows = pa.Table.from_batches(batches)
    if rows.num_rows:
        yield from _dataframe_to_data_files(parsed, rows, load_file_io(dict(properties), parsed.location))


def metadata_of(table: "Table") -> str:
    """The table's metadata for `write_files`: without snapshots, which no file needs and which grow."""
    found: dict[str, Any] = json.loads(table.metadata.model_dump_json())
    for name in ("snapshots", "snapshot-log", "metadata-log", "statistics", "partition-statistics"):
        found[name] = []
    found.pop("current-snapshot-id", None)
    found["refs"] = {}
    return json.dumps(found)
