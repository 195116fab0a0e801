"""The user's options, as values: every option of `format("tiered")`, checked.

Owns names, defaults and contradictions; names and meanings are those of Spark's Kafka source, so that a job changes one
word. Must never talk to a store or a broker, and never ignore an option: one that is unknown, or that cannot be served
yet, is an error that says what to do.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from pyspark_tiered.client_options import ClientOptions, check_client_names, client_options
from pyspark_tiered.option_values import boolean, check_topic, duration_ms, http_urls, json_object, positive
from tiered.errors import InvalidConfig
from tiered.ids import is_legal_topic_name

__all__ = [
    "EARLIEST_OFFSET", "LATEST_OFFSET", "Assign", "AtEarliest", "AtLatest", "AtOffsets", "AtTimestamps", "Isolation",
    "Offsets", "Options", "Position", "Selection", "Subscribe", "SubscribePattern", "check_names", "parse_options",
    "wants_headers",
]  # fmt: skip

LATEST_OFFSET = -1
EARLIEST_OFFSET = -2
DEFAULT_SPLIT_BYTES = 128 << 20
"""As much as Spark gives a task of files (`spark.sql.files.maxPartitionBytes`); ADR 0018."""
DEFAULT_OPEN_COST_BYTES = 4 << 20
"""As of files in Spark (`spark.sql.files.openCostInBytes`); ADR 0030."""
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000
DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_FETCH_OFFSET_RETRIES, DEFAULT_FETCH_OFFSET_PAUSE_MS = 3, 10

Offsets = Mapping[tuple[str, int], int]
"""Topic and partition to an offset (or to a timestamp in ms where that is said)."""


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """These topics, all their partitions."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribePattern:
    """Topics whose whole name matches, also those that appear later."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """These partitions of these topics."""

    partitions: Mapping[str, tuple[int, ...]]


Selection = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEarliest:
    """Each partition's `log_start_offset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLatest:
    """Each partition's end, as far as it can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffsets:
    """An offset for every partition; -1 is latest, -2 earliest."""

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimestamps:
    """The first offset whose record's timestamp is that or later: one for all, or one for every partition."""

    timestamp_ms: int | None = None
    timestamps_ms: Offsets = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> int | None:
        """The partition's timestamp in ms; None when the option does not name it."""
        return self.timestamp_ms if self.timestamp_ms is not None else self.timestamps_ms.get((topic, partition))


