"""TxnOffsetCommit in every version, byte by byte: what a group is told of offsets that a transaction sends."""

from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.group_members import Member, rebalance
from tests.components.new_members import NewMember
from tests.support.topics import create
from tests.support.transactional_producer import UNSTABLE, TransactionalProducer, stored
from tests.support.wire_offsets import commit, group_id

VERSIONS = range(6)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_sends_offsets_that_are_the_groups_with_the_commit(broker: BrokerProcess, version: int) -> None:
    topic, group = create(broker, f"sent-v{version}", partitions=3), group_id()
    with RawConnection(broker) as connection:
        producer = TransactionalProducer(connection, version)
        commit(connection, group, {topic: {0: 1}})
        producer.begin(group)
        assert producer.send(group, topic, {0: 5, 1: 6}) == {0: 0, 1: 0}
        assert stored(connection, group, topic, 0, 1, 2) == {0: (UNSTABLE, -1), 1: (UNSTABLE, -1), 2: (0, -1)}
        producer.end(commits=True)
        assert stored(connection, group, topic, 0, 1, 2) == {0: (0, 5), 1: (0, 6), 2: (0, -1)}


@pytest.mark.parametrize("version", [3, 5])
def test_aborted_offsets_are_forgotten(broker: BrokerProcess, version: int) -> None:
    topic, group = create(broker, f"aborted-v{version}"), group_id()
    with RawConnection(broker) as connection:
        producer = TransactionalProducer(connection, version)
        commit(connection, group, {topic: {0: 1}})
        producer.begin(group)
        assert producer.send(group, topic, {0: 5}) == {0: 0}
        producer.end(commits=False)
        assert stored(connection, group, topic, 0) == {0: (0, 1)}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_producer_is_told_invalid_producer_epoch_and_one_that_nobody_knows_its_mapping(
    broker: BrokerProcess, version: int
) -> None:
    topic, group = create(broker, f"fenced-v{version}"), group_id()
    with RawConnection(broker) as connection:
        old = TransactionalProducer(connection, version)
        TransactionalProducer(connection, version, old.name).begin(group)
        assert old.send(group, topic, {0: 5}) == {0: 47}
        old.name = group_id()
        assert old.send(group, topic, {0: 5}) == {0: 49}
        assert stored(connection, group, topic, 0) == {0: (0, -1)}


@pytest.mark.parametrize(("version", "code"), [(0, 48), (3, 48), (4, 120)])
def test_without_an_open_transaction_no_offset_is_taken(broker: BrokerProcess, version: int, code: int) -> None:
    topic, group = create(broker, f"closed-v{version}"), group_id()
    with RawConnection(broker) as connection:
        producer = TransactionalProducer(connection, version)
        assert producer.send(group, topic, {0: 5}) == {0: code}
        producer.begin(group)
        producer.end(commits=True)
        assert producer.send(group, topic, {0: 5}) == {0: code}
        assert stored(connection, group, topic, 0) == {0: (0, -1)}


@pytest.mark.parametrize("version", [0, 5])
def test_a_partition_that_cannot_be_stored_fails_for_itself_alone(broker: BrokerProcess, version: int) -> None:
    topic, group = create(broker, f"part-v{version}"), group_id()
    with RawConnection(broker) as connection:
        producer = TransactionalProducer(connection, version)
        producer.begin(group)
        assert producer.send(group, topic, {0: 5, 7: 5}) == {0: 0, 7: 3}
        assert producer.send(group, topic, {0: 6}, "n" * 5_000) == {0: 12}
        producer.end(commits=True)
        assert stored(connection, group, topic, 0) == {0: (0, 5)}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_member_of_an_older_generation_sends_nothing(broker: BrokerProcess, version: int) -> None:
    topic, group = create(broker, f"members-v{version}"), group_id()
    with RawConnection(broker) as connection, Member(broker, group) as member:
        producer = TransactionalProducer(connection, version)
        producer.begin(group)
        rebalance(member)
        me: dict[str, Any] = {"member_id": member.member_id, "generation_id": member.generation}
        assert producer.send(group, topic, {0: 5}, **{**me, "generation_id": member.generation + 1}) == {0: 22}
        assert producer.send(group, topic, {0: 5}, **{**me, "member_id": "somebody"}) == {0: 25}
        assert producer.send(group, topic, {0: 5}, **me) == {0: 0}
        assert producer.send(group, topic, {0: 6}) == {0: 0}, "whoever names no member is let in"
        producer.end(commits=True)
        assert stored(connection, group, topic, 0) == {0: (0, 6)}


def test_a_member_of_a_new_group_is_told_illegal_generation_for_an_old_epoch(broker: BrokerProcess) -> None:
    topic, group = create(broker, "new-members"), group_id()
    with RawConnection(broker) as connection, NewMember(broker, group, topics=[topic]) as member:
        producer = TransactionalProducer(connection, 5)
        member.join()
        me: dict[str, Any] = {"member_id": member.member_id, "generation_id": member.epoch}
        assert producer.send(group, topic, {0: 5}, **{**me, "generation_id": member.epoch + 1}) == {0: 22}
        assert producer.send(group, topic, {0: 5}, **me) == {0: 0}
        producer.end(commits=True)
        assert stored(connection, group, topic, 0) == {0: (0, 5)}
