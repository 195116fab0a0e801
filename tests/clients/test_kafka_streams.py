"""Kafka Streams with `exactly_once_v2`: a join and a windowed count stay right, whatever is killed.

`make interop` kills the application and the broker a few times each; `make soak-tests` twenty times (TIERED_KILLS).
"""

import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.foreign_tools import tool
from tests.clients.java_client import compiled
from tests.clients.orders import Order, Orders
from tests.support.turn_by_turn import TURN_BY_TURN

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]
PARTITIONS = 4
CUSTOMERS = 40
COUNTRIES = 7
START_MS = int(time.time()) * 1000
APART_MS = 10
"""Of orders, in their own time, which begins now: retention goes by it."""
DEADLINE_S = 120.0
AWAY_S = 12.0
STILL_S = 2.0
FAILOVER_S = 10.0
PREFIXES, PREFIXES_IDS = [(), TURN_BY_TURN], ["as served", "turn by turn"]
MakeCluster = Callable[..., AbstractContextManager["ThreeBrokers"]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kafka Streams from Maven Central, and our application compiled against it."""
    return compiled("StreamsApp", tmp_path_factory.mktemp("streams"), project="streams.xml")


class Application:
    """An instance, with a folder for its state that outlives it."""

    def __init__(self, built: Path, bootstrap: str, state: Path, *, replicas: int) -> None:
        self._command = [tool("java"), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{built}/*:{built}", "StreamsApp"]
        self._command += [bootstrap, str(state), str(replicas)]
        self._log = state.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """It closes, and commits what it has done."""
        assert self._process is not None
        self._process.communicate(timeout=DEADLINE_S)
        assert self._process.returncode == 0, self.log[-4000:]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing meanwhile, and does not know that."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def ensure_stopped(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    @property
    def log(self) -> str:
        return self._log.read_text()


def write_customers(bootstrap: str) -> None:
    """Each with its country, all of them older than any order."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for customer in range(CUSTOMERS):
        producer.produce("customers", country_of(customer), f"c{customer}", timestamp=START_MS - 1000)
    assert producer.flush(30) == 0


def order(number: int) -> Order:
    return Order(key=f"c{number % CUSTOMERS}", value=str(number), made_ms=START_MS + number * APART_MS)


def country_of(customer: int) -> str:
    return f"country-{customer % COUNTRIES}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the application runs, and what it works on."""

    brokers: Sequence[BrokerProcess]
    bootstrap: str
    application: Application
    orders: Orders


@contextmanager
def place(built: Path, folder: Path, brokers: Sequence[BrokerProcess]) -> Iterator[Place]:
    """Topics on these brokers, with orders that come in from now on, and an application that is not started yet."""
    bootstrap = ",".join(each.bootstrap for each in brokers)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, len(brokers)) for name in ("customers", "orders", "joined", "counts")]
    for made in admin.create_topics(topics).values():
        made.result(30)
    application = Application(built, bootstrap, folder / "state", replicas=len(brokers))
    write_customers(bootstrap)
    orders = Orders(bootstrap, order)
    try:
        yield Place(brokers=brokers, bootstrap=bootstrap, application=application, orders=orders)
    finally:
        orders.abandon()
        application.ensure_stopped()


@pytest.fixture
def alone(built: Path, tmp_path: Path, make_broker: Callable[..., BrokerProcess]) -> Iterator[Place]:
    settings = {"group.initial.rebalance.delay.ms": 300, "log.segment.bytes": 262_144}
    with place(built, tmp_path, [make_broker(settings=settings).start()]) as made:
        yield made


