"""Kafka Connect with an exactly-once source (KIP-618): each line of a file is a record once, whatever is killed.

Its workers have transactional producers for records and source offsets together, one for the connector configs, and
fence the tasks of earlier generations through the admin client.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.connect_worker import DEADLINE_S, Worker
from tests.clients.java_client import fetch_jars

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
KILLS = 3


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("connect")
    fetch_jars("connect.xml", folder)
    return folder


class Lines:
    """Appends numbered lines to a file until told to stop: slower than the connector, which leaves what is beyond its
    `batch.size` until the file grows again."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with self.file.open("a") as file:
            while not self._stopping.wait(0.1):
                file.write("".join(f"{number}\n" for number in range(self.count, self.count + 10)))
                file.flush()
                self.count += 10

    def finish(self) -> int:
        self._stopping.set()
        self._thread.join()
        return self.count


class Committed:
    """What a read_committed reader gets, from the beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.values: list[str] = []
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def await_count(self, count: int, worker: Worker) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while len(self.values) < count:
            assert time.monotonic() < deadline, (len(self.values), worker.ask("/connectors/lines/status"))
            self.read(0.5)

    def read(self, timeout_s: float) -> None:
        for message in self._consumer.consume(1000, timeout_s):
            if message.error() is None:
                self.values.append((message.value() or b"").decode())


@pytest.fixture
def worker(
    jars: Path, make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> Iterator[tuple[BrokerProcess, Worker]]:
    broker = make_broker(settings={"group.initial.rebalance.delay.ms": 300}).start()
    made = Worker(jars, broker.bootstrap, tmp_path)
    made.start()
    yield broker, made
    made.ensure_stopped()


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    made = Lines(tmp_path / "lines.txt")
    yield made
    made.finish()


def test_each_line_is_a_record_once_when_worker_and_broker_are_killed(
    worker: tuple[BrokerProcess, Worker], lines: Lines
) -> None:
    broker, connect = worker
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(lines.file),
        "topic": "lines",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }
    connect.ask("/connectors", {"name": "lines", "config": connector})
    found = Committed(broker.bootstrap, "lines")
    found.await_count(1, connect)
    chance = random.Random(1)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.1, 2.0))
        connect.kill()
        connect.start()
        found.read(0.0)
        found.await_count(len(found.values) + 1, connect)
    time.sleep(chance.uniform(0.1, 2.0))
    broker.kill()
    broker.start()
    count = lines.finish()
    found.await_count(count, connect)
    found.read(1.0)
    assert found.values == [str(number) for number in range(count)]
