"""wire.md 38: what administrators ask of classic groups: which there are, who is in them, and that they be deleted."""

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.group_members import DESCRIBE, FIND, Member, delete, describe, groups, rebalance
from tests.support.classic_groups import GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, broker, until

__all__ = ["broker"]
from tiered.wire import messages


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_described_as_dead(broker: BrokerProcess, version: int) -> None:
    found = describe(broker, "never-seen", version=version)
    assert (found.group_state, found.error_code) == ("Dead", GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert found.members == ()


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_described_with_its_members(broker: BrokerProcess, version: int) -> None:
    group_id = f"described-{version}"
    with Member(broker, group_id, instance_id="here", protocols={"range": b"wants"}) as member:
        rebalance(member)
        found = describe(broker, group_id, version=version)
        assert (found.error_code, found.group_id, found.group_state) == (0, group_id, "Stable")
        assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
        (shown,) = found.members
        assert (shown.member_id, shown.client_id, shown.client_host) == (member.member_id, "raw", "/127.0.0.1")
        assert (shown.member_metadata, shown.member_assignment) == (b"wants", member.member_id.encode())
        if version >= 4:
            assert shown.group_instance_id == "here"
        member.protocols = {"range": b"other"}
        member.join()
        found = describe(broker, group_id, version=version)
        assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
        assert found.members[0].member_metadata == b""


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_and_filtered_by_state_and_type(broker: BrokerProcess, version: int) -> None:
    with Member(broker, f"listed-{version}") as member, Member(broker, f"left-{version}") as left:
        rebalance(member)
        rebalance(left)
        left.leave()
        until(lambda: describe(broker, left.group_id).group_state == "Empty")
        found = groups(broker, version=version)
        assert {member.group_id, left.group_id} <= set(found)
        assert found[member.group_id].protocol_type == "consumer"
        if version >= 4:
            assert [found[each.group_id].group_state for each in (member, left)] == ["Stable", "Empty"]
            stable = groups(broker, version=version, states=("sTable",))
            assert member.group_id in stable
            assert left.group_id not in stable
            assert groups(broker, version=version, states=("NoSuchState",)) == {}
        if version >= 5:
            assert found[member.group_id].group_type == "classic"
            assert member.group_id in groups(broker, version=version, types=("CLASSIC",))
            assert groups(broker, version=version, types=("share",)) == {}


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_when_they_have_no_members(broker: BrokerProcess, version: int) -> None:
    group_id = f"deleted-{version}"
    with Member(broker, group_id) as member:
        rebalance(member)
        assert delete(broker, group_id, "never-seen", version=version) == [NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND]
        assert member.leave().error_code == 0
        until(lambda: describe(broker, group_id).group_state == "Empty")
        assert delete(broker, group_id, version=version) == [0]
        assert describe(broker, group_id).error_code == GROUP_ID_NOT_FOUND
        assert group_id not in groups(broker)
        assert delete(broker, group_id, version=version) == [GROUP_ID_NOT_FOUND]


@pytest.mark.parametrize(("version", "is_told"), [(3, True), (5, True), (6, False)])
def test_what_may_be_done_with_a_group_is_told_of_an_unknown_one_too_where_it_is_no_error(
    broker: BrokerProcess, version: int, is_told: bool
) -> None:
    request = messages.request(DESCRIBE, version).DescribeGroupsRequest(
        groups=["never-seen"], include_authorized_operations=True
    )
    with RawConnection(broker) as connection:
        (found,) = connection.ask(DESCRIBE, version, request).groups
    assert (found.group_state, found.error_code == 0) == ("Dead", is_told)
    assert (found.authorized_operations > 0) == is_told


def test_of_very_many_keys_the_first_refusals_are_in_words(broker: BrokerProcess) -> None:
    """1.2 MB of keys were answered with 21 MB."""
    with RawConnection(broker) as connection:
        request = messages.request(FIND, 6).FindCoordinatorRequest(key_type=2, coordinator_keys=["k"] * 10_000)
        coordinators = connection.ask(FIND, 6, request).coordinators
    assert {coordinator.error_code for coordinator in coordinators} == {42}
    assert [number for number, coordinator in enumerate(coordinators) if coordinator.error_message] == list(range(100))


@pytest.mark.parametrize("version", range(7))
def test_every_version_of_find_coordinator_names_this_broker(broker: BrokerProcess, version: int) -> None:
    with RawConnection(broker) as connection:
        request = messages.request(FIND, version).FindCoordinatorRequest(
            key="g", key_type=0, coordinator_keys=["g", "h"]
        )
        answer = connection.ask(FIND, version, request)
        found = answer.coordinators if version >= 4 else [answer]
        assert len(found) == (2 if version >= 4 else 1)
        for each in found:
            assert (each.error_code, each.host, each.port) == (0, "127.0.0.1", broker.kafka_port)
