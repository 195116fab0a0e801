"""A move from Apache Kafka to this broker and back with MirrorMaker 2, by the commands of docs/from-kafka.md.

Producers write all the time, but where the guide says that they pause. What their transactions abort is copied nowhere.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.apache_kafka import ApacheKafka
from tests.broker_process import BrokerProcess, free_port
from tests.clients.guide import Reader, blocks, make_scripts
from tests.clients.java_client import fetch_jars

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]
DEADLINE_S = 240.0
PARTITIONS = 3
MARKERS = 2
"""The offsets that follow a copied record at most, when nothing more comes."""
NOT_COPIED = 10
"""The offsets at the end of a partition that may be markers, and records of the last transaction that was aborted."""
FEW = 300
GUIDE = blocks(Path(__file__).parents[2] / "docs/from-kafka.md")
PREPARE, COPY, CONSUMERS, TURN, BACK, CHECK = (
    GUIDE[each]
    for each in (
        "What you need",
        "1. Copy",
        "2. Move the consumers",
        "3. Turn the copy, move the producers",
        "4. Stay, or go back",
        "How to check that nothing is missing",
    )
)


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mirror")
    fetch_jars("mirror.xml", folder)
    return folder


@pytest.fixture
def kafka(jars: Path, tmp_path: Path) -> Iterator[ApacheKafka]:
    made = ApacheKafka(jars, tmp_path / "kafka")
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def tiered(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return make_broker(settings={"group.initial.rebalance.delay.ms": 300}).start()


@pytest.fixture
def reader(jars: Path, kafka: ApacheKafka, tiered: BrokerProcess, tmp_path: Path) -> Iterator[Reader]:
    """Who reads the guide, and has entered what prepares the rest."""
    make_scripts(tmp_path / "bin", jars)
    first = free_port()
    instead = {
        "kafka-1:9092": kafka.bootstrap,
        "tiered-1:9092": tiered.bootstrap,
        "8083": str(first),
        "8084": str(free_port(besides=first)),
    }
    made = Reader(tmp_path, tmp_path / "bin", instead)
    try:
        for block in PREPARE:
            made.enter(block)
        yield made
    finally:
        made.leave()


def until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.5)


class Orders:
    """Writes orders with rising numbers, some in transactions; beside each transaction is one that is aborted."""

    def __init__(self) -> None:
        self.count = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, bootstrap: str) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._write, args=(bootstrap,))
        self._thread.start()

    def _write(self, bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "orders", "linger.ms": 5})
        transactional.init_transactions(60)
        while not self._stopping.wait(0.2):
            self._send(producer, 10)
            assert producer.flush(60) == 0
            transactional.begin_transaction()
            for number in range(5):
                transactional.produce("orders", f"aborted {number}", f"k{number}")
            transactional.flush(60)
            transactional.abort_transaction(60)
            transactional.begin_transaction()
            self._send(transactional, 5)
            transactional.commit_transaction(60)

    def _send(self, producer: Producer, count: int) -> None:
        for number in range(self.count, self.count + count):
            headers: list[tuple[str, str | bytes | None]] = [("number", str(number))]
            producer.produce("orders", str(number), f"k{number % 17}", headers=headers)
        self.count += count

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


class Group:
    """The one consumer of a group, which commits what it has read. It may change between the clusters."""

    def __init__(self, group_id: str) -> None:
        self.seen: Counter[int] = Counter()
        self._partitions: set[int | None] = set()
        self._group_id = group_id
        self._consumer: Consumer | None = None

    def start(self, bootstrap: str) -> None:
        # Where no offset is known, an error says so.
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self._group_id,
                "auto.offset.reset": "error" if self.seen else "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(["orders"])

    def read_until(self, holds: Callable[[], bool]) -> None:
        consumer = self._consumer
        assert consumer is not None

        def read() -> bool:
            messages = consumer.consume(100, 0.5)
            for message in messages:
                assert message.error() is None, message.error()
                self.seen[int(message.value() or b"")] += 1
                self._partitions.add(message.partition())
            if messages:
                consumer.commit(asynchronous=False)
            return holds()

        until(read, lambda: f"{self._group_id} has read {len(self.seen)} orders")

    def read_some(self, count: int) -> None:
        """So many new ones, at least one of each partition among all that it has read."""
        goal = len(self.seen) + count
        self.read_until(lambda: len(self.seen) >= goal and len(self._partitions) == PARTITIONS)

    def read_all(self, orders: Orders) -> None:
        """That are written by now."""
        goal = orders.count
        self.read_until(lambda: len(self.seen) >= goal)

    def stop(self) -> None:
        assert self._consumer is not None
        self._consumer.close()

    @property
    def repeated(self) -> int:
        return self.seen.total() - len(self.seen)

    def lags(self, bootstrap: str) -> dict[int, int]:
        """Offsets between what it has committed on that cluster and the end, for partitions that it knows there."""
        asked = Consumer({"bootstrap.servers": bootstrap, "group.id": self._group_id})
        try:
            found = asked.committed([TopicPartition("orders", each) for each in range(PARTITIONS)], 30)
            known = [each for each in found if each.offset >= 0]
            return {each.partition: asked.get_watermark_offsets(each, 30)[1] - each.offset for each in known}
        finally:
            asked.close()


def copied_orders(bootstrap: str, count: int) -> list[list[int]]:
    """The orders of each partition, in their order, as a read_committed reader gets them."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("orders", each, OFFSET_BEGINNING) for each in range(PARTITIONS)])

    def read() -> bool:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:  # Else the topic is not there yet.
                found[message.partition() or 0].append(int(message.value() or b""))
        return sum(map(len, found)) >= count

    until(read, lambda: f"{sum(map(len, found))} of {count}")
    consumer.close()
    return found


