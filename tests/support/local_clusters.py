"""Records into and out of a cluster of `tiered.testing`."""

from tests.components.batches import batch
from tiered import testing
from tiered.formats import record_batch
from tiered.peer import EARLIEST, LATEST, Cluster
from tiered.testing import LocalCluster


def produce(c: LocalCluster, topic: str, *values: bytes) -> None:
    async def send() -> None:
        async with Cluster(c.bootstrap) as peers:
            for value in values:
                await peers.produce(topic, 0, batch([value]))

    testing.topics.run(send())


def read(c: LocalCluster, topic: str) -> list[bytes | None]:
    async def ask() -> list[bytes | None]:
        async with Cluster(c.bootstrap) as peers:
            edges = [(await peers.list_offsets(topic, {0: edge}))[0] for edge in (EARLIEST, LATEST)]
            offset, end = edges
            values: list[bytes | None] = []
            while offset < end:
                data = bytes((await peers.fetch(topic, 0, offset)).records)
                for position, header in record_batch.whole_batches(data, 0, len(data)):
                    if header.end_offset > offset:
                        piece = data[position : position + header.size_bytes]
                        values += [each.value for each in record_batch.records(piece)]
                        offset = header.end_offset
            return values

    return testing.topics.run(ask())
