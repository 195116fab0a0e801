"""Who leads a partition now, told along with a refusal, so that clients need no Metadata to go on (KIP-951).

Owns what goes into those fields. Must never be needed: clients that do not know them ask for Metadata.
"""

from uuid import UUID

from tiered.broker.broker import Broker
from tiered.ids import TopicPartition
from tiered.server.kafka.dispatch import RawRequest
from tiered.wire.primitives import CurrentLeader, NodeEndpoint

NOT_LEADER, FENCED_LEADER_EPOCH = 6, 74
CODES = frozenset((NOT_LEADER, FENCED_LEADER_EPOCH))
"""The errors that say that somebody else leads."""


class LeaderHints:
    """The leaders that one answer names, and where they listen."""

    def __init__(self, request: RawRequest) -> None:
        self._broker: Broker = request.context.broker
        self._listener = request.context.connection.listener.name
        self._named: set[int] = set()

    def leader(self, name: str | None, topic_id: UUID | None, partition: int) -> CurrentLeader | None:
        """Who leads; None where nobody does, or only this broker, which has just refused."""
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
