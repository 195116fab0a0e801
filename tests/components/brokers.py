"""Several real brokers on one PostgreSQL, and what tests ask of them as a whole.

Owns the processes of one cluster, and clients that speak to all of it. For faults on the wire see `tests/cluster`.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tiered.meta import brokers, partitions, topics
from tiered.meta.brokers import BrokerRow
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

WAIT_S = 60.0


class Brokers:
    """Brokers 1 to `count`, each in a rack of its own."""

    def __init__(
        self, root: Path, meta_url: str, *, count: int = 3, settings: Mapping[str, object] | None = None
    ) -> None:
        self.root = root
        self.meta_url = meta_url
        self.settings = dict(settings or {})
        self.by_id: dict[int, BrokerProcess] = {}
        self.database = Database.open(meta_url)
        for number in range(1, count + 1):
            self.add(number)

    def add(self, number: int) -> BrokerProcess:
        """A broker that has not been started."""
        arguments = ["--meta", self.meta_url, "--store", f"file://{self.root}/objects"]
        arguments += ["--broker-id", str(number), "--rack", f"rack-{number}"]
        made = self.by_id[number] = BrokerProcess(self.root / f"broker-{number}", *arguments, settings=self.settings)
        return made

    def start(self) -> None:
        """Starts those that do not run, all at once."""
        waiting = [each for each in self.by_id.values() if not self.runs(each)]
        with ThreadPoolExecutor(len(self.by_id)) as threads:
            list(threads.map(BrokerProcess.start, waiting))

    def close(self) -> None:
        for each in self.by_id.values():
            each.ensure_stopped()
        self.database.close_sync()

    @staticmethod
    def runs(broker: BrokerProcess) -> bool:
        return broker.process is not None and broker.process.poll() is None

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.by_id.values())

    def wipe(self, number: int) -> None:
        """Takes the stopped broker's disk away."""
        shutil.rmtree(self.by_id[number].data)

    def logs(self) -> str:
        return "".join(f"\n== broker {number}\n{each.log()[-3000:]}" for number, each in self.by_id.items())

    # What SQL says

    def rows(self, topic: str) -> tuple[PartitionRow, ...]:
        def load(conn: object) -> tuple[PartitionRow, ...]:
            ids = {row.topic_id for row in topics.load_all(conn) if row.name == topic}  # type: ignore[arg-type]
            return tuple(row for row in partitions.load_all(conn) if row.topic_id in ids)  # type: ignore[arg-type]

        return self.database.run_sync(load)

    def row(self, topic: str, partition: int = 0) -> PartitionRow:
        return self.rows(topic)[partition]

    def registered(self) -> dict[int, BrokerRow]:
        return {row.broker_id: row for row in self.database.run_sync(brokers.load_all)}

    def is_whole(self, topic: str) -> bool:
        """Every replica of every partition is in sync, and somebody leads each."""
        current = {row.broker_id: row.broker_epoch for row in self.registered().values() if not row.fenced}
        return all(
            row.leader in current and {each.broker_id for each in row.isr if current.get(each.broker_id) == each[1]}
            == set(row.replicas)
            for row in self.rows(topic)
        )  # fmt: skip

    def wait(self, claim: Callable[[], bool], what: str, *, wait_s: float = WAIT_S) -> float:
        """Seconds until `claim` held."""
        began = time.monotonic()
        while not claim():
            assert time.monotonic() - began < wait_s, f"not within {wait_s} s: {what}\n{self.logs()}"
            time.sleep(0.02)
        return time.monotonic() - began

    def wait_whole(self, topic: str) -> None:
        self.wait(lambda: self.is_whole(topic), f"all replicas of {topic} are in sync")

    # Clients

    def admin(self, number: int | None = None) -> AdminClient:
        """Of the whole cluster, or by way of one broker."""
        servers = self.bootstrap if number is None else self.by_id[number].bootstrap
        return AdminClient({"bootstrap.servers": servers})

    def create(self, topic: str, partitions: int = 1, replication_factor: int = 3, **configs: object) -> None:
        """Returns once every broker knows the topic, and all its replicas are in sync."""
        named = {name.replace("_", "."): str(value) for name, value in configs.items()}
        wanted = NewTopic(topic, partitions, replication_factor, config=named)
        admin = self.admin()
        admin.create_topics([wanted])[topic].result(WAIT_S)
        self.wait_whole(topic)

    def producer(self, **options: object) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": 30_000,
                "request.timeout.ms": 3_000,  # A broker that was paused answers nothing.
                "socket.timeout.ms": 4_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.sparse": True,
                **options,
            }
        )

    def produce(self, topic: str, values: Iterable[bytes], *, partition: int = 0) -> list[bytes]:
        """The values, all of them acknowledged by all in-sync replicas."""
        written: list[bytes] = []
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                written.append(message.value() or b"")

        producer = self.producer()
        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0, self.logs()
        assert not failed, f"{failed}\n{self.logs()}"
        return written

    def read(self, topic: str, *, partition: int = 0, count: int | None = None) -> list[bytes]:
        """Every value up to the high watermark, in order, or the first `count` of them."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reads-all",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 200,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + WAIT_S
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                    if len(found) == count:
                        return found
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                elif not error.retriable():
                    raise KafkaException(error)
            raise AssertionError(f"{topic}-{partition} was not read to its end\n{self.logs()}")
        finally:
            consumer.close()


@contextmanager
def three_brokers(databases: "PostgresDatabases", root: Path, settings: Mapping[str, object]) -> Iterator[Brokers]:
    """Three that run, on a database of their own."""
    url = databases.create()
    made = Brokers(root, url, settings=settings)
    try:
        made.start()
        yield made
    finally:
        made.close()
        databases.drop(url)
