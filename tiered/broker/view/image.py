"""The cluster as this broker knows it: its brokers, the replicas and leaders of partitions, the coordinators of groups.

Owns the rows that the feed has applied, and what can be read off them: everything that clients are told comes
from here, never from SQL. Must never be changed by anybody but `feed`; the controller's id alone comes with the
heartbeats, because no transaction of the feed names it. Topics are in `topics`.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

from tiered.ids import InSyncReplica, TopicId, TopicPartition
from tiered.meta.brokers import BrokerRow
from tiered.meta.coordinator_slots import SlotRow
from tiered.meta.partitions import PartitionRow
from tiered.rules.replication import reassignment, replica_set
from tiered.rules.replication.replica_set import NO_LEADER, Standing, Standings

__all__ = ["BrokerRow", "ClusterImage", "PartitionRow", "SlotRow"]

NAMED_AFTERWARDS_MS = 5_000.0
"""Longer than any client takes to hear who leads instead."""


class ClusterImage:
    """Rows by their keys. It hands out values and read-only views."""

    def __init__(self) -> None:
        self.change_number = 0
        """The last change that this broker has applied in full."""
        self.controller_id = NO_LEADER
        """Who holds the controller's lease, as the last heartbeat saw it; -1 while nobody does."""
        self._brokers: dict[int, BrokerRow] = {}
        self._standings: dict[int, Standing] = {}
        self._left_ms: dict[int, float] = {}
        """When those who are out of service were seen to leave it, by this process's monotonic clock."""
        self._rows: dict[TopicPartition, PartitionRow] = {}
        self._moving: dict[TopicPartition, PartitionRow] = {}
        self._by_topic: dict[UUID, dict[int, PartitionRow]] = {}
        self._slots: dict[int, SlotRow] = {}

    # What everybody may ask

    @property
    def brokers(self) -> Mapping[int, BrokerRow]:
        """Every registered broker, fenced ones included, by id."""
        return MappingProxyType(self._brokers)

    @property
    def standings(self) -> Standings:
        return MappingProxyType(self._standings)

    @property
    def rows(self) -> Mapping[TopicPartition, PartitionRow]:
        """Every partition of every topic, wherever its replicas are."""
        return MappingProxyType(self._rows)

    @property
    def moving(self) -> Collection[PartitionRow]:
        """The partitions that are being moved, in no order. The controller looks at them after each change."""
        return self._moving.values()

    @property
    def slots(self) -> Mapping[int, SlotRow]:
        """The coordinators of the slots."""
        return MappingProxyType(self._slots)

    @property
    def newest_tenure(self) -> int:
        """The highest of all coordinators' epochs; 0 while there is none."""
        return max((row.tenure for row in self._slots.values()), default=0)

    def row(self, topic_partition: TopicPartition) -> PartitionRow | None:
        return self._rows.get(topic_partition)

    def rows_of(self, topic_id: UUID) -> tuple[PartitionRow, ...]:
        """The partitions of one topic by number; none for a topic that is not there."""
        rows = self._by_topic.get(topic_id)
        return () if rows is None else tuple(rows[number] for number in sorted(rows))

    def replication_factor(self, topic_id: UUID) -> int | None:
        """How many replicas partition 0 has, or will have after its reassignment; None for a topic without any."""
        rows = self._by_topic.get(topic_id)
        return None if not rows else len(reassignment.target_of(rows[min(rows)].replica_set))

    def live(self) -> tuple[BrokerRow, ...]:
        """The brokers in service, by id."""
        return tuple(row for _, row in sorted(self._brokers.items()) if not row.fenced)

    def named(self, now_ms: float) -> tuple[BrokerRow, ...]:
        """The brokers that clients are told of, by id: those in service, and for a while those that have left it.

        A client may end its connection to a broker that is not named any more, and only then look for the new leaders
        of its partitions: librdkafka does so once in a second. It must hear of them first.
        """
        since_ms = now_ms - NAMED_AFTERWARDS_MS
        rows = (row for _, row in sorted(self._brokers.items()))
        return tuple(row for row in rows if not row.fenced or self._left_ms.get(row.broker_id, since_ms) > since_ms)

    def leader_of(self, topic_partition: TopicPartition) -> BrokerRow | None:
        """The broker that leads the partition; None while nobody who is in service does."""
        row = self._rows.get(topic_partition)
        if row is None:
            return None
        leader = self._brokers.get(row.leader)
        return None if leader is None or leader.fenced else leader

    def in_sync(self, row: PartitionRow) -> tuple[int, ...]:
        """The members of the ISR that are the processes which joined it: what clients are told. Others only keep
        a place (rule 3)."""
        return tuple(member.broker_id for member in row.isr if replica_set.is_current(member, self._standings))

    def is_current(self, member: InSyncReplica) -> bool:
        return replica_set.is_current(member, self._standings)

    # What the feed does

    def put_brokers(self, rows: Iterable[BrokerRow], now_ms: float) -> bool:
        """Whether anybody's standing or address is another one than before."""
        changed = False
        for row in rows:
            before = self._brokers.get(row.broker_id)
            changed = changed or before != row
            if not row.fenced:
                self._left_ms.pop(row.broker_id, None)
            elif before is not None and not before.fenced:
                self._left_ms[row.broker_id] = now_ms
            self._brokers[row.broker_id] = row
            self._standings[row.broker_id] = row.standing
        return changed

    def keep_brokers(self, registered: Collection[int]) -> bool:
        """Forgets brokers that are registered no more; whether there were any."""
        gone = [broker_id for broker_id in self._brokers if broker_id not in registered]
        for broker_id in gone:
            del self._brokers[broker_id]
            del self._standings[broker_id]
            self._left_ms.pop(broker_id, None)
        return bool(gone)

    def put_row(self, row: PartitionRow) -> None:
        key = TopicPartition(TopicId(row.topic_id), row.partition)
        self._rows[key] = row
        if row.adding_replicas or row.removing_replicas:
            self._moving[key] = row
        else:
            self._moving.pop(key, None)
        self._by_topic.setdefault(row.topic_id, {})[row.partition] = row

    def remove_topic(self, topic_id: UUID) -> None:
        for number in self._by_topic.pop(topic_id, {}):
            key = TopicPartition(TopicId(topic_id), number)
            del self._rows[key]
            self._moving.pop(key, None)

    def put_slots(self, rows: Iterable[SlotRow]) -> None:
        for row in rows:
            self._slots[row.slot] = row
