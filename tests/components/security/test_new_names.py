"""A user brings so many new groups and transactional ids in a day: more are refused by Kafka's code, and what is known
goes on."""

from collections.abc import Callable

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.group_members import Member, rebalance
from tests.components.transactions.raw_transactions import INIT_PRODUCER_ID
from tests.support.classic_groups import SETTINGS
from tests.support.topics import create
from tests.support.wire_offsets import commit
from tiered.wire import messages

QUOTA_EXCEEDED = 89
CONSUMER_GROUP_HEARTBEAT = 68


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    bounds = {"tiered.max.new.groups.per.day": 2, "tiered.max.new.transactional.ids.per.day": 2}
    return make_broker(settings={**SETTINGS, **bounds}).start()


def initialized(connection: RawConnection, transactional_id: str) -> int:
    make = messages.request(INIT_PRODUCER_ID, 4)
    request = make.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    return int(connection.ask(INIT_PRODUCER_ID, 4, request).error_code)


def joined(connection: RawConnection, group: str) -> int:
    """With the protocol of KIP-848."""
    make = messages.request(CONSUMER_GROUP_HEARTBEAT, 0)
    request = make.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="", member_epoch=0, instance_id=None, rack_id=None, rebalance_timeout=60_000,
        subscribed_topic_names=["orders"], server_assignor=None, topic_partitions=[],
    )  # fmt: skip
    return int(connection.ask(CONSUMER_GROUP_HEARTBEAT, 0, request).error_code)


def test_no_more_new_groups_are_taken_than_a_user_may_bring_however_they_come(broker: BrokerProcess) -> None:
    topic = create(broker, "orders")
    with RawConnection(broker) as connection, Member(broker, "known") as member, Member(broker, "late") as late:
        rebalance(member)
        codes = [code for number in range(4) for code in commit(connection, f"g{number}", {topic: {0: 1}}).values()]
        assert codes[0] == 0
        assert codes[-2:] == [QUOTA_EXCEEDED] * 2
        assert late.ask_join().error_code == QUOTA_EXCEEDED
        assert joined(connection, "new") == QUOTA_EXCEEDED
        assert commit(connection, "g0", {topic: {0: 2}}) == {(topic, 0): 0}, "a group that is known goes on"
        assert member.heartbeat() == 0
        assert {each["group_id"] for each in broker.get("/api/v1/groups")["groups"]} <= {"known", "g0", "g1"}


def test_no_more_new_transactional_ids_are_taken_than_a_user_may_bring(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        codes = [initialized(connection, f"t{number}") for number in range(5)]
        assert codes[:2] == [0, 0]
        assert codes[-2:] == [QUOTA_EXCEEDED] * 2
        assert initialized(connection, "t0") == 0, "one that is known goes on"
        assert initialized(connection, "t-more") == QUOTA_EXCEEDED
