"""Consumers whose broker, or whose cluster's brokers one after the other, restart: nobody rebalances who comes back."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]

WAIT_S = 90.0
PARTITIONS = 12
CLASSIC = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 300,
}
EAGER = CLASSIC | {"partition.assignment.strategy": "range"}
CONSUMER = {"group.protocol": "consumer"}
# Silent members would be noticed soon, and each restart is over much sooner.
SETTINGS = {"group.initial.rebalance.delay.ms": 300, "group.consumer.heartbeat.interval.ms": 300}


class Reader:
    """A consumer that polls in a thread of its own, and what it was told."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, settings: dict[str, Any]) -> None:
        self.taken: list[tuple[str, list[int]]] = []
        self.partitions: set[int] = set()
        self.seen: set[bytes] = set()
        self.commits = 0
        self._halt = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "on_commit": self._committed,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
                **settings,
            }
        )
        self._consumer.subscribe(
            [topic],
            on_assign=self._assigned,
            on_revoke=lambda _, gone: self._gone("revoked", gone),
            on_lost=lambda _, gone: self._gone("lost", gone),
        )
        self._thread = threading.Thread(target=self._run)

    def _assigned(self, _: Consumer, given: list[TopicPartition]) -> None:
        self.partitions = self.partitions | {each.partition for each in given}

    def _gone(self, why: str, gone: list[TopicPartition]) -> None:
        self.partitions = self.partitions - {each.partition for each in gone}
        self.taken.append((why, sorted(each.partition for each in gone)))

    def _committed(self, error: object, _: object) -> None:
        if error is None:
            self.commits += 1

    def _run(self) -> None:
        while not self._halt.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.add(message.value() or b"")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def group_of(
    count: int, bootstrap: str, group_id: str, topic: str, settings: dict[str, Any], *, partitions: int = PARTITIONS
) -> Iterator[list[Reader]]:
    """So many consumers, each of whom owns some of the topic's partitions."""
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(bootstrap, group_id, topic, settings)) for _ in range(count)]
        until(lambda: spread(readers, partitions), lambda: f"spread: {[reader.partitions for reader in readers]}")
        yield readers


def spread(readers: list[Reader], partitions: int) -> bool:
    held = [partition for reader in readers for partition in reader.partitions]
    return sorted(held) == list(range(partitions)) and all(reader.partitions for reader in readers)


def until(condition: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def at_rest(broker: BrokerProcess, group_id: str) -> int:
    """The generation, or epoch, once the group is stable."""
    until(lambda: broker.get(f"/api/v1/groups/{group_id}")["state"] == "Stable", lambda: f"{group_id} is not stable")
    generation: int = broker.get(f"/api/v1/groups/{group_id}")["generation"]
    return generation


def produce(bootstrap: str, topic: str, words: set[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number, word in enumerate(sorted(words)):
        producer.produce(topic, word, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def read_all(readers: list[Reader], words: set[bytes]) -> bool:
    return words <= set[bytes]().union(*(reader.seen for reader in readers))


@pytest.mark.parametrize("end", ["killed", "stopped"])
@pytest.mark.parametrize(
    ("settings", "wanted"),
    [(CLASSIC, "work"), (EAGER, "work"), (CONSUMER, "work"), (CONSUMER, "^wor.*")],
    ids=["cooperative", "eager", "consumer", "pattern"],
)
def test_a_restart_of_the_broker_rebalances_nobody(
    make_broker: Callable[..., BrokerProcess], settings: dict[str, Any], wanted: str, end: str
) -> None:
    broker = make_broker(settings=SETTINGS).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("work", PARTITIONS, 1)])["work"].result(WAIT_S)
    with group_of(3, broker.bootstrap, "g", wanted, settings) as readers:
        generation = at_rest(broker, "g")
        before = [reader.partitions for reader in readers]
        produce(broker.bootstrap, "work", first := {b"first %d" % number for number in range(PARTITIONS)})
        until(lambda: read_all(readers, first), lambda: "what was produced is read")
        for reader in readers:
            reader.taken.clear()
        if end == "killed":
            broker.kill()
        else:
            assert broker.stop() == 0
        broker.start()
        commits = [reader.commits for reader in readers]
        produce(broker.bootstrap, "work", second := {b"second %d" % number for number in range(PARTITIONS)})
        until(lambda: read_all(readers, second), lambda: "what was produced later is read")
        until(
            lambda: all(reader.commits > count for reader, count in zip(readers, commits, strict=True)),
            lambda: "members commit what they read, in their generation",
        )
        time.sleep(1.0)
        assert [reader.taken for reader in readers] == [[], [], []]
        assert [reader.partitions for reader in readers] == before
        assert at_rest(broker, "g") == generation
        assert broker.metric("tiered_group_rebalances_total") == 0
        assert broker.metric("tiered_group_members_expired_total") == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [3, pytest.param(25, marks=pytest.mark.soak)])
def test_a_rolling_restart_rebalances_nobody(three_brokers: "ThreeBrokers", count: int) -> None:
    """Each broker gives its groups away when it stops, cleanly or not, and gets some when it is back."""
    topics, bootstrap = [f"work-{count}-{kind}" for kind in ("classic", "consumer")], three_brokers.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partitions = max(PARTITIONS, 2 * count)
    for created in admin.create_topics([NewTopic(topic, partitions, 3) for topic in topics]).values():
        created.result(WAIT_S)
    with (
        group_of(count, bootstrap, topics[0], topics[0], CLASSIC, partitions=partitions) as classic,
        group_of(count, bootstrap, topics[1], topics[1], CONSUMER, partitions=partitions) as consumers,
    ):
        readers = [*classic, *consumers]
        generations = [at_rest(three_brokers.broker(1), topic) for topic in topics]
        before = [reader.partitions for reader in readers]
        for reader in readers:
            reader.taken.clear()
        for number, broker in enumerate(three_brokers.brokers):
            if number == 1:
                broker.kill()
            else:
                assert broker.stop() == 0
            broker.start()
            words = {b"%d %d" % (number, each) for each in range(PARTITIONS)}
            for topic, group in zip(topics, (classic, consumers), strict=True):
                produce(bootstrap, topic, words)
                until(partial(read_all, group, words), lambda: "what was produced is read")
        time.sleep(2.0)
        assert [reader.taken for reader in readers] == [[]] * len(readers)
        assert [reader.partitions for reader in readers] == before
        assert [at_rest(three_brokers.broker(1), topic) for topic in topics] == generations