def await_copied(reader: Reader, behind: str, *, offsets: int = NOT_COPIED) -> None:
    """Returns once no more than so many offsets of a partition are not copied."""
    said: list[str] = []

    def copied() -> bool:
        # The worker may be starting: then curl says that it tries again.
        said[:] = [line for line in reader.enter(behind) if not line.startswith(("curl: ", "Warning: "))]
        return all(int(line.split()[1]) <= offsets for line in said)

    until(copied, lambda: said)


def config_of(bootstrap: str, topic: str, name: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [found] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    value: str | None = found.result(30)[name].value
    return value


def await_moved(group: Group, known: str, wanted: str) -> None:
    """Returns once the group lags on the second cluster about as on the first."""

    def holds() -> bool:
        there = group.lags(wanted)
        return all(there.get(each, math.inf) <= 2 * lag + FEW for each, lag in group.lags(known).items())

    until(holds, lambda: (group.lags(known), group.lags(wanted)))


def await_at_end(group: Group, bootstrap: str) -> None:
    """Returns once the group's offsets on that cluster stand where its records end."""
    until(
        lambda: len(group.lags(bootstrap)) == PARTITIONS and max(group.lags(bootstrap).values()) <= MARKERS,
        lambda: group.lags(bootstrap),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Somebody moves, step by step, while `orders` are written."""

    reader: Reader
    kafka: str
    tiered: str
    orders: Orders
    billing: Group
    """It reads all the time, and is hardly behind."""
    audit: Group
    """It lags."""

    def live_with_kafka(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka})
        topics = [NewTopic("orders", PARTITIONS, config={"retention.ms": "864000000"})]
        topics.append(NewTopic("settings", 1, config={"cleanup.policy": "compact"}))
        for made in admin.create_topics(topics).values():
            made.result(30)
        settings = Producer({"bootstrap.servers": self.kafka})
        for number in range(20):
            settings.produce("settings", None if number % 5 == 4 else f"{number}\n", f"s{number % 7}", timestamp=number)
        assert settings.flush(30) == 0
        self.orders.start(self.kafka)
        for group in (self.billing, self.audit):
            group.start(self.kafka)
            group.read_some(200)
        self.audit.stop()

    def copy(self) -> None:
        start, create, _ = COPY
        self.reader.enter(start)
        worker = self.reader.last_started()
        self.reader.enter(create)
        self.billing.read_some(100)
        copied_orders(self.tiered, 1)
        until(lambda: len(self.audit.lags(self.tiered)) == PARTITIONS, lambda: self.audit.lags(self.tiered))
        self.reader.kill(worker)
        self.billing.read_some(100)
        self.reader.enter(start)
        self.reader.last_started()
        assert config_of(self.tiered, "orders", "retention.ms") == "864000000"
        assert config_of(self.tiered, "settings", "cleanup.policy") == "compact"

    def move_consumers(self) -> None:
        """Those of billing. Those of audit are away."""
        await_copied(self.reader, COPY[2], offsets=FEW)
        self.billing.read_all(self.orders)
        self.billing.stop()
        await_moved(self.billing, self.kafka, self.tiered)
        [show_offsets] = CONSUMERS
        said = self.reader.enter(show_offsets)
        lines = Counter(line.split()[0] for line in said)
        assert lines["billing"] == lines["audit"] == 2 * PARTITIONS, said
        print(*said, sep="\n")
        self.billing.start(self.tiered)
        self.billing.read_some(100)

    def turn_the_copy(self) -> None:
        self.orders.stop()
        await_copied(self.reader, COPY[2])
        self.billing.read_all(self.orders)
        self.check_sums()
        stop, start, tell, resume = TURN
        for block in (stop, start):
            self.reader.enter(block)
        worker = self.reader.last_started()
        for block in (tell, resume):
            self.reader.enter(block)
        self.orders.start(self.tiered)
        self.audit.start(self.tiered)
        for group in (self.billing, self.audit):
            group.read_some(100)
        self.reader.kill(worker)
        self.billing.read_some(100)
        # The worker alone: the copy is known to it.
        self.reader.enter(start.splitlines()[1])
        self.reader.last_started()

    def go_back(self) -> None:
        self.orders.stop()
        await_copied(self.reader, COPY[2].replace("$KAFKA", "$TIERED").replace("8083", "8084"))
        copied_orders(self.kafka, self.orders.count)
        for group in (self.billing, self.audit):
            group.read_all(self.orders)
            group.stop()
            await_at_end(group, self.kafka)
        self.check_sums()
        [stop] = BACK
        self.reader.enter(stop)
        twice = self.billing.repeated, self.audit.repeated
        self.orders.start(self.kafka)
        for group in (self.billing, self.audit):
            group.start(self.kafka)
            group.read_some(100)
        self.orders.stop()
        for group in (self.billing, self.audit):
            group.read_all(self.orders)
            group.stop()
        # Both had read everything when they came back, so they read nothing twice.
        assert (self.billing.repeated, self.audit.repeated) == twice

    def check_sums(self) -> None:
        """The guide's check: it is silent, and has not compared nothing with nothing."""
        [block] = CHECK
        assert self.reader.enter(block) == []
        sums = self.reader.enter("cat sums-of-tiered")
        assert len(sums) == PARTITIONS + 1
        assert all(int(line.split()[1]) > 0 for line in sums)


@pytest.fixture
def move(reader: Reader, kafka: ApacheKafka, tiered: BrokerProcess) -> Iterator[Move]:
    orders = Orders()
    yield Move(
        reader=reader,
        kafka=kafka.bootstrap,
        tiered=tiered.bootstrap,
        orders=orders,
        billing=Group("billing"),
        audit=Group("audit"),
    )
    orders.stop()


def test_producers_and_groups_move_to_tiered_and_back_and_each_record_is_there_once(move: Move) -> None:
    move.live_with_kafka()
    move.copy()
    move.move_consumers()
    move.turn_the_copy()
    move.go_back()
    print(f"{move.orders.count} orders; read twice: {move.billing.repeated} by billing, {move.audit.repeated} by audit")
    by_partition = copied_orders(move.kafka, move.orders.count)
    assert sorted(chain(*by_partition)) == list(range(move.orders.count))
    assert by_partition == [sorted(each) for each in by_partition]
