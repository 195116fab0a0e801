"""ListOffsets for one partition, as a client asks for it."""

from tests.clients.raw import RawConnection
from tiered.wire import messages


def offset_at(connection: RawConnection, topic: str, timestamp_ms: int, *, version: int = 11) -> tuple[int, int, int]:
    """(error code, offset, timestamp)"""
    namespace = messages.request(2, version)
    partition = namespace.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp_ms)
    wanted = namespace.ListOffsetsTopic(name=topic, partitions=[partition])
    request = namespace.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[wanted], timeout=1000)
    found = connection.ask(2, version, request).topics[0].partitions[0]
    return int(found.error_code), found.offset, found.timestamp
