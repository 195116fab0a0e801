"""Metrics with a line for each topic, partition or group, as many as `tiered.metrics.max.series` allows.

Owns who has lines, and their numbers. Leaders report partitions, and coordinators report groups, so that sums over
brokers are right. Must never show more names than the setting allows: people choose them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic
from tiered.broker.people.lag_history import GroupLag
from tiered.ids import TopicId, TopicPartition
from tiered.runtime import in_turns
from tiered.server.http.metrics.busiest import Busiest
from tiered.server.http.metrics.prometheus import Family, counter, families_of, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """Objects with a line each (topics, partitions, groups): as many as the setting allows, the busiest ones."""

    topics: list[Topic]
    partitions: list[Partition]
    lags: Mapping[tuple[str, str], int]
    lag_seconds: Mapping[tuple[str, str], float]
    """Both by group and topic."""
    omitted: Mapping[str, int]


def _of_topics(name: str) -> Callable[[_Named], object]:
    return lambda named: {
        topic.name: sum(getattr(partition.traffic, name) for partition in topic.partitions) for topic in named.topics
    }


def _of_partitions(where: str) -> Callable[[_Named], object]:
    read = attrgetter(where)
    return lambda named: {
        (partition.topic, partition.topic_partition.partition): read(partition) for partition in named.partitions
    }


BY_NAME = (
    *(
        counter(f"tiered_topic_{name}_total", f"{what} since the start, by topic.", _of_topics(name), "topic")
        for name, what in (
            ("produced_bytes", "Bytes of batches appended"),
            ("produced_batches", "Batches appended"),
            ("produced_records", "Records appended"),
            ("fetched_bytes", "Bytes sent to consumers"),
        )
    ),
    *(
        gauge(f"tiered_partition_{name}", what, _of_partitions(where), "topic", "partition")
        for name, where, what in (
            ("log_start_offset", "log_start_offset", "First offset that can be read."),
            ("cold_end_offset", "cold_end_offset", "Where the object store's part ends."),
            ("local_log_start_offset", "log.local_log_start_offset", "First offset on the local disk."),
            ("high_watermark", "high_watermark", "Offset up to which consumers may read."),
            ("last_stable_offset", "last_stable_offset", "Offset up to which read_committed consumers may read."),
            ("log_end_offset", "log.log_end_offset", "Offset of the next record."),
            ("local_bytes", "log.size_bytes", "Bytes on the local disk."),
            ("cold_bytes", "cold_bytes", "Bytes in the object store."),
        )
    ),
    gauge(
        "tiered_group_lag",
        "Records that a group has not committed yet, by group and topic, some seconds old.",
        "lags",
        *("group", "topic"),
    ),
    gauge(
        "tiered_group_lag_seconds",
        "For how long at least the oldest record that a group has not committed is in the log, by group and topic.",
        "lag_seconds",
        *("group", "topic"),
    ),
    gauge(
        "tiered_metrics_omitted",
        "What has no lines of its own because of tiered.metrics.max.series.",
        "omitted",
        "kind",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Who has lines of their own in `/metrics`, by kind."""

    topics: Busiest[TopicId] = field(default_factory=Busiest)
    partitions: Busiest[TopicPartition] = field(default_factory=Busiest)
    groups: Busiest[tuple[str, str]] = field(default_factory=lambda: Busiest(counts_from_zero=False))
    """By group and topic. Their totals are offsets, which did not begin with this process."""


CHOSEN: web.AppKey[Chosen] = web.AppKey("chosen_for_metrics", Chosen)


async def families_by_name(broker: Broker, chosen: Chosen) -> Iterator[Family]:
    """What the broker says of each name that has lines."""
    limit, now_ms = broker.settings.http.tiered_metrics_max_series, broker.clock.monotonic_ms()
    topics = {topic.topic_id: topic async for topic in in_turns(broker.topics) if not topic.is_internal}
    led = {
        partition.topic_partition: partition
        async for topic in in_turns(topics.values())
        for partition in topic.partitions
        if partition.leadership is not None
    }
    lags = await _lags_by_topic(
        [group for group in broker.lag.latest.values() if broker.groups.is_ours(group.group_id)]
    )
    chosen_topics = await chosen.topics.of(
        list(topics),
        lambda topic_id: sum(_bytes_of(partition) for partition in topics[topic_id].partitions),
        limit=limit,
        now_ms=now_ms,
    )
    chosen_partitions = await chosen.partitions.of(
        list(led), lambda key: _bytes_of(led[key]), limit=limit, now_ms=now_ms
    )
    chosen_groups = await chosen.groups.of(list(lags), lambda key: lags[key].moved, limit=limit, now_ms=now_ms)
    omitted = {
        "topics": len(topics) - len(chosen_topics),
        "partitions": len(led) - len(chosen_partitions),
        # A group that has lines for some of its topics only is not shown whole.
        "groups": len({group for group, _ in lags.keys() - set(chosen_groups)}),
    }
    named = _Named(
        topics=[topics[topic_id] for topic_id in chosen_topics],
        partitions=[led[key] for key in chosen_partitions],
        lags={key: lags[key].lag for key in chosen_groups},
        lag_seconds={key: lags[key].lag_ms / 1000 for key in chosen_groups},
        omitted=omitted,
    )
    return families_of(BY_NAME, named)


def _bytes_of(partition: Partition) -> int:
    return partition.traffic.produced_bytes + partition.traffic.fetched_bytes


@dataclass(slots=True)
class _TopicLag:
    """How far a group is behind in a topic. `moved` grows as it commits, and as others produce."""

    lag: int = 0
    lag_ms: int = 0
    moved: int = 0


async def _lags_by_topic(groups: Iterable[GroupLag]) -> dict[tuple[str, str], _TopicLag]:
    """Lags by group and topic, in the order of their names."""
    lags: dict[tuple[str, str], _TopicLag] = {}
    pairs = (
        (group.group_id, partition)
        for group in sorted(groups, key=lambda group: group.group_id)
        for partition in sorted(group.partitions, key=lambda partition: partition.topic)
    )
    async for group_id, partition in in_turns(pairs):
        topic_lag = lags.setdefault((group_id, partition.topic), _TopicLag())
        topic_lag.lag += partition.lag
        topic_lag.lag_ms = max(topic_lag.lag_ms, partition.lag_ms)
        topic_lag.moved += partition.committed_offset + partition.high_watermark
    return lags
