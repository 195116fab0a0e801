"""Access control lists over Kafka's protocol: made, found, counted at once, and taken away."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.clients.raw import RawConnection
from tests.components.guarded_broker import GuardedBroker, allow
from tiered.rules.security.acl import Operation, PatternType, Permission, ResourceType
from tiered.wire import messages

DESCRIBE, CREATE, DELETE = 29, 30, 31
INVALID_REQUEST, POLICY_VIOLATION, SECURITY_DISABLED = 42, 44, 54
LITERAL, PREFIXED, MATCH, ANY = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH, PatternType.ANY


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("acls") / "data", "super.users=User:ANONYMOUS") as broker:
        yield broker


@pytest.fixture
def connection(guarded: GuardedBroker) -> Iterator[RawConnection]:
    with RawConnection(guarded) as opened:
        delete(opened)
        yield opened


def rule(name: str, operation: int = Operation.READ, **others: Any) -> dict[str, Any]:
    words = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:ann",
        "host": "*",
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }
    return {**words, **others}


def create(connection: RawConnection, *rules: dict[str, Any], version: int = 3) -> list[int]:
    make = messages.request(CREATE, version)
    request = make.CreateAclsRequest(creations=[make.AclCreation(**each) for each in rules])
    return [int(each.error_code) for each in connection.ask(CREATE, version, request).results]


def words(**others: Any) -> dict[str, Any]:
    open_filter = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    return {**open_filter, **others}


def describe(connection: RawConnection, version: int = 3, **others: Any) -> Any:
    make = messages.request(DESCRIBE, version)
    return connection.ask(DESCRIBE, version, make.DescribeAclsRequest(**words(**others)))


def names(answer: Any) -> set[str]:
    assert int(answer.error_code) == 0
    return {each.resource_name for each in answer.resources}


def delete(connection: RawConnection, version: int = 3, **others: Any) -> list[str]:
    make = messages.request(DELETE, version)
    request = make.DeleteAclsRequest(filters=[make.DeleteAclsFilter(**words(**others))])
    (found,) = connection.ask(DELETE, version, request).filter_results
    assert int(found.error_code) == 0
    return sorted(each.resource_name for each in found.matching_acls)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_are_made_described_and_deleted_in_every_version(connection: RawConnection, version: int) -> None:
    both = (rule("orders"), rule("ord", Operation.WRITE, resource_pattern_type=PREFIXED, host="::1"))
    assert create(connection, *both, version=version) == [0, 0]
    assert create(connection, both[0], version=version) == [0]  # It is there: that is all that was wanted.
    answer = describe(connection, version)
    assert names(answer) == {"orders", "ord"}
    (found,) = next(each.acls for each in answer.resources if each.resource_name == "ord")
    assert (found.principal, found.host) == ("User:ann", "::1")
    assert (found.operation, found.permission_type) == (Operation.WRITE, Permission.ALLOW)
    assert delete(connection, version) == ["ord", "orders"]
    assert names(describe(connection, version)) == set()


def test_filters_find_what_kafkas_do(connection: RawConnection) -> None:
    create(connection, rule("orders"), rule("ord", resource_pattern_type=PREFIXED), rule("*"), rule("others"))
    create(connection, rule("orders", resource_type=ResourceType.GROUP, principal="User:bob"))
    topic = {"resource_type_filter": ResourceType.TOPIC}
    assert names(describe(connection, **topic, resource_name_filter="orders", pattern_type_filter=MATCH)) == {
        "orders", "ord", "*",
    }  # fmt: skip
    assert names(describe(connection, **topic, resource_name_filter="orders", pattern_type_filter=LITERAL)) == {
        "orders"
    }
    assert names(describe(connection, pattern_type_filter=PREFIXED)) == {"ord"}
    assert len(describe(connection, principal_filter="User:bob").resources) == 1
    assert delete(connection, principal_filter="User:ann", **topic) == ["*", "ord", "orders", "others"]


def test_each_rule_of_a_request_is_checked_for_itself(connection: RawConnection) -> None:
    wrong = [
        rule(""),
        rule("x", resource_pattern_type=MATCH),
        rule("x", Operation.ANY),
        rule("x", permission_type=Permission.ANY),
        rule("x", resource_type=ResourceType.ANY),
        rule("x", resource_type=99),
        rule("x", principal="ann"),
        rule("x", host="h" * 65),
        rule("x" * 300),
        rule("another", resource_type=ResourceType.CLUSTER),
    ]
    assert create(connection, *wrong, rule("right")) == [INVALID_REQUEST] * len(wrong) + [0]
    assert names(describe(connection)) == {"right"}
    assert int(describe(connection, pattern_type_filter=77).error_code) == INVALID_REQUEST


def test_a_rule_counts_when_the_answer_is_there_and_not_after_it_is_gone(
    guarded: GuardedBroker, connection: RawConnection
) -> None:
    from tiered.rules.security.principal import Principal

    def may_read() -> bool:
        rights = guarded.run(lambda: guarded.broker.access.rights(Principal("User", "ann"), "10.0.0.9"))
        return bool(guarded.run(lambda: rights.may(Operation.READ, ResourceType.TOPIC, "orders")))

    assert not may_read()
    create(connection, rule("orders"))
    assert may_read()
    create(connection, rule("orders", permission_type=Permission.DENY, host="10.0.0.9"))
    assert not may_read()
    delete(connection, host_filter="10.0.0.9")
    assert may_read()
    delete(connection)
    assert not may_read()


@pytest.mark.parametrize("written", ["::ffff:10.0.0.9", "::FFFF:a00:9"])
def test_a_deny_for_an_ipv4_address_in_its_long_form_denies_it(
    guarded: GuardedBroker, connection: RawConnection, written: str
) -> None:
    from tiered.rules.security.principal import Principal

    def may_read(host: str) -> bool:
        rights = guarded.run(lambda: guarded.broker.access.rights(Principal("User", "ann"), host))
        return bool(guarded.run(lambda: rights.may(Operation.READ, ResourceType.TOPIC, "orders")))

    create(connection, rule("orders"), rule("orders", permission_type=Permission.DENY, host=written))
    came = ["10.0.0.9", "::ffff:10.0.0.9", "10.0.0.8"]
    assert [may_read(host) for host in came] == [False, False, True]
    assert names(describe(connection, host_filter=written)) == {"orders"}
    assert delete(connection, host_filter=written) == ["orders"]
    assert may_read("10.0.0.9")
    delete(connection)
    kept = allow("READ", "TOPIC", "orders", principal="User:ann")
    guarded.rules([kept, replace(kept, host="::ffff:a00:9", permission="DENY")])
    assert [may_read(host) for host in came] == [False, False, True], "a rule from before this was mended"
    guarded.rules([])


@pytest.mark.parametrize("host", ["a.host.name", "fe80::1%eth0", ""])
def test_a_host_that_is_no_address_is_kept_as_it_is_and_meets_nobody(
    guarded: GuardedBroker, connection: RawConnection, host: str
) -> None:
    from tiered.rules.security.principal import Principal

    assert create(connection, rule("orders", host=host)) == [0]
    assert describe(connection, host_filter=host).resources[0].acls[0].host == host
    rights = guarded.run(lambda: guarded.broker.access.rights(Principal("User", "ann"), "fe80::1"))
    assert not guarded.run(lambda: rights.may(Operation.READ, ResourceType.TOPIC, "orders"))
    assert delete(connection, host_filter=host) == ["orders"]


def test_rules_count_from_the_first_request_after_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    data, settings = tmp_path_factory.mktemp("again") / "data", "super.users=User:ANONYMOUS"
    with GuardedBroker(data, settings) as broker, RawConnection(broker) as connection:
        assert create(connection, rule("orders", permission_type=Permission.DENY)) == [0]
    with GuardedBroker(data, settings) as broker, RawConnection(broker) as connection:
        assert names(describe(connection)) == {"orders"}


def test_without_an_authorizer_there_are_no_rules_to_speak_of(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        GuardedBroker(tmp_path_factory.mktemp("open") / "data", "tiered.authorizer=none") as broker,
        RawConnection(broker) as connection,
    ):
        assert create(connection, rule("orders")) == [SECURITY_DISABLED]
        assert int(describe(connection).error_code) == SECURITY_DISABLED