class Committed:
    """What a read_committed reader gets of a topic, from its beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.values: dict[str, list[str]] = defaultdict(list)
        """Of each key, in their order."""
        self.count = 0
        self.longest_gap_s = 0.0
        """Between two moments at which something came."""
        self._came_s = 0.0
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])

    def await_count(self, count: int, application: Application) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count}\n{application.log[-4000:]}"
            self.read(0.5)

    def read(self, timeout_s: float) -> None:
        messages = self._consumer.consume(1000, timeout_s)
        if messages:
            now_s = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now_s - (self._came_s or now_s))
            self._came_s = now_s
        for message in messages:
            assert message.error() is None, message.error()
            self.values[(message.key() or b"").decode()].append((message.value() or b"").decode())
            self.count += 1


def run(place: Place, *, kills: int, seed: int) -> None:
    application, orders, chance = place.application, place.orders, random.Random(seed)
    application.start()
    joined, counts = Committed(place.bootstrap, "joined"), Committed(place.bootstrap, "counts")
    joined.await_count(1, application)

    application.stop()
    application.start()
    go_on(joined, application)
    for _ in range(kills):
        time.sleep(chance.uniform(0.1, 2.0))
        application.kill()
        application.start()
        go_on(joined, application)
    for _ in range(kills):
        time.sleep(chance.uniform(0.1, 2.0))
        broker = chance.choice(place.brokers)
        broker.kill()
        time.sleep(chance.uniform(0.0, 0.5))
        if len(place.brokers) > 1:
            go_on(joined, application)
        broker.start()
        go_on(joined, application)
    finish(place, joined, counts)
    application.stop()
    print(f"{kills} kills of each (seed {seed}): {orders.count} orders, each joined and counted once")


def run_for(place: Place, seconds: float, *, kills_brokers: bool, seed: int = 1) -> float:
    """How long the application stood still at most, in seconds."""
    chance = random.Random(seed)
    place.application.start()
    joined, counts = Committed(place.bootstrap, "joined"), Committed(place.bootstrap, "counts")
    go_on(joined, place.application)
    joined.longest_gap_s = 0.0
    kills, ends = 0, time.monotonic() + seconds
    while time.monotonic() < ends:
        if kills_brokers:
            broker = chance.choice(place.brokers)
            broker.kill()
            kills += 1
            read_for(joined, chance.uniform(0.0, 12.0))
            go_on(joined, place.application)
            with ThreadPoolExecutor(1) as thread:
                starting = thread.submit(broker.start)
                while not starting.done():
                    joined.read(0.1)
            starting.result()
        read_for(joined, chance.uniform(1.0, 5.0))
    go_on(joined, place.application)
    finish(place, joined, counts)
    place.application.stop()
    print(f"{seconds:g} s, {kills} brokers killed: {joined.count} orders, none waited {joined.longest_gap_s:.2f} s")
    return joined.longest_gap_s


def read_for(joined: "Committed", seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        joined.read(0.1)


def finish(place: Place, joined: "Committed", counts: "Committed") -> None:
    """Each order that was written is joined and counted once."""
    orders, application = place.orders, place.application
    orders.finish()
    for each in (joined, counts):
        each.await_count(orders.count, application)
        each.read(1.0)
    check_joined(joined, orders.count)
    check_counts(counts, orders.count)
    assert "failed" not in application.log


def go_on(joined: Committed, application: Application) -> None:
    """Returns once the application has committed something more."""
    joined.read(0.0)
    joined.await_count(joined.count + 1, application)


def check_joined(joined: Committed, orders: int) -> None:
    for customer in range(CUSTOMERS):
        expected = [f"{country_of(customer)}:{number}" for number in range(customer, orders, CUSTOMERS)]
        assert joined.values[f"c{customer}"] == expected


def check_counts(counts: Committed, orders: int) -> None:
    expected: dict[str, int] = defaultdict(int)
    for number in range(orders):
        made_ms = START_MS + number * APART_MS
        expected[f"{country_of(number % CUSTOMERS)}@{made_ms - made_ms % 1000}"] += 1
    assert counts.values == {key: [str(each + 1) for each in range(count)] for key, count in expected.items()}


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_each_order_counts_once_however_often_application_and_broker_are_killed(alone: Place) -> None:
    run(alone, kills=3, seed=1)


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_each_order_counts_once_while_brokers_of_a_cluster_are_killed(
    built: Path, tmp_path: Path, three_brokers: "ThreeBrokers"
) -> None:
    with place(built, tmp_path, three_brokers.brokers) as made:
        run(made, kills=3, seed=3)


@pytest.mark.interop
@pytest.mark.timeout(600)
@pytest.mark.parametrize("prefix", PREFIXES, ids=PREFIXES_IDS)
def test_no_transaction_stands_still_while_nothing_is_wrong(
    built: Path, tmp_path: Path, make_cluster: MakeCluster, prefix: Sequence[str]
) -> None:
    with make_cluster(prefix=prefix) as cluster, place(built, tmp_path, cluster.brokers) as made:
        assert run_for(made, 60.0, kills_brokers=False) <= STILL_S


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("prefix", PREFIXES, ids=PREFIXES_IDS)
def test_no_transaction_waits_for_more_than_a_failover(
    built: Path, tmp_path: Path, make_cluster: MakeCluster, prefix: Sequence[str]
) -> None:
    """TIERED_STREAMS_MINUTES long; whoever is killed coordinates some of the groups and transactions."""
    minutes = float(os.environ.get("TIERED_STREAMS_MINUTES", "10"))
    with make_cluster(prefix=prefix) as cluster, place(built, tmp_path, cluster.brokers) as made:
        assert run_for(made, 60.0 * minutes, kills_brokers=True) <= FAILOVER_S


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_an_instance_that_was_taken_for_dead_adds_nothing_when_it_goes_on(
    alone: Place, built: Path, tmp_path: Path
) -> None:
    first, second = alone.application, Application(built, alone.bootstrap, tmp_path / "other", replicas=1)
    joined, counts = Committed(alone.bootstrap, "joined"), Committed(alone.bootstrap, "counts")
    first.start()
    second.start()
    try:
        joined.await_count(1, first)
        for paused, other in ((first, second), (second, first)):
            # Longer than its session and its transaction may take, so the other one has its tasks.
            with paused.paused():
                time.sleep(AWAY_S)
                go_on(joined, other)
            go_on(joined, other)
        finish(alone, joined, counts)
        assert "failed" not in second.log
    finally:
        second.kill()


@pytest.mark.soak
def test_twenty_kills_of_each_leave_every_count_right(alone: Place) -> None:
    kills = int(os.environ.get("TIERED_KILLS", "20"))
    run(alone, kills=kills, seed=int(os.environ.get("TIERED_SEED", "2")))
