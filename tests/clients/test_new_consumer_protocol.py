"""confluent-kafka with `group.protocol=consumer`: what applications see of KIP-848 groups."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.clients import value_of
from tests.components.group_members import Member

SESSION_MS = 2000
SETTINGS = {"group.consumer.session.timeout.ms": SESSION_MS, "group.consumer.heartbeat.interval.ms": 200}
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings=SETTINGS).start()
    yield process
    process.ensure_stopped()


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


@pytest.fixture
def member(broker: BrokerProcess) -> Iterator[Callable[..., "Watched"]]:
    """Makes consumers; they are closed afterwards."""
    made: list[Watched] = []

    def make(group_id: str, *topics: str, **settings: Any) -> Watched:
        made.append(Watched(broker.bootstrap, group_id, topics, settings))
        return made[-1]

    yield make
    for each in made:
        each.consumer.close()


class Watched:
    """A consumer, and what it was told."""

    def __init__(self, bootstrap: str, group_id: str, topics: tuple[str, ...], settings: dict[str, Any]) -> None:
        self.revoked: list[int] = []
        self.lost: list[int] = []
        self.values: list[bytes] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group_id,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe(
            list(topics),
            on_revoke=lambda _, gone: self.revoked.extend(each.partition for each in gone),
            on_lost=lambda _, gone: self.lost.extend(each.partition for each in gone),
        )

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def poll(self) -> None:
        for message in self.consumer.consume(100, 0.02):
            assert message.error() is None, message.error()
            self.values.append(value_of(message))


def until(condition: Callable[[], object], *members: Watched) -> None:
    """Polls all of `members` until `condition` holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, [sorted(each.partitions) for each in members]
        for each in members:
            each.poll()
        if not members:
            time.sleep(0.02)


def create(admin: AdminClient, name: str, partitions: int) -> None:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(DEADLINE_S)


def write(broker: BrokerProcess, topic: str, count: int, partitions: int) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(DEADLINE_S) == 0
    return values


def all_of(topic: str, partitions: int) -> set[tuple[str, int]]:
    return {(topic, number) for number in range(partitions)}


def test_members_share_partitions_commit_and_take_over_from_each_other(
    broker: BrokerProcess, admin: AdminClient, member: Callable[..., Watched]
) -> None:
    create(admin, "shared", 6)
    values = write(broker, "shared", 300, 6)
    one = member("g-shared", "shared")
    until(lambda: len(one.values) == 300, one)
    assert sorted(one.values) == sorted(values)
    one.consumer.commit(asynchronous=False)
    two = member("g-shared", "shared")
    until(lambda: len(one.partitions) == len(two.partitions) == 3, one, two)
    assert one.partitions | two.partitions == all_of("shared", 6)
    assert sorted(one.revoked) == sorted(number for _, number in two.partitions), "only what moves is revoked"
    more = write(broker, "shared", 60, 6)
    until(lambda: len(one.values) + len(two.values) == 360, one, two)
    assert sorted(one.values[300:] + two.values) == sorted(more), "nothing twice"
    two.consumer.commit(asynchronous=False)
    two.consumer.close()
    until(lambda: one.partitions == all_of("shared", 6), one)
    last = write(broker, "shared", 6, 6)
    until(lambda: len(one.values) >= 300 + 60 - len(two.values) + 6, one)
    assert sorted(one.values[-6:]) == sorted(last), "what the other committed is not read again"


