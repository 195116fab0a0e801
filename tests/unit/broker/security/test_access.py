"""Who may do what: nobody anything unless a rule says so, and what is remembered of it has a bound."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.support.garbage import noted_garbage
from tests.unit.broker.security.rules import reads
from tiered.broker.context import BrokerState
from tiered.broker.security import access
from tiered.broker.security.access import MAX_REMEMBERED_NAME, Access
from tiered.config import BrokerSettings
from tiered.meta.security import AclRow, Security
from tiered.rules.security.acl import SUPPORTED, Operation, ResourceType
from tiered.rules.security.authorization import AccessList
from tiered.rules.security.principal import Principal

ANN = Principal("User", "ann")
READ, TOPIC = Operation.READ, ResourceType.TOPIC


def guarded(*names: str) -> tuple[Access, BrokerState]:
    settings = BrokerSettings.of({"tiered.authorizer": "acl", "super.users": "User:root"})
    state = BrokerState(settings=settings, security=Security(acls=tuple(reads(name) for name in names)))
    return Access(state=state), state


def test_who_has_not_logged_in_may_do_nothing_and_what_is_refused_is_counted() -> None:
    made, _ = guarded("orders")
    ann, nobody = made.rights(ANN, "h"), made.rights(None, "h")
    assert ann is not None
    assert nobody is not None
    assert (ann.may(READ, TOPIC, "orders"), ann.may(READ, TOPIC, "bills")) == (True, False)
    assert not nobody.may(READ, TOPIC, "orders")
    assert not nobody.may_any(READ, TOPIC)
    assert (len(ann.by_name(READ, TOPIC)), len(nobody.by_name(READ, TOPIC))) == (2, 0), "there is nothing to remember"
    assert made.take_denied().total() == made.denied_total == 2
    assert made.take_denied().total() == 0


def test_other_rules_count_at_once_and_the_same_ones_are_no_other_version() -> None:
    made, state = guarded("orders")
    made.rights(ANN, "h")
    before = made.version
    state.security = Security(acls=(reads("orders"),))
    made.rights(ANN, "h")
    assert made.version == before
    state.security = Security(acls=(reads("bills"),))
    rights = made.rights(ANN, "h")
    assert rights is not None
    assert (rights.may(READ, TOPIC, "orders"), rights.may(READ, TOPIC, "bills")) == (False, True)
    assert made.version > before


async def test_while_a_thread_prepares_other_rules_the_older_ones_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    made, state = guarded("orders")
    begun, may_end = threading.Event(), threading.Event()

    def slow(*args: Any, **others: Any) -> AccessList:
        begun.set()
        assert may_end.wait(60)
        return AccessList(*args, **others)

    def may(name: str) -> bool:
        rights = made.rights(ANN, "h")
        assert rights is not None
        return rights.may(READ, TOPIC, name)

    assert (may("orders"), may("bills")) == (True, False)
    monkeypatch.setattr(access, "AccessList", slow)
    rules = (reads("bills"),)
    taking = asyncio.create_task(made.take(rules))
    try:
        assert await asyncio.to_thread(begun.wait, 60)
        assert (may("orders"), may("bills")) == (True, False)
    finally:
        may_end.set()
    await taking
    state.security = Security(acls=rules)
    assert (may("orders"), may("bills")) == (False, True)


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_DECISIONS", 10)
    made, _ = guarded("orders")
    rights = made.rights(ANN, "h")
    assert rights is not None
    long_name = "x" * (MAX_REMEMBERED_NAME + 1)
    decisions = rights.by_name(READ, TOPIC)
    assert not decisions[long_name]
    assert long_name not in decisions
    for number in range(20):
        rights.may(READ, TOPIC, f"t{number}")
    assert made.rights(ANN, "h") is not rights, "all were forgotten at once"


def test_what_is_forgotten_is_freed_at_once() -> None:
    made, state = guarded("orders")
    with noted_garbage() as garbage:
        for rules in ((reads("orders"),), (reads("bills"),)):
            state.security = Security(acls=rules)
            rights = made.rights(ANN, "h")
            assert rights is not None
            rights.may(READ, TOPIC, "orders")
    assert not garbage


def test_without_an_authorizer_there_are_no_rights_to_ask() -> None:
    assert Access(state=BrokerState(settings=BrokerSettings())).rights(None, "h") is None


def test_what_a_change_takes_from_who_makes_it_is_known_before_it_is_made() -> None:
    def may(operation: str, **words: str) -> AclRow:
        return replace(
            reads("kafka-cluster"),
            resource_type="CLUSTER",
            **{"operation": operation, "principal": "User:ann", **words},
        )

    alter, see, bobs = may("ALTER"), may("DESCRIBE", principal="User:*"), may("ALTER", principal="User:bob")
    deny = may("ALL", principal="User:*", permission="DENY")
    made, state = guarded()
    state.security = Security(acls=(alter, see, bobs))

    def lost(principal: Principal, added: list[AclRow], removed: list[AclRow]) -> list[Operation]:
        rights = made.rights(principal, "10.0.0.1")
        assert rights is not None
        return made.cluster_operations_lost(rights, added, removed)

    assert lost(ANN, [], [alter]) == [Operation.ALTER]
    assert lost(ANN, [], [alter, see]) == [Operation.ALTER, Operation.DESCRIBE]
    assert lost(ANN, [], [see, bobs]) == []
    assert lost(ANN, [deny], []) == [Operation.ALTER, Operation.DESCRIBE]
    assert lost(ANN, [replace(deny, host="10.0.0.2")], []) == []
    assert lost(Principal("User", "root"), [deny], [alter, see]) == []


def test_where_everybody_may_use_what_no_rule_names_a_rule_about_somebody_else_takes_it() -> None:
    settings = BrokerSettings.of({"tiered.authorizer": "acl", "allow.everyone.if.no.acl.found": "true"})
    made = Access(state=BrokerState(settings=settings, security=Security()))
    rights = made.rights(ANN, "10.0.0.1")
    assert rights is not None
    bobs = replace(reads("kafka-cluster"), resource_type="CLUSTER", principal="User:bob", operation="DESCRIBE")
    assert made.cluster_operations_lost(rights, [bobs], []) == list(SUPPORTED[ResourceType.CLUSTER])
