"""What members that mean harm, or are broken, can do to groups: to their own a lot, to others nothing."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.group_members import JOIN, LEAVE, Member, describe, rebalance
from tests.components.new_members import HEARTBEAT, NewMember
from tests.support.classic_groups import SETTINGS
from tests.support.hostile_frames import bystander
from tiered.wire import messages

INVALID_REQUEST = 42


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", settings=SETTINGS).start()
    yield process
    process.ensure_stopped()


def repeated_topic(times: int) -> bytes:
    """A subscription that owns one partition of the same topic again and again."""
    one_topic, no_user_data = b"\0\0\0\1\0\1t", b"\xff\xff\xff\xff"
    return b"\0\1" + one_topic + no_user_data + times.to_bytes(4, "big") + b"\0\1t\0\0\0\1\0\0\0\0" * times


def test_a_heartbeat_that_names_a_topic_many_times_holds_nobody_up(broker: BrokerProcess) -> None:
    namespace = messages.request(HEARTBEAT, 1)
    owned = [namespace.TopicPartitions(topic_id=UUID(int=1), partitions=[number]) for number in range(90_000)]
    with NewMember(broker, "repeats", topics=[]) as member, bystander(broker):
        assert member.ask(topic_partitions=owned).error_code == INVALID_REQUEST, "whoever joins owns nothing"


@pytest.mark.parametrize("times", [90_000, 600_000])
def test_metadata_that_name_a_topic_many_times_hold_nobody_up(broker: BrokerProcess, times: int) -> None:
    group_id = f"repeated-{times}"
    with Member(broker, group_id, protocols={"range": repeated_topic(times)}) as member, bystander(broker):
        rebalance(member)
        assert describe(broker, group_id).group_state == "Stable"
        # The first member of the new protocol has to understand those who are there.
        with NewMember(broker, group_id, topics=[]) as newcomer:
            newcomer.ask(**newcomer.everything())


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "nul\0"},
        {"protocol_type": "x" * 1025},
        {"instance_id": "x" * 1025},
        {"protocols": {str(number): b"" for number in range(101)}},
    ],
)
def test_names_that_nobody_needs_are_refused(broker: BrokerProcess, changes: dict[str, object]) -> None:
    with Member(broker, "names", **changes) as member:  # type: ignore[arg-type]
        assert member.ask_join().error_code == INVALID_REQUEST
    with Member(broker, "names") as member:
        member.member_id = "x" * 1025
        assert member.ask_join().error_code == INVALID_REQUEST


def test_a_join_with_a_million_protocols_holds_nobody_up(broker: BrokerProcess) -> None:
    """Eight megabytes are all that a request may have."""
    with RawConnection(broker, timeout_s=60) as connection, bystander(broker):
        body = b"\0\1g\0\0\x27\x10\0\0\x27\x10\0\0\0\1c"
        body += (1_000_000).to_bytes(4, "big") + b"\0\1p\0\0\0\0" * 1_000_000
        answer = messages.response_decoder(JOIN, 1)(connection.call(JOIN, 1, body), 0)
        assert answer.error_code == INVALID_REQUEST


def test_a_million_members_do_not_leave_at_once(broker: BrokerProcess) -> None:
    with Member(broker, "leaving") as member, RawConnection(broker, timeout_s=60) as connection, bystander(broker):
        rebalance(member)
        body = b"\0\7leaving" + (1_000_000).to_bytes(4, "big") + b"\0\1m\xff\xff" * 1_000_000
        assert messages.response_decoder(LEAVE, 3)(connection.call(LEAVE, 3, body), 0).error_code == INVALID_REQUEST
        assert member.heartbeat() == 0