Position = AtEarliest | AtLatest | AtOffsets | AtTimestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of one read. At least one of `store` and `bootstrap_servers` is there."""

    selection: Selection
    starting: Position
    ending: Position
    store: str | None = None
    bootstrap_servers: str | None = None
    client: ClientOptions = field(default_factory=ClientOptions)
    catalog: tuple[str, ...] = ()
    """HTTP addresses of brokers, for pins and snapshots."""
    snapshot: str | None = None
    no_timestamp_match: Literal["error", "latest"] = "error"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    fail_on_bad_batch: bool = True
    fail_on_incomplete_store: bool = False
    include_headers: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    split_bytes: int = DEFAULT_SPLIT_BYTES
    open_cost_bytes: int = DEFAULT_OPEN_COST_BYTES
    poll_timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS
    fetch_offset_retries: int = DEFAULT_FETCH_OFFSET_RETRIES
    fetch_offset_pause_ms: int = DEFAULT_FETCH_OFFSET_PAUSE_MS


_KNOWN = (
    "store",
    "catalog",
    "snapshot",
    "isolation",
    "isolation.level",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "failOnBadBatch",
    "failOnIncompleteStore",
    "includeHeaders",
    "splitBytes",
    "openCostInBytes",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """The options in `given` (names in any case). Raises `InvalidConfig` that names the option and the way out."""
    options = {name.lower(): value for name, value in given.items()}
    client = {name[len("kafka.") :]: value for name, value in options.items() if name.startswith("kafka.")}
    check_names(options)
    bootstrap_servers = client.get("bootstrap.servers", "").strip()
    store = options.get("store")
    if not store and not bootstrap_servers:
        raise InvalidConfig(
            "give option store (the URL of the object store: enough for cold data), kafka.bootstrap.servers, or both"
        )
    told = client_options(client, writing=False)
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidConfig(f"option startingOffsetsByTimestampStrategy is {strategy!r}; use error or latest")
    starting, ending = _starting(options, streaming=streaming), _ending(options, streaming=streaming)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in options and not streaming:
            raise InvalidConfig(f"option {name} belongs to readStream; use endingOffsets to read less")
    least, most = positive(options, "minOffsetsPerTrigger"), positive(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidConfig(f"option minOffsetsPerTrigger is {least}, and maxOffsetsPerTrigger {most}: lower the first")
    catalog = http_urls(options, "catalog")
    return Options(
        selection=_selection(options, may_be_left_out="snapshot" in options),
        starting=starting,
        ending=ending,
        store=store or None,
        bootstrap_servers=bootstrap_servers or None,
        client=told,
        catalog=catalog,
        snapshot=_snapshot(options, catalog, streaming=streaming),
        no_timestamp_match="latest" if strategy == "latest" else "error",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=duration_ms(options, "maxTriggerDelay", default_ms=DEFAULT_MAX_TRIGGER_DELAY_MS),
        min_partitions=positive(options, "minPartitions"),
        max_records_per_partition=positive(options, "maxRecordsPerPartition"),
        fail_on_data_loss=boolean(options, "failOnDataLoss", default=True),
        fail_on_bad_batch=boolean(options, "failOnBadBatch", default=True),
        fail_on_incomplete_store=boolean(options, "failOnIncompleteStore", default=False),
        include_headers=boolean(options, "includeHeaders", default=False),
        isolation=_isolation(options),
        split_bytes=positive(options, "splitBytes") or DEFAULT_SPLIT_BYTES,
        open_cost_bytes=_or(positive(options, "openCostInBytes", least=0), DEFAULT_OPEN_COST_BYTES),
        poll_timeout_ms=positive(options, "kafkaConsumer.pollTimeoutMs") or DEFAULT_POLL_TIMEOUT_MS,
        fetch_offset_retries=_or(positive(options, "fetchOffset.numRetries", least=0), DEFAULT_FETCH_OFFSET_RETRIES),
        fetch_offset_pause_ms=_or(
            positive(options, "fetchOffset.retryIntervalMs", least=0), DEFAULT_FETCH_OFFSET_PAUSE_MS
        ),
    )


def wants_headers(given: Mapping[str, str]) -> bool:
    """Whether `includeHeaders` is true. Raises `InvalidConfig` when it is neither true nor false."""
    return boolean({name.lower(): value for name, value in given.items()}, "includeHeaders", default=False)


def check_names(given: Mapping[str, str]) -> None:
    """Nothing when every option is known and served, batch or stream. Raises `InvalidConfig` otherwise."""
    known = {name.lower(): name for name in _KNOWN}
    client = {name.lower()[len("kafka.") :]: value for name, value in given.items() if _is_client(name)}
    check_client_names(client)
    for name in sorted(each.lower() for each in given if not _is_client(each)):
        if name == "path":
            raise InvalidConfig("load() takes no path; name the object store with option store")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {known[close[0]]}?" if close else f"known are {', '.join(_KNOWN)} and kafka.*"
            raise InvalidConfig(f"unknown option {name!r}: {hint}")


def _is_client(name: str) -> bool:
    return name.lower().startswith("kafka.")


def _or(given: int | None, default: int) -> int:
    return default if given is None else given


def _snapshot(options: Mapping[str, str], catalog: tuple[str, ...], *, streaming: bool) -> str | None:
    name = options.get("snapshot")
    if name is None:
        return None
    if streaming:
        raise InvalidConfig("option snapshot belongs to read: a snapshot never grows; remove it, or use read")
    if not catalog:
        raise InvalidConfig("option snapshot needs option catalog, a broker's HTTP address: it knows the snapshot")
    if not is_legal_topic_name(name):
        raise InvalidConfig("option snapshot is no snapshot's name: use 1 to 249 of [a-zA-Z0-9._-]")
    for other in options:
        if other.startswith(("startingoffsets", "startingtimestamp", "endingoffsets", "endingtimestamp")):
            raise InvalidConfig(f"option {other} contradicts snapshot, which says which offsets are read: remove one")
    return name


def _selection(options: Mapping[str, str], *, may_be_left_out: bool) -> Selection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if may_be_left_out and not ways:
        return Subscribe(topics=())
    if len(ways) != 1:
        what = "none is given" if not ways else f"{' and '.join(ways)} are given"
        raise InvalidConfig(f"give exactly one of the options subscribe, subscribePattern and assign; {what}")
    text = options[ways[0].lower()]
    match ways[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
            if not topics:
                raise InvalidConfig("option subscribe names no topic; write a list like a,b")
            for topic in topics:
                check_topic("subscribe", topic)
            return Subscribe(topics=topics)
        case "subscribePattern":
            try:
                return SubscribePattern(pattern=re.compile(text))
            except re.error as error:
                raise InvalidConfig(f"option subscribePattern is no regular expression: {error}") from error
        case _:
            return Assign(partitions=_assigned(text))


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    shape = 'option assign must be JSON like {"topic":[0,1]}'
    document = json_object(text, shape)
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in document.items():
        check_topic("assign", topic)
        if not isinstance(partitions, list) or not partitions or not all(_is_count(each) for each in partitions):
            raise InvalidConfig(f"{shape}; topic {topic!r} has no list of partitions")
        found[topic] = tuple(sorted(set(partitions)))
    if not found:
        raise InvalidConfig(f"{shape}; it names no topic")
    return found


def _isolation(options: Mapping[str, str]) -> Isolation:
    """By whichever of its three names it was given."""
    given = {
        name: options[name] for name in ("isolation.level", "kafka.isolation.level", "isolation") if name in options
    }
    for name, value in given.items():
        if value not in list(Isolation):
            raise InvalidConfig(f"option {name} is {value!r}; use read_uncommitted or read_committed")
    if len(set(given.values())) > 1:
        raise InvalidConfig(f"options {' and '.join(given)} say different things: remove all but one of them")
    return Isolation(next(iter(given.values()), Isolation.READ_UNCOMMITTED.value))


def _starting(options: Mapping[str, str], *, streaming: bool) -> Position:
    stamps = _timestamps(options, "startingTimestamp", "startingOffsetsByTimestamp")
    if stamps is not None:
        return stamps
    text = options.get("startingoffsets", "latest" if streaming else "earliest").strip()
    match text.lower():
        case "earliest":
            return AtEarliest()
        case "latest":
            if not streaming:
                raise InvalidConfig("option startingOffsets is latest, where a batch ends: use earliest or offsets")
            return AtLatest()
    offsets = _offsets("startingOffsets", text, lowest=EARLIEST_OFFSET)
    if not streaming and LATEST_OFFSET in offsets.values():
        raise InvalidConfig("option startingOffsets holds -1 (latest), where a batch ends: use -2 or an offset")
    return AtOffsets(offsets=offsets)


def _ending(options: Mapping[str, str], *, streaming: bool) -> Position:
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in options:
                raise InvalidConfig(f"option {name} belongs to read; a stream has no end: remove it")
        return AtLatest()
    stamps = _timestamps(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if stamps is not None:
        return stamps
    text = options.get("endingoffsets", "latest").strip()
    match text.lower():
        case "latest":
            return AtLatest()
        case "earliest":
            raise InvalidConfig("option endingOffsets is earliest, where a batch begins: use latest or offsets")
    offsets = _offsets("endingOffsets", text, lowest=EARLIEST_OFFSET)
    if EARLIEST_OFFSET in offsets.values():
        raise InvalidConfig("option endingOffsets holds -2 (earliest), where a batch begins: use -1 or an offset")
    return AtOffsets(offsets=offsets)


def _timestamps(options: Mapping[str, str], for_all: str, for_each: str) -> AtTimestamps | None:
    """The more special option goes first, as in Spark's Kafka source: one timestamp, then one per partition."""
    if for_all.lower() in options:
        text = options[for_all.lower()].strip()
        if not text.isascii() or not text.isdigit():
            raise InvalidConfig(f"option {for_all} is {text!r}; give milliseconds since 1970 UTC")
        return AtTimestamps(timestamp_ms=int(text))
    if for_each.lower() in options:
        return AtTimestamps(timestamps_ms=_offsets(for_each, options[for_each.lower()], lowest=0))
    return None


def _offsets(name: str, text: str, *, lowest: int) -> dict[tuple[str, int], int]:
    shape = f'option {name} must be JSON like {{"topic":{{"0":23,"1":42}}}}'
    found: dict[tuple[str, int], int] = {}
    for topic, partitions in json_object(text, shape).items():
        check_topic(name, topic)
        if not isinstance(partitions, dict):
            raise InvalidConfig(f"{shape}; topic {topic!r} has no object of partitions")
        for partition, value in partitions.items():
            if not partition.isascii() or not partition.isdigit():
                raise InvalidConfig(f"{shape}; {partition!r} of topic {topic!r} is no partition")
            if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value < 2**63:
                raise InvalidConfig(f"{shape}; partition {partition} of topic {topic!r} has {value!r}")
            found[topic, int(partition)] = value
    return found


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
