"""How the cluster is, counted off its image: the brokers in service, and partitions that lack replicas or a leader.

Owns the counting, once for each change of the image, and the names of the partitions that an operator looks for.
Pure view: changes nothing, and asks nobody.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.people.partition_totals import MAX_NAMES, PartitionTotals
from tiered.ids import TopicPartition
from tiered.runtime import in_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Counts of all partitions of the cluster, and of those led here. Names are the first hundred, in order."""

    live: tuple[int, ...]
    fenced: tuple[int, ...]
    partitions: int
    offline: int
    under_replicated: int
    under_min_isr: int
    reassigning: int
    offline_names: tuple[str, ...]
    under_replicated_names: tuple[str, ...]
    under_min_isr_names: tuple[str, ...]
    leaders: Mapping[int, int]
    """How many partitions each broker leads."""
    replicas: Mapping[int, int]
    """How many replicas each broker has."""
    not_in_sync: Mapping[int, int]
    """How many of these are not in sync."""
    led_here: int
    under_replicated_here: int
    under_min_isr_here: int
    replicas_not_in_sync_here: int
    """Replicas elsewhere, of partitions led here, that are not in sync."""


class ClusterViews:
    """The newest view, made anew when the image has changed."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._made_of: tuple[int, int, int] | None = None
        self._view: ClusterView | None = None

    async def of(self, broker: Broker) -> ClusterView:
        """The view of the image as it is. One that changes while the view is made counts for the next view."""
        async with self._turn:
            made_of = (broker.image.change_number, broker.topics.version, id(broker.settings))
            if self._view is None or self._made_of != made_of:
                self._view, self._made_of = await view_of(broker), made_of
            return self._view


VIEWS: web.AppKey[ClusterViews] = web.AppKey("cluster_views", ClusterViews)


async def view_of(broker: Broker) -> ClusterView:
    """The view of the image, made in turns: 10,000 partitions take 50 ms."""
    image, me = broker.image, broker.broker_id
    names: dict[str, list[str]] = {"offline": [], "under_replicated": [], "under_min_isr": []}
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    not_in_sync: Counter[int] = Counter()
    here: Counter[str] = Counter()
    reassigning = 0
    rows = ((topic, row) for topic in broker.topics for row in image.rows_of(topic.topic_id))
    async for topic, row in in_turns(rows):
        if broker.topics.find_id(topic.topic_id) is None:
            continue  # It was deleted while others were served.
        leader = image.leader_of(TopicPartition(topic.topic_id, row.partition))
        in_sync = image.in_sync(row)
        name = f"{topic.name}-{row.partition}"
        replicas.update(row.replicas)
        lacking = [broker_id for broker_id in row.replicas if broker_id not in in_sync]
        not_in_sync.update(lacking)
        reassigning += bool(row.adding_replicas or row.removing_replicas)
        is_here = leader is not None and leader.broker_id == me
        if leader is None:
            names["offline"].append(name)
        else:
            leaders[leader.broker_id] += 1
        if lacking:
            names["under_replicated"].append(name)
            here["under_replicated"] += is_here
            here["not_in_sync"] += len(lacking) if is_here else 0
        if len(in_sync) < min(topic.config.min_insync_replicas, len(row.replicas)):
            names["under_min_isr"].append(name)
            here["under_min_isr"] += is_here
    return ClusterView(
        live=tuple(row.broker_id for row in image.live()),
        fenced=tuple(sorted(row.broker_id for row in image.brokers.values() if row.fenced)),
        partitions=len(image.rows),
        offline=len(names["offline"]),
        under_replicated=len(names["under_replicated"]),
        under_min_isr=len(names["under_min_isr"]),
        reassigning=reassigning,
        offline_names=tuple(names["offline"][:MAX_NAMES]),
        under_replicated_names=tuple(names["under_replicated"][:MAX_NAMES]),
        under_min_isr_names=tuple(names["under_min_isr"][:MAX_NAMES]),
        leaders=leaders,
        replicas=replicas,
        not_in_sync=not_in_sync,
        led_here=leaders[me],
        under_replicated_here=here["under_replicated"],
        under_min_isr_here=here["under_min_isr"],
        replicas_not_in_sync_here=here["not_in_sync"],
    )


def feed_lag(broker: Broker) -> int:
    """How many numbers of the feed this broker has not applied, as far as its heartbeats have seen."""
    return max(0, broker.counters.newest_change_number - broker.image.change_number)


def health_of(broker: Broker, view: ClusterView, totals: PartitionTotals) -> dict[str, object]:
    """Problems that an operator should look at, of this broker and of the cluster as it knows it."""
    health = broker.health(totals)
    return {
        **health,
        "failed_partitions": [*health["failed_partitions"], *totals.halted_names][:MAX_NAMES],
        "fenced": broker.broker_id in view.fenced,
        "controller_id": broker.image.controller_id,
        "live_brokers": list(view.live),
        "fenced_brokers": list(view.fenced),
        "offline_partitions": view.offline,
        "under_replicated_partitions": view.under_replicated,
        "under_min_isr_partitions": view.under_min_isr,
        "reassigning_partitions": view.reassigning,
        "offline": list(view.offline_names),
        "under_replicated": list(view.under_replicated_names),
        "under_min_isr": list(view.under_min_isr_names),
        "feed_lag": feed_lag(broker),
    }
