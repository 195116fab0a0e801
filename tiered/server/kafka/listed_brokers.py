"""The brokers that clients are told of, by Metadata, by DescribeCluster, and beside refusals.

Owns the list alone. Each comes with the address of the listener that the client has asked on; a broker without one of
that name is left out. This broker comes with the address that the client has found it by, where it is bound to all of
the machine's. Must never ask SQL.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar
from uuid import UUID

from tiered.broker.broker import Broker
from tiered.broker.view.image import BrokerRow
from tiered.ids import TopicPartition
from tiered.server.kafka.dispatch import Context, RawRequest
from tiered.wire.fetch import FetchPartitionResult
from tiered.wire.primitives import CurrentLeader, NodeEndpoint
from tiered.wire.produce import PartitionResult

NOT_LEADER, FENCED_LEADER_EPOCH = 6, 74
CODES = frozenset((NOT_LEADER, FENCED_LEADER_EPOCH))
"""The errors that say that somebody else leads."""
Result = TypeVar("Result", PartitionResult, FetchPartitionResult)


class ListedBroker(NamedTuple):
    """A broker, and where clients find it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


def controller_id(context: Context) -> int:
    """The controller for clients: the broker that holds the lease, else this one. Any broker can do what they ask of
    it."""
    broker = context.broker
    if broker.options.read_only:
        return broker.broker_id
    found = broker.image.brokers.get(broker.image.controller_id)
    return broker.broker_id if found is None or found.fenced else found.broker_id


def named_brokers(context: Context) -> list[ListedBroker]:
    """The brokers that clients may have to do with, by id: in service now, or until a moment ago."""
    broker = context.broker
    if broker.options.read_only:
        return [_this(context)]
    return _listed(context, broker.image.named(broker.clock.monotonic_ms()))


def described_brokers(context: Context, *, fenced: bool) -> list[ListedBroker]:
    """The brokers in service, by id; with `fenced` all that are registered."""
    if context.broker.options.read_only:
        return [_this(context)]
    image = context.broker.image
    return _listed(context, sorted(image.brokers.values(), key=lambda row: row.broker_id) if fenced else image.live())


def _this(context: Context) -> ListedBroker:
    """All that a read replica tells of: no other broker serves what it does."""
    broker = context.broker
    address = broker.address_for(context.connection.local_host, context.connection.listener.name)
    return ListedBroker(broker.broker_id, *address, broker.rack, is_fenced=False)


def _listed(context: Context, rows: Iterable[BrokerRow]) -> list[ListedBroker]:
    broker, listener = context.broker, context.connection.listener.name
    listed = []
    for row in rows:
        is_here = row.broker_id == broker.broker_id
        address = broker.address_for(context.connection.local_host, listener) if is_here else row.address(listener)
        if address is not None:
            listed.append(ListedBroker(row.broker_id, *address, row.rack, row.fenced))
    return listed


class LeaderHints:
    """The leaders that one answer names beside its refusals, so that clients need no Metadata to go on (KIP-951).

    Must never be needed: clients that do not know these fields ask for Metadata.
    """

    def __init__(self, request: RawRequest) -> None:
        self._broker: Broker = request.context.broker
        self._listener = request.context.connection.listener.name
        self._named: set[int] = set()

    def complete(self, name: str | None, topic_id: UUID | None, answers: Iterable[Result]) -> list[Result]:
        """The answers of one topic; those that say that somebody else leads say who."""
        return [
            each._replace(current_leader=self._leader(name, topic_id, each.partition_index))
            if each.error_code in CODES
            else each
            for each in answers
        ]

    def _leader(self, name: str | None, topic_id: UUID | None, partition: int) -> CurrentLeader | None:
        """The leader; None where there is none, or only this broker, which has just refused."""
        topics = self._broker.topics
        topic = topics.find(name or "") if topic_id is None else topics.find_id(topic_id)
        if topic is None:
            return None
        where = TopicPartition(topic.topic_id, partition)
        row, leader = self._broker.image.row(where), self._broker.image.leader_of(where)
        if row is None or leader is None or leader.broker_id == self._broker.broker_id:
            return None
        self._named.add(leader.broker_id)
        return CurrentLeader(leader.broker_id, row.leader_epoch)

    @property
    def endpoints(self) -> tuple[NodeEndpoint, ...]:
        """Where the leaders named so far listen."""
        if not self._named:
            return ()
        known = self._broker.image.brokers
        rows = [known[broker_id] for broker_id in sorted(self._named) if broker_id in known]
        found = [(row, row.address(self._listener)) for row in rows]
        return tuple(NodeEndpoint(row.broker_id, *address, row.rack) for row, address in found if address is not None)
