"""The partitions of a topic as JSON, each from the best source: its leader, a replica here, the metadata store.

Owns the fields of a partition and the order of belief. Other brokers are asked once, for what no replica here knows,
and a broker that does not answer in time is left out: the facts about its partitions say so. Must never ask SQL.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tiered.broker.broker import Broker
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic
from tiered.broker.tiering import tier_plan
from tiered.ids import TopicPartition
from tiered.server.http.door.keys import BROKER
from tiered.server.http.messages import schema
from tiered.server.http.messages.origin import is_forwarded
from tiered.server.http.neighbours.answering_broker import neighbour
from tiered.server.http.neighbours.forward import Neighbour, ask_all

Facts = dict[str, Any]

HOLDER = schema.Form(
    {
        "producer_id": schema.integer("Its open transaction keeps last_stable_offset below high_watermark."),
        "first_offset": schema.integer(),
        "since_ms": schema.nullable(
            schema.integer("When its first record was written; after a restart, of what is known of it.")
        ),
    }
)
TRAFFIC: dict[str, schema.Schema] = {
    "last_write_ms": schema.nullable(
        schema.integer(
            "When the newest record was written; after a restart, its timestamp. Null without records, and where "
            "neither the leader nor a replica in sync answers.",
            minimum=-schema.LONG_MAX,
        )
    ),
    "records_in_per_s": schema.nullable(
        schema.number("Written over the last 15 to 45 seconds. Null where it is unknown, as last_write_ms.")
    ),
    "bytes_in_per_s": schema.nullable(schema.number("The same in bytes of record batches, as they were sent.")),
    "bytes_out_per_s": schema.nullable(
        schema.number("Sent by the leader to consumers over the same time. Null where the leader was not asked.")
    ),
}
PARTITION = schema.record(
    {
        "partition": schema.integer(),
        "leader": schema.integer("-1 while nobody leads it.", minimum=-1),
        "isr": schema.array(schema.integer(), "In sync and in service."),
        "replicas": schema.array(schema.integer(), "The preferred leader first."),
        "adding_replicas": schema.array(schema.integer(), "Of a reassignment under way."),
        "removing_replicas": schema.array(schema.integer(), "Of a reassignment under way."),
        "leader_epoch": schema.integer(minimum=-1),
        "under_replicated": schema.boolean("Some replica is not in sync, or not in service."),
        "under_min_isr": schema.boolean(
            "Fewer are in sync than min.insync.replicas: writes with acks=all are refused."
        ),
        "log_start_offset": schema.integer(),
        "local_log_start_offset": schema.integer(),
        "cold_end_offset": schema.integer(),
        "overdue_end_offset": schema.integer("From cold_end_offset up to here uploads are late; equal if none is."),
        "disk_only_since_ms": schema.nullable(
            schema.integer(
                "When the oldest record was written that the object store does not have; null if it has all."
            )
        ),
        "high_watermark": schema.integer(),
        "last_stable_offset": schema.integer(),
        "held_back_by": schema.nullable(HOLDER.schema),
        "log_end_offset": schema.integer(),
        "local_bytes": schema.integer("On the disk of one broker: told_by. Other replicas take about as much."),
        "cold_bytes": schema.integer("In the object store."),
        **TRAFFIC,
        "failed": schema.nullable(schema.text("Why its log takes no more writes.")),
        "told_by": schema.nullable(
            schema.integer("Which broker's log the offsets are of; null where only the metadata store could be asked.")
        ),
    },
    is_open=True,
)


def facts_here(broker: Broker, topic: Topic) -> list[Facts]:
    """Every partition of the topic as this broker alone knows it, by number."""
    return [_facts(broker, topic, row.partition) for row in broker.image.rows_of(topic.topic_id)]


async def facts_of(request: web.Request, topic: Topic) -> list[Facts]:
    """Every partition of the topic, as its leader knows it where that answers."""
    broker = request.app[BROKER]
    found = facts_here(broker, topic)
    leaders = leaders_of(broker, found)
    if is_forwarded(request) or not leaders:
        return found
    answers = await ask_all(request, leaders, f"/api/v1/topics/{quote(topic.name, safe='')}")
    return merged(found, {number: each.get("partitions", ()) for number, each in answers.items()})


def leaders_of(broker: Broker, partitions: Iterable[Facts]) -> list[Neighbour]:
    """The other brokers that lead any of these."""
    wanted = {each["leader"] for each in partitions} - {broker.broker_id}
    return [neighbour(row) for row in broker.image.live() if row.broker_id in wanted]


def merged(found: list[Facts], told: Mapping[int, Iterable[Facts]]) -> list[Facts]:
    """The same partitions, each as its leader tells it; `told` is what brokers said, by their ids."""
    by_leader = {(number, each["partition"]): each for number, some in told.items() for each in some}
    merged = []
    for each in found:
        better = by_leader.get((each["leader"], each["partition"]))
        merged.append(better if better is not None and better["told_by"] == each["leader"] else each)
    return merged


def is_known_here(broker: Broker, topic: Topic, number: int) -> bool:
    """Whether the leader need not be asked for a list: a replica here leads or is in sync."""
    return broker.log_bounds.known_here(TopicPartition(topic.topic_id, number)) is not None


def _facts(broker: Broker, topic: Topic, number: int) -> Facts:
    image, key = broker.image, TopicPartition(topic.topic_id, number)
    row, leader, hosted = image.row(key), image.leader_of(key), topic.hosted(number)
    assert row is not None, "the image has the rows of its topics"
    in_sync = image.in_sync(row)
    known = _of_catalogue(row.log_start_offset, row.cold_end_offset) if hosted is None else _of_replica(broker, hosted)
    return {
        "partition": number,
        "leader": -1 if leader is None else leader.broker_id,
        "isr": list(in_sync),
        "replicas": list(row.replicas),
        "adding_replicas": list(row.adding_replicas),
        "removing_replicas": list(row.removing_replicas),
        "leader_epoch": row.leader_epoch,
        "under_replicated": len(in_sync) < len(row.replicas),
        "under_min_isr": len(in_sync) < min(topic.config.min_insync_replicas, len(row.replicas)),
        **known,
        **(dict.fromkeys(TRAFFIC) if hosted is None or broker.broker_id not in in_sync else _traffic(broker, hosted)),
    }


def _traffic(broker: Broker, partition: Partition) -> Facts:
    """What has lately come in, which a replica in sync knows, and gone out, which the leader knows."""
    rates = partition.traffic.rates(broker.clock.now_ms())
    return {
        "last_write_ms": partition.last_write_ms(),
        "records_in_per_s": round(rates.records_in, 3),
        "bytes_in_per_s": round(rates.bytes_in, 3),
        "bytes_out_per_s": None if partition.leadership is None else round(rates.bytes_out, 3),
    }


def _of_replica(broker: Broker, partition: Partition) -> Facts:
    log = partition.log
    holder = partition.transactions.holder(partition.high_watermark, partition.log_start_offset)
    return {
        "log_start_offset": partition.log_start_offset,
        "local_log_start_offset": log.local_log_start_offset,
        "cold_end_offset": partition.cold_end_offset,
        "overdue_end_offset": broker.overdue_end_offset(partition),
        "disk_only_since_ms": tier_plan.disk_only_since_ms(partition),
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "held_back_by": None if holder is None else HOLDER.of(holder),
        "log_end_offset": log.log_end_offset,
        "local_bytes": log.size_bytes,
        "cold_bytes": partition.cold_bytes,
        "failed": partition.halted or log.failed,
        "told_by": broker.broker_id,
    }


def _of_catalogue(log_start_offset: int, cold_end_offset: int) -> Facts:
    """What is known of a partition with no replica here. No offset is made up that its log may not have."""
    return {
        "log_start_offset": log_start_offset,
        "local_log_start_offset": cold_end_offset,
        "cold_end_offset": cold_end_offset,
        "overdue_end_offset": cold_end_offset,
        "disk_only_since_ms": None,
        "high_watermark": cold_end_offset,
        "last_stable_offset": cold_end_offset,
        "held_back_by": None,
        "log_end_offset": cold_end_offset,
        "local_bytes": 0,
        "cold_bytes": 0,
        "failed": None,
        "told_by": None,
    }