def test_a_killed_member_is_replaced_after_its_session(
    broker: BrokerProcess, admin: AdminClient, member: Callable[..., Watched]
) -> None:
    create(admin, "killed", 4)
    one = member("g-killed", "killed")
    script = (
        "import sys, confluent_kafka as c\n"
        "m = c.Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'g-killed', 'group.protocol': 'consumer'})\n"
        "m.subscribe(['killed'])\n"
        "while True: m.poll(0.1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, broker.bootstrap])
    try:
        until(lambda: len(one.partitions) == 2, one)
    finally:
        process.kill()
        process.wait()
    until(lambda: one.partitions == all_of("killed", 4), one)


def test_a_member_that_was_thrown_out_joins_again(
    broker: BrokerProcess, admin: AdminClient, member: Callable[..., Watched]
) -> None:
    create(admin, "thrown", 2)
    one = member("g-thrown", "thrown")
    until(lambda: one.partitions == all_of("thrown", 2), one)
    member_ids = [each.member_id for each in described(admin, "g-thrown").members]
    with Member(broker, "g-thrown") as somebody:
        assert somebody.leave(*((member_id, None) for member_id in member_ids)).error_code == 0
    until(lambda: one.lost, one)
    until(lambda: one.partitions == all_of("thrown", 2), one)
    assert [each.member_id for each in described(admin, "g-thrown").members] == member_ids, "a member keeps its id"
    one.consumer.commit(offsets=[TopicPartition("thrown", 0, 0)], asynchronous=False)


def test_a_pattern_finds_topics_that_are_created_later(admin: AdminClient, member: Callable[..., Watched]) -> None:
    create(admin, "orders-eu", 1)
    create(admin, "not-orders", 1)
    one = member("g-pattern", "^orders-.*")
    until(lambda: one.partitions == {("orders-eu", 0)}, one)
    create(admin, "orders-us", 2)
    until(lambda: one.partitions == {("orders-eu", 0), *all_of("orders-us", 2)}, one)


def test_a_bad_pattern_is_an_error_that_the_application_sees(
    broker: BrokerProcess, member: Callable[..., Watched]
) -> None:
    one = member("g-bad", "^orders-a{1001}")  # librdkafka lets it pass, RE2 does not
    deadline = time.monotonic() + DEADLINE_S
    while (message := one.consumer.poll(0.1)) is None or message.error() is None:
        assert time.monotonic() < deadline
    assert "regular expression" in str(message.error()).lower() or "regex" in str(message.error()).lower()


def test_a_static_member_that_restarts_keeps_its_partitions(admin: AdminClient, member: Callable[..., Watched]) -> None:
    create(admin, "static", 4)
    one = member("g-static", "static", group_instance_id="a")
    two = member("g-static", "static", group_instance_id="b")
    until(lambda: len(one.partitions) == len(two.partitions) == 2, one, two)
    had, kept = one.partitions, two.partitions
    revoked_before = list(two.revoked)  # Who came first had all four, and gave two up to the other.
    one.consumer.close()
    back = member("g-static", "static", group_instance_id="a")
    until(lambda: len(back.partitions) == 2, back, two)
    assert (back.partitions, two.partitions) == (had, kept)
    assert two.revoked == revoked_before, "the world did not stop"


def test_new_partitions_are_assigned(admin: AdminClient, member: Callable[..., Watched]) -> None:
    create(admin, "grown", 1)
    one, two = member("g-grown", "grown"), member("g-grown", "grown")
    until(lambda: len(one.partitions) + len(two.partitions) == 1, one, two)
    admin.create_partitions([NewPartitions("grown", 4)])["grown"].result(DEADLINE_S)
    until(lambda: len(one.partitions) == len(two.partitions) == 2, one, two)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_member_chooses_the_assignor(admin: AdminClient, member: Callable[..., Watched], assignor: str) -> None:
    create(admin, f"with-{assignor}", 3)
    one = member(f"g-{assignor}", f"with-{assignor}", group_remote_assignor=assignor)
    until(lambda: len(one.partitions) == 3, one)


def test_tools_list_describe_and_delete_the_group(admin: AdminClient, member: Callable[..., Watched]) -> None:
    create(admin, "shown", 2)
    one = member("g-shown", "shown")
    until(lambda: len(one.partitions) == 2, one)
    one.consumer.commit(offsets=[TopicPartition("shown", 1, 0)], asynchronous=False)
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(DEADLINE_S).valid}
    assert listed["g-shown"].type.name == "CONSUMER"
    assert listed["g-shown"].state.name == "STABLE"
    found = described(admin, "g-shown")
    (seen,) = found.members
    assert {(each.topic, each.partition) for each in seen.assignment.topic_partitions} == all_of("shown", 2)
    assert found.partition_assignor == "uniform"
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["g-shown"])["g-shown"].result(DEADLINE_S)
    one.consumer.close()
    until(lambda: described(admin, "g-shown").state.name == "EMPTY")
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g-shown")])["g-shown"].result(DEADLINE_S)
    assert [(each.topic, each.partition, each.offset) for each in offsets.topic_partitions] == [("shown", 1, 0)]
    admin.delete_consumer_groups(["g-shown"])["g-shown"].result(DEADLINE_S)


def described(admin: AdminClient, group_id: str) -> Any:
    return admin.describe_consumer_groups([group_id])[group_id].result(DEADLINE_S)
