"""The user's options of a write, as values: options and columns of Spark's Kafka sink, checked on the driver.

Must never ignore an option, nor let a query begin whose rows cannot have a topic and a value.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_tiered.client_options import ClientOptions, client_options
from pyspark_tiered.option_values import http_urls
from tiered.errors import InvalidConfig
from tiered.ids import is_legal_topic_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}
_KNOWN = ("topic", "includeHeaders", "transactionalIdPrefix", "catalog")
_LONGEST_PREFIX = 200
_SPARKS_OWN = {
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
}
"""Options of a stream that Spark shows to its sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOptions:
    """How the transactions of a write are named, for how long they may be open, and who commits them together."""

    prefix: str
    catalog: tuple[str, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """All that a task needs to write. `columns` are those of the rows that are written, in any order."""

    bootstrap_servers: str
    topic: str | None
    columns: tuple[str, ...]
    client: ClientOptions = field(default_factory=ClientOptions)
    transactions: TransactionOptions | None = None


def parse_write_options(given: Mapping[str, str], schema: "StructType") -> WriteOptions:
    """The options in `given` (names in any case). Raises `InvalidConfig` that names the option or column."""
    options = {name.lower(): value for name, value in given.items()}
    client = {name[len("kafka.") :]: value for name, value in options.items() if name.startswith("kafka.")}
    _check_names(options)
    bootstrap_servers = client.get("bootstrap.servers", "").strip()
    if not bootstrap_servers:
        raise InvalidConfig("give option kafka.bootstrap.servers: records are written to brokers, host:port,host:port")
    topic = options.get("topic", "").strip() or None
    if topic is not None and not is_legal_topic_name(topic):
        raise InvalidConfig(f"option topic is {topic[:80]!r}, which is no topic name: use 1 to 249 of [a-zA-Z0-9._-]")
    columns = _columns(schema)
    if topic is None and "topic" not in columns:
        raise InvalidConfig("no topic to write to: give option topic, or a column topic of type string")
    if "value" not in columns:
        raise InvalidConfig("there is no column value: rows need one of type binary or string")
    told = client_options(client, writing=True)
    return WriteOptions(
        bootstrap_servers=bootstrap_servers,
        topic=topic,
        columns=columns,
        client=told,
        transactions=_transactions(options, told),
    )


def _transactions(options: Mapping[str, str], client: ClientOptions) -> TransactionOptions | None:
    catalog = http_urls(options, "catalog")
    prefix = options.get("transactionalidprefix")
    if prefix is None:
        if catalog or "kafka.transaction.timeout.ms" in options:
            name = "catalog" if catalog else "kafka.transaction.timeout.ms"
            raise InvalidConfig(f"option {name} is for writes with transactions: give transactionalIdPrefix as well")
        return None
    if not 0 < len(prefix) <= _LONGEST_PREFIX or prefix != prefix.strip():
        raise InvalidConfig(
            f"option transactionalIdPrefix is {prefix[:80]!r}; give a name that no other job has, of up to "
            f"{_LONGEST_PREFIX} characters"
        )
    if not catalog:
        raise InvalidConfig(
            "option transactionalIdPrefix needs catalog: a broker's HTTP address like http://broker-1:8080, or several "
            "with commas; one of them commits what the tasks wrote"
        )
    if not client.acks_all:
        raise InvalidConfig("option transactionalIdPrefix needs kafka.acks=all: remove kafka.acks")
    return TransactionOptions(prefix=prefix, catalog=catalog, timeout_ms=client.transaction_timeout_ms)


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _KNOWN}
    for name in sorted(options):
        if name.startswith("kafka.") or name in known or name in _SPARKS_OWN:
            continue
        if name == "path":
            raise InvalidConfig("save() and start() take no path; name the topic with option topic")
        close = difflib.get_close_matches(name, known, n=1)
        hint = (
            f"did you mean {known[close[0]]}?"
            if close
            else "known are topic, transactionalIdPrefix, catalog and kafka.*"
        )
        raise InvalidConfig(f"unknown option {name!r}: {hint}")


def _columns(schema: "StructType") -> tuple[str, ...]:
    """The columns that are written. Others are left out, as by Spark's Kafka sink.

    So what was read from a topic can be written as it is.
    """
    found = []
    for column in schema.fields:
        name = column.name.lower()
        allowed = _TYPES.get(name)
        if allowed is None:
            continue
        given = column.dataType.simpleString()
        if given not in allowed:
            raise InvalidConfig(f"column {name} is {given}; it must be {' or '.join(allowed)}: cast it")
        if name in found:
            raise InvalidConfig(f"column {name} is there twice: drop one")
        found.append(name)
    return tuple(found)
