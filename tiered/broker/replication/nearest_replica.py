"""Sends consumers that name their rack to a follower in it (KIP-392).

Owns what the rule is asked with. Must never decide: `rules.replication.nearest_replica` does.
"""

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.view.image import ClusterImage
from tiered.rules.replication.nearest_replica import Candidate, preferred_read_replica

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def nearest_replica(
    context: BrokerContext, image: ClusterImage, partition: Partition, *, rack: str, fetch_offset: int
) -> int | None:
    """The broker that a consumer in `rack` should read `fetch_offset` from; None when it is this one, the leader."""
    leadership = partition.leadership
    if leadership is None or not rack or len(leadership.committed) < 2 or rack == context.rack:
        return None
    if context.settings.cluster.replica_selector_class != RACK_AWARE:
        return None
    candidates = []
    for member in leadership.committed:
        known = image.brokers.get(member.broker_id)
        fetched = leadership.fetched_by(member.broker_id)
        if member == leadership.me or known is None or fetched is None or not image.is_current(member):
            continue
        if fetched.broker_epoch == member.broker_epoch:
            candidates.append(Candidate(member.broker_id, known.rack, fetched.offset))
    return preferred_read_replica(candidates, leader_id=context.broker_id, rack=rack, fetch_offset=fetch_offset)
