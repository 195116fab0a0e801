"""Sends consumers that name their rack to a follower in it (KIP-392).

Owns that choice. Must never send anybody to a replica that may lack what is committed.
"""

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.view.image import ClusterImage

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def nearest_replica(
    context: BrokerContext, image: ClusterImage, partition: Partition, *, rack: str, fetch_offset: int
) -> int | None:
    """The broker that a consumer in `rack` should read `fetch_offset` from; None when it is this one, the leader.

    The leader wins where it is in the consumer's rack. Of several followers there the one that is furthest wins.
    """
    leadership = partition.leadership
    if leadership is None or not rack or len(leadership.committed) < 2 or rack == context.rack:
        return None
    if context.settings.cluster.replica_selector_class != RACK_AWARE:
        return None
    furthest: tuple[int, int] | None = None
    for member in leadership.committed:
        known = image.brokers.get(member.broker_id)
        fetched = leadership.fetched_by(member.broker_id)
        if member == leadership.me or known is None or fetched is None or not image.is_current(member):
            continue
        if fetched.broker_epoch == member.broker_epoch and known.rack == rack and fetched.offset >= fetch_offset:
            furthest = max(furthest or (-1, 0), (fetched.offset, -member.broker_id))
    return None if furthest is None else -furthest[1]
