"""Real clients in consumer groups: they share partitions, rebalance, commit, resume, and administrators see them."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import NewTopic
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.broker_process import BrokerProcess
from tests.clients import clients

DEADLINE_S = 40.0
PARTITIONS = 6
RECORDS = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Groups in it begin soon."""
    settings = {"group.initial.rebalance.delay.ms": 100}
    process = BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings=settings).start()
    yield process
    process.ensure_stopped()


def create(broker: BrokerProcess, topic: str) -> str:
    clients.admin(broker.bootstrap).create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    return topic


def produce(broker: BrokerProcess, topic: str, start: int = 0) -> set[bytes]:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    values = {b"%d" % number for number in range(start, start + RECORDS)}
    for number in range(start, start + RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0
    return values


class Member(Protocol):
    """One consumer of a group, whatever the client."""

    def poll(self) -> list[bytes]: ...

    def owned(self) -> set[int]: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class ConfluentMember:
    def __init__(self, broker: BrokerProcess, group: str, topic: str, **config: Any) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": "range",
                "log_level": 0,
            }
            | config
        )
        self.consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        found = self.consumer.consume(100, 0.05)
        assert all(message.error() is None for message in found), [message.error() for message in found]
        return [clients.value_of(message) for message in found]

    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class KafkaPythonMember:
    def __init__(self, broker: BrokerProcess, group: str, topic: str, **config: Any) -> None:
        self.consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[RangePartitionAssignor],
            **config,
        )

    def poll(self) -> list[bytes]:
        return [message.value for messages in self.consumer.poll(200).values() for message in messages]

    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class AiokafkaMember:
    """Its loop runs while it is polled, and its heartbeats with it."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, **config: Any) -> None:
        self.loop = asyncio.new_event_loop()

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=6000,
                heartbeat_interval_ms=300,
                partition_assignment_strategy=(AiokafkaRange,),
                **config,
            )
            await consumer.start()
            return consumer

        # Its start waits until it has joined, and others must be polled for that.
        self.starting = self.loop.create_task(start())
        self.consumer: Any = None

    def poll(self) -> list[bytes]:
        async def once() -> list[bytes]:
            if self.consumer is None:
                await asyncio.wait([self.starting], timeout=0.05)
                if not self.starting.done():
                    return []
                self.consumer = self.starting.result()
            found = await self.consumer.getmany(timeout_ms=50)
            return [message.value for messages in found.values() for message in messages]

        return self.loop.run_until_complete(once())

    def owned(self) -> set[int]:
        return set() if self.consumer is None else {each.partition for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.loop.run_until_complete(self.consumer.commit())

    def close(self) -> None:
        if self.consumer is not None:
            self.loop.run_until_complete(self.consumer.stop())
        self.loop.close()


MEMBERS: dict[str, Callable[..., Member]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


def poll_until(members: list[Member], done: Callable[[], bool], into: list[bytes] | None = None) -> list[bytes]:
    """What all of `members` read until `done`; they must all be polled, or the group waits for them.

    They are polled at the same time, as members are that are processes. kafka-python 3.0 throws away an assignment
    that comes between two of its polls and joins again: polled in turns, two of them made each other do so for ever.
    """
    found = [] if into is None else into
    deadline = time.monotonic() + DEADLINE_S
    with ThreadPoolExecutor(len(members)) as at_once:
        while not done():
            assert time.monotonic() < deadline, [sorted(member.owned()) for member in members]
            for read in at_once.map(lambda member: member.poll(), members):
                found += read
    return found


def is_shared(members: list[Member]) -> bool:
    owned = [member.owned() for member in members]
    return all(owned) and sorted(each for some in owned for each in some) == list(range(PARTITIONS))


@pytest.mark.parametrize("client", MEMBERS)
def test_members_share_partitions_rebalance_commit_and_resume(broker: BrokerProcess, client: str) -> None:
    topic = create(broker, f"shared-{client}")
    sent = produce(broker, topic)
    first = MEMBERS[client](broker, topic, topic)
    found: list[bytes] = []
    poll_until([first], lambda: len(found) == RECORDS, found)
    assert (set(found), first.owned()) == (sent, set(range(PARTITIONS)))
    first.commit()
    second = MEMBERS[client](broker, topic, topic)
    again = poll_until([first, second], lambda: is_shared([first, second]))
    assert again == [], "what was committed is not read again after a rebalance"
    more = produce(broker, topic, RECORDS)
    poll_until([first, second], lambda: len(again) >= RECORDS, again)
    assert sorted(again) == sorted(more)
    first.commit()
    second.commit()
    second.close()
    poll_until([first], lambda: first.owned() == set(range(PARTITIONS)))
    first.close()
    third = MEMBERS[client](broker, topic, topic)
    last = produce(broker, topic, 2 * RECORDS)
    resumed: list[bytes] = []
    poll_until([third], lambda: len(resumed) >= RECORDS, resumed)
    assert set(resumed) == last
    third.close()


def test_three_different_clients_are_in_one_group(broker: BrokerProcess) -> None:
    topic = create(broker, "mixed")
    sent = produce(broker, topic)
    members = [make(broker, topic, topic) for make in MEMBERS.values()]
    found = poll_until(members, lambda: is_shared(members))
    poll_until(members, lambda: set(found) == sent, found)
    assert [len(member.owned()) for member in members] == [2, 2, 2]
    for member in members:
        member.close()


def test_a_cooperative_member_keeps_what_does_not_move(broker: BrokerProcess) -> None:
    topic = create(broker, "cooperative")
    config = {"partition.assignment.strategy": "cooperative-sticky"}
    first = ConfluentMember(broker, topic, topic, **config)
    poll_until([first], lambda: is_shared([first]))
    least_owned = PARTITIONS
    second = ConfluentMember(broker, topic, topic, **config)

    def watched() -> bool:
        nonlocal least_owned
        least_owned = min(least_owned, len(first.owned()))
        return is_shared([first, second])

    poll_until([first, second], watched)
    assert (len(first.owned()), len(second.owned())) == (3, 3)
    assert least_owned == 3, "at no time did it give up more than what moved"
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("confluent-kafka", "group.instance.id"),
        ("kafka-python", "group_instance_id"),
        ("aiokafka", "group_instance_id"),
    ],
)
def test_a_static_member_keeps_its_partitions_over_a_restart(broker: BrokerProcess, client: str, name: str) -> None:
    topic = create(broker, f"static-{client}")
    first, second = (MEMBERS[client](broker, topic, topic, **{name: each}) for each in ("one", "two"))
    poll_until([first, second], lambda: is_shared([first, second]))
    before = second.owned()
    ids = member_ids(broker, topic)
    second.close()  # Static members do not leave the group when they are closed.
    assert len(member_ids(broker, topic)) == 2
    back = MEMBERS[client](broker, topic, topic, **{name: "two"})
    poll_until([first, back], lambda: bool(back.owned()))
    assert back.owned() == before
    after = member_ids(broker, topic)
    assert (after["one"], after["two"] != ids["two"]) == (ids["one"], True)
    assert is_shared([first, back])
    first.close()
    back.close()


def member_ids(broker: BrokerProcess, group: str) -> dict[str, str]:
    found = clients.admin(broker.bootstrap).describe_consumer_groups([group])[group].result(30)
    return {member.group_instance_id: member.member_id for member in found.members}


def test_kcat_reads_as_a_member_of_a_group(broker: BrokerProcess, kcat: str) -> None:
    """Debian's kcat is librdkafka 2.0: another age of the protocol."""
    topic = create(broker, "kcat-group")
    sent = produce(broker, topic)
    command = [kcat, "-b", broker.bootstrap, "-X", "auto.offset.reset=earliest", "-e", "-q", "-G", topic, topic]
    done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert set(done.stdout.split()) == sent


