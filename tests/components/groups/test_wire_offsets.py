"""wire.md 36 and 37: OffsetCommit, OffsetFetch and OffsetDelete in every version, byte by byte."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.group_members import Member, rebalance
from tests.support.admin_requests import admin
from tests.support.admin_requests import ask as ask_metadata
from tests.support.topics import create
from tests.support.wire_offsets import (
    COMMIT,
    DELETE,
    codes_of,
    commit,
    commit_request,
    fetch,
    fetch_answer,
    group_id,
    offsets_of,
)
from tiered.wire import messages
from tiered.wire.consumer_protocol import Subscription, encode_subscription


def topic_id(connection: RawConnection, topic: str) -> UUID:
    found: UUID = ask_metadata(connection, [topic], version=12).topics[0].topic_id
    return found


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_of_offset_commit_stores_what_offset_fetch_finds(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"commit-v{version}", partitions=2)
    group = group_id()
    with RawConnection(broker) as connection:
        name = topic_id(connection, topic) if version >= 10 else topic
        assert commit(connection, group, {name: {0: 5, 1: 7}}, version=version) == {(name, 0): 0, (name, 1): 0}
        assert fetch(connection, group, {topic: [0, 1]}) == {(topic, 0): 5, (topic, 1): 7}


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_offset_fetch_finds_what_was_committed(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"fetch-v{version}", partitions=3)
    group = group_id()
    with RawConnection(broker) as connection:
        commit(connection, group, {topic: {0: 5, 1: 0}}, leader_epoch=3)
        name = topic_id(connection, topic) if version >= 10 else topic
        expected = {(name, 0): 5, (name, 1): 0, (name, 2): -1}
        assert fetch(connection, group, {name: [0, 1, 2]}, version=version) == expected
        answer = fetch_answer(connection, {group: {name: [0]}}, version=version)
        (found,) = (answer.groups[0] if version >= 8 else answer).topics[0].partitions
        assert found.metadata == "note"
        if version >= 5:
            assert found.committed_leader_epoch == 3
        if version >= 2:
            assert fetch(connection, group, None, version=version) == {(name, 0): 5, (name, 1): 0}


@pytest.mark.parametrize("version", range(7, 11))
def test_a_stable_fetch_in_every_version_is_told_which_offsets_an_open_transaction_may_change(
    broker: BrokerProcess, version: int
) -> None:
    topic = create(broker, f"unstable-v{version}", partitions=4)
    group = group_id()
    with RawConnection(broker) as connection:
        known = topic_id(connection, topic)
        name = known if version >= 10 else topic
        commit(connection, group, {topic: {0: 5, 1: 7}})
        wait_for_transaction(broker, group, known, [1, 2])

        def codes(topics: Mapping[str | UUID, Sequence[int]] | None, *, stable: bool) -> dict[int, tuple[int, int]]:
            answer = fetch_answer(connection, {group: topics}, version=version, require_stable=stable)
            found = (answer.groups[0] if version >= 8 else answer).topics[0].partitions
            return {each.partition_index: (int(each.error_code), each.committed_offset) for each in found}

        asked = {name: [0, 1, 2, 3]}
        assert codes(asked, stable=True) == {0: (0, 5), 1: (88, -1), 2: (88, -1), 3: (0, -1)}
        assert codes(None, stable=True) == {0: (0, 5), 1: (88, -1)}, "of what was never committed nothing is told"
        assert codes(asked, stable=False) == {0: (0, 5), 1: (0, 7), 2: (0, -1), 3: (0, -1)}


def wait_for_transaction(broker: BrokerProcess, group: str, of_topic: UUID, partitions: Sequence[int]) -> None:
    """The group's offsets 9 of these partitions wait for a transaction's end."""
    meta = sqlite3.connect(broker.data / "meta.db", timeout=10)
    rows = [(group, of_topic.hex, each, 1, 9, -1, "", 0, 1, 1) for each in partitions]
    with meta:
        meta.executemany(f"INSERT INTO transaction_offset VALUES ({', '.join('?' * 10)})", rows)
    meta.close()


# What is committed


def test_commits_on_one_connection_share_a_transaction_and_hold_up_nothing(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    """A consumer that commits after each poll would otherwise be thrown out where SQL is slow."""
    broker = make_broker(settings={"tiered.offset.commit.linger.ms": 500}).start()
    create(broker, "often", 10)
    with RawConnection(broker) as connection:
        requests = [commit_request("often", {"often": {number: number}}, version=8) for number in range(10)]
        for request in requests:
            connection.send(COMMIT, 8, messages.encode(request))
        after = connection.send(18, 0, b"")
        for number in range(10):
            answer = messages.response_decoder(COMMIT, 8)(connection.receive(COMMIT, 8)[1], 0)
            assert codes_of(answer) == {("often", number): 0}
        assert connection.receive(18, 0)[0] == after
    meta = sqlite3.connect(broker.data / "meta.db", timeout=10)
    assert meta.execute("SELECT count(*), count(DISTINCT commit_number) FROM group_offset").fetchone() == (10, 1)
    meta.close()


def test_what_was_never_committed_is_minus_one_without_an_error(broker: BrokerProcess) -> None:
    topic = create(broker, "never")
    group = group_id()
    with RawConnection(broker) as connection:
        assert fetch(connection, group, {topic: [0, 7], "no-such-topic": [0]}) == {
            (topic, 0): -1,
            (topic, 7): -1,
            ("no-such-topic", 0): -1,
        }
        assert fetch(connection, group, None) == {}


def test_a_partition_that_does_not_exist_fails_for_itself_alone(broker: BrokerProcess) -> None:
    topic = create(broker, "partial")
    group = group_id()
    with RawConnection(broker) as connection:
        answer = commit(connection, group, {topic: {0: 5, 1: 6, -1: 7}, "no-such": {0: 1}, "a b": {0: 1}})
        assert answer == {(topic, 0): 0, (topic, 1): 3, (topic, -1): 3, ("no-such", 0): 3, ("a b", 0): 3}
        assert fetch(connection, group, None) == {(topic, 0): 5}
        unknown = uuid4()
        assert commit(connection, group, {unknown: {0: 5}}, version=10) == {(unknown, 0): 100}
        assert commit(connection, group, {"__consumer_offsets": {0: 5}}) == {("__consumer_offsets", 0): 3}


@pytest.mark.parametrize("unknown", [uuid4(), UUID(int=0)], ids=["some id", "zeros"])
def test_topic_ids_that_nobody_knows_are_unknown_to_offset_fetch(broker: BrokerProcess, unknown: UUID) -> None:
    with RawConnection(broker) as connection:
        group = fetch_answer(connection, {group_id(): {unknown: [0]}}, version=10).groups[0]
        (found,) = group.topics[0].partitions
        assert (int(group.error_code), int(found.error_code), found.committed_offset) == (0, 100, -1)


@pytest.mark.parametrize(
    ("offset", "metadata", "code"),
    [
        (-1, "", 0),
        (-2, "", 0),
        (-(2**63), "", 0),
        (2**63 - 1, "", 0),
        (0, None, 0),
        (0, "ü" * 2048, 0),
        (0, "ü" * 2049, 12),
        (0, "a\0b\u2400\u241b\0", 0),
    ],
)
def test_any_offset_is_stored_and_a_note_too_long_refused_for_itself(
    broker: BrokerProcess, offset: int, metadata: str | None, code: int
) -> None:
    topic = create(broker, f"any-offset-{uuid4()}")
    group = group_id()
    with RawConnection(broker) as connection:
        assert commit(connection, group, {topic: {0: offset}}, metadata=metadata) == {(topic, 0): code}
        assert fetch(connection, group, None) == ({(topic, 0): offset} if code == 0 else {})
        if code == 0:
            (found,) = fetch_answer(connection, {group: {topic: [0]}}).topics[0].partitions
            assert found.metadata == (metadata or "")
        assert commit(connection, group, {topic: {0: 1}}) == {(topic, 0): 0}


def test_of_one_partition_named_twice_the_later_offset_stays(broker: BrokerProcess) -> None:
    topic = create(broker, "twice")
    group = group_id()
    with RawConnection(broker) as connection:
        commit(connection, group, {topic: [(0, 9), (0, 4)]})
        assert fetch(connection, group, {topic: [0, 0]}) == {(topic, 0): 4}


@pytest.mark.parametrize(("group", "code"), [("", 24), ("x" * 2000, 0), ("x" * 2001, 24), ("a\0b", 24), ("grüppe", 0)])
def test_impossible_group_ids_are_refused(broker: BrokerProcess, group: str, code: int) -> None:
    topic = create(broker, f"names-{uuid4()}")
    with RawConnection(broker) as connection:
        assert commit(connection, group, {topic: {0: 5}}) == {(topic, 0): code}
        assert int(fetch_answer(connection, {group: {topic: [0]}}).error_code) == code
        (partition,) = fetch_answer(connection, {group: {topic: [0]}}, version=1).topics[0].partitions
        assert int(partition.error_code) == code, "version 1 has no other place for it"


def test_a_member_that_the_group_does_not_know_commits_nothing(broker: BrokerProcess) -> None:
    topic = create(broker, "strangers")
    group = group_id()
    with RawConnection(broker) as connection:
        assert commit(connection, group, {topic: {0: 5}}, generation=3, member_id="stranger")[topic, 0] in (22, 25)
        assert fetch(connection, group, None) == {}


def test_many_groups_are_fetched_at_once_and_one_that_is_wrong_spoils_no_other(broker: BrokerProcess) -> None:
    topic = create(broker, "many-groups", partitions=2)
    first, second = group_id(), group_id()
    with RawConnection(broker) as connection:
        commit(connection, first, {topic: {0: 1}})
        commit(connection, second, {topic: {0: 2, 1: 3}})
        answer = fetch_answer(connection, {first: {topic: [0, 1]}, "": None, second: None}, version=8)
        assert [(each.group_id, int(each.error_code), offsets_of(each)) for each in answer.groups] == [
            (first, 0, {(topic, 0): 1, (topic, 1): -1}),
            ("", 24, {}),
            (second, 0, {(topic, 0): 2, (topic, 1): 3}),
        ]


def test_an_answer_has_a_bound(broker: BrokerProcess) -> None:
    topic = create(broker, "bounded")
    group = group_id()
    with RawConnection(broker) as connection:
        commit(connection, group, {topic: {0: 1}})
        answer = fetch_answer(connection, {group: {topic: [0] * 150_000}, "other": {topic: [0] * 60_000}}, version=8)
        assert [int(each.error_code) for each in answer.groups] == [0, 42]
        too_many = commit(connection, group, {topic: [(0, 5)] * 50_001})
        assert too_many == {(topic, 0): 42}
        assert fetch(connection, group, None) == {(topic, 0): 1}


def test_offsets_outlive_kill_9_and_those_of_a_deleted_topic_do_not_come_back(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    topic, other = create(process, "durable"), create(process, "short-lived")
    with RawConnection(process) as connection:
        commit(connection, "billing", {topic: {0: 5}, other: {0: 6}})
    process.kill()
    process.start()
    with RawConnection(process) as connection:
        assert fetch(connection, "billing", None) == {(topic, 0): 5, (other, 0): 6}
        assert commit(connection, "billing", {topic: {0: 4}})[topic, 0] == 0, "the new process has the newer word"
        admin(process).delete_topics([other])[other].result(30)
        create(process, other)
        assert fetch(connection, "billing", {topic: [0], other: [0]}) == {(topic, 0): 4, (other, 0): -1}


# OffsetDelete


def delete(connection: RawConnection, group: str, topics: Mapping[str, Sequence[int]]) -> Any:
    make = messages.request(DELETE, 0)
    asked = [
        make.OffsetDeleteRequestTopic(
            name=topic, partitions=[make.OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
        )
        for topic, indexes in topics.items()
    ]
    return connection.ask(DELETE, 0, make.OffsetDeleteRequest(group_id=group, topics=asked))


def test_offset_delete_forgets_what_it_names_and_nothing_else(broker: BrokerProcess) -> None:
    topic = create(broker, "forgotten", partitions=3)
    group = group_id()
    with RawConnection(broker) as connection:
        commit(connection, group, {topic: {0: 1, 1: 2}})
        answer = delete(connection, group, {topic: [0, 2, 3], "no-such": [0]})
        assert int(answer.error_code) == 0
        codes = {
            (each.name, part.partition_index): int(part.error_code)
            for each in answer.topics
            for part in each.partitions
        }
        assert codes == {(topic, 0): 0, (topic, 2): 0, (topic, 3): 3, ("no-such", 0): 3}
        assert fetch(connection, group, None) == {(topic, 1): 2}


def test_offset_delete_of_a_group_that_nobody_knows_says_so(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        assert int(delete(connection, group_id(), {"any": [0]}).error_code) == 69
        assert int(delete(connection, "", {"any": [0]}).error_code) == 24


def test_offset_delete_spares_what_members_of_a_living_group_read(broker: BrokerProcess) -> None:
    read, unread = create(broker, "members-read"), create(broker, "members-do-not")
    group = group_id()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([read])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(read, 0, 5), TopicPartition(unread, 0, 6)], asynchronous=False)
    with RawConnection(broker) as connection:
        answer = delete(connection, group, {read: [0], unread: [0]})
        assert [int(topic.partitions[0].error_code) for topic in answer.topics] == [86, 0]
        assert fetch(connection, group, None) == {(read, 0): 5}
        consumer.close()
        assert int(delete(connection, group, {read: [0]}).topics[0].partitions[0].error_code) == 0
        assert fetch(connection, group, None) == {}


def test_offset_delete_reads_the_topics_of_a_subscription_that_claims_fields_it_has_not(broker: BrokerProcess) -> None:
    read, unread = create(broker, "short-read"), create(broker, "short-unread")
    group = group_id()
    topics_alone = b"\x00\x03" + encode_subscription(Subscription(topics=(read,), version=0))[2:]
    with RawConnection(broker) as connection, Member(broker, group, protocols={"range": topics_alone}) as member:
        commit(connection, group, {read: {0: 5}, unread: {0: 6}})
        rebalance(member)
        answer = delete(connection, group, {read: [0], unread: [0]})
        assert [int(topic.partitions[0].error_code) for topic in answer.topics] == [86, 0]
        assert fetch(connection, group, None) == {(read, 0): 5}


def test_offset_delete_leaves_groups_alone_whose_members_subscribe_to_nobody_knows_what(broker: BrokerProcess) -> None:
    topic, group = create(broker, "unreadable"), group_id()
    with RawConnection(broker) as connection, Member(broker, group, protocols={"own": b"no subscription"}) as member:
        commit(connection, group, {topic: {0: 5}})
        rebalance(member)
        assert int(delete(connection, group, {topic: [0]}).error_code) == 68
        assert fetch(connection, group, None) == {(topic, 0): 5}


def test_offset_delete_leaves_groups_alone_whose_members_are_no_consumers(broker: BrokerProcess) -> None:
    """Nobody but them knows what they read."""
    topic, group = create(broker, "connected"), group_id()
    with RawConnection(broker) as connection, Member(broker, group, protocol_type="connect") as worker:
        commit(connection, group, {topic: {0: 5}})
        rebalance(worker)
        assert int(delete(connection, group, {topic: [0]}).error_code) == 68
        assert fetch(connection, group, None) == {(topic, 0): 5}
