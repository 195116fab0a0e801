"""A topic under steady load for tests of one fault: a prober for each partition, and what it was told.

Owns the topic's creation, the prober and its history.
"""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.history import NO_OFFSET, HistoryWriter, Kind, Operation, Outcome, decode_value, read_history
from tests.cluster.processes import ClusterProcesses
from tests.cluster.senders import PATIENT, Sender, SenderPlan
from tests.faults.ledger import watermarks

PROBER = 4
DEADLINE_S = 60.0


def create_topic(
    cluster: ClusterProcesses, topic: str, partitions: int, *, config: Mapping[str, str] | None = None
) -> None:
    """A topic with a replica on every broker. Returns when all are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(topic, partitions, len(cluster.ids), config=dict(config or {}))
    admin.create_topics([new], operation_timeout=30)[topic].result(DEADLINE_S)
    cluster.wait_until(lambda: cluster.is_in_sync(topic), f"the replicas of {topic} are in sync")


def wait_until_clients_find(cluster: ClusterProcesses, topic: str, partition: int, leader: int) -> None:
    """Returns when clients are told of this leader. Brokers hear of what SQL has a moment later; who asks librdkafka
    for offsets in between is sent to the old leader, and stays there until the call's time-out."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def is_found() -> bool:
        return admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions[partition].leader == leader

    cluster.wait_until(is_found, f"clients are told that broker {leader} leads {topic}-{partition}")


class Traffic:
    """Probes to every partition of one topic with acks=all. Used as a context."""

    def __init__(
        self, cluster: ClusterProcesses, topic: str, partitions: int, *, per_second: float = 10.0, value_bytes: int = 16
    ) -> None:
        self.partitions = [(topic, partition) for partition in range(partitions)]
        self._path: Path = cluster.folder / f"{topic}.history"
        self._history = HistoryWriter(self._path)
        self._cluster = cluster
        plan = SenderPlan(
            client=PROBER,
            per_second=per_second * partitions,
            value_bytes=value_bytes,
            config={**PATIENT, "linger.ms": 0},
        )
        self.sender = Sender(plan, cluster.bootstrap, self.partitions, self._history)

    def __enter__(self) -> Self:
        self.sender.start()
        self.wait_for_acknowledgements()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.sender.finish(DEADLINE_S if kind is None else 1.0)
        self._history.close()

    def wait_for_acknowledgements(self, each: int = 3) -> None:
        """Returns when every partition has acknowledged so many probes sent from now on."""
        began_us = time.monotonic_ns() // 1000
        deadline = time.monotonic() + DEADLINE_S
        while True:
            news = [operation for operation in self.acknowledged() if operation.started_us > began_us]
            counts = [sum(each.partition == index for each in news) for index in range(len(self.partitions))]
            if min(counts) >= each:
                return
            assert time.monotonic() < deadline, f"probes are not acknowledged: {counts}\n{self._cluster.last_words()}"
            time.sleep(0.05)

    def acknowledged(self) -> list[Operation]:
        """Every probe that was acknowledged so far."""
        self._history.flush()
        return [
            operation
            for operation in read_history(self._path)
            if operation.kind is Kind.SEND and operation.outcome is Outcome.OK
        ]

    def unknown(self) -> int:
        self._history.flush()
        return sum(operation.outcome is not Outcome.OK for operation in read_history(self._path))

    def silence_s(self, index: int, since_us: int) -> float:
        """The longest time without an acknowledgement from this partition since then, up to the last one."""
        times = [since_us, *(op.ended_us for op in self.acknowledged() if op.partition == index)]
        later = sorted(at for at in times if at >= since_us)
        return max((after - before for before, after in pairwise(later)), default=0) / 1e6

    def check_all_read_back(self) -> int:
        """How many records there are; raises AssertionError where an acknowledged one is not at its offset."""
        found = read_values(self._cluster.bootstrap, self.partitions)
        for operation in self.acknowledged():
            name, log = self.partitions[operation.partition], found[operation.partition]
            if operation.offset == NO_OFFSET:
                # The client knows by a later batch's success that it is stored, and was never told where.
                assert operation.value in log.values(), f"{name}: an acknowledged record is lost"
            else:
                assert log.get(operation.offset) == operation.value, f"{name} at {operation.offset} is lost"
        values = [value for log in found.values() for value in log.values()]
        assert len(set(values)) == len(values), "a record stands there twice"
        return len(values)


def read_values(
    bootstrap: str, partitions: Sequence[tuple[str, int]], *, rack: str | None = None
) -> dict[int, dict[int, int]]:
    """Offset and value of every record below the present high watermarks, by index of the partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-back",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
            **({"client.rack": rack} if rack else {}),
        }
    )
    try:
        index = {partition: number for number, partition in enumerate(partitions)}
        ends = {each: watermarks(consumer, *each)[1] for each in partitions}
        consumer.assign([TopicPartition(*each, 0) for each in partitions])
        found: dict[int, dict[int, int]] = {number: {} for number in index.values()}
        deadline = time.monotonic() + DEADLINE_S
        while any(len(found[index[each]]) < end for each, end in ends.items()):
            assert time.monotonic() < deadline, f"read {[len(log) for log in found.values()]} of {ends}"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    assert topic is not None
                    assert partition is not None
                    assert offset is not None
                    found[index[topic, partition]][offset] = decode_value(message.value() or b"")
        return found
    finally:
        consumer.close()