def test_confluents_admin_lists_describes_and_deletes_groups(broker: BrokerProcess) -> None:
    topic = create(broker, "administered")
    produce(broker, topic)
    admin = clients.admin(broker.bootstrap)
    member = ConfluentMember(broker, topic, topic, **{"client.id": "worker"})
    found = poll_until([member], lambda: is_shared([member]))
    poll_until([member], lambda: len(found) == RECORDS, found)
    member.commit()
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(30).valid}
    assert listed[topic].state is ConsumerGroupState.STABLE
    stable = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(30).valid
    assert topic not in {group.group_id for group in stable}
    described = admin.describe_consumer_groups([topic])[topic].result(30)
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    (shown,) = described.members
    assert (shown.client_id, shown.host) == ("worker", "/127.0.0.1")
    assert {each.partition for each in shown.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result(30)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    member.close()
    wanted = [ConsumerGroupTopicPartitions(topic, [ConfluentPartition(topic, each) for each in range(PARTITIONS)])]
    offsets = admin.list_consumer_group_offsets(wanted)[topic].result(30).topic_partitions
    assert {each.offset for each in offsets} == {RECORDS // PARTITIONS}
    admin.delete_consumer_groups([topic])[topic].result(30)
    assert topic not in {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    offsets = admin.list_consumer_group_offsets(wanted)[topic].result(30).topic_partitions
    assert {each.offset for each in offsets} == {confluent_kafka.OFFSET_INVALID}


def test_kafka_pythons_admin_lists_describes_and_deletes_groups(broker: BrokerProcess) -> None:
    topic = create(broker, "administered-too")
    member = KafkaPythonMember(broker, topic, topic)
    poll_until([member], lambda: is_shared([member]))
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        assert topic in str(admin.list_groups())
        described = str(admin.describe_groups([topic]))
        assert "Stable" in described
        member.close()
        admin.delete_groups([topic])
        assert topic not in str(admin.list_groups())
    finally:
        admin.close()
