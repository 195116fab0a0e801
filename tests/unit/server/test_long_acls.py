"""Answers with thousands of access control lists are made step by step."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.counted_turns import counted_turns
from tests.unit.broker.security.rules import reads
from tiered.rules.security.acl import AclFilter
from tiered.server.kafka.api import acls
from tiered.wire import messages

VERSION = 3
ALL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
RULES = [reads(f"t{number}") for number in range(100)]


async def _described(_wanted: AclFilter) -> Any:
    return RULES


async def _deleted(filters: list[AclFilter]) -> Any:
    return [RULES for _ in filters]


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A request's context where everybody may do everything, and a step of the loop for each item."""
    monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
    stored = SimpleNamespace(describe=_described, delete=_deleted)
    return SimpleNamespace(broker=SimpleNamespace(access=SimpleNamespace(is_on=False), acls=stored))


async def test_rules_are_described_in_turns_and_so_are_their_resources(context: Any) -> None:
    request, reply = messages.request(29, VERSION).DescribeAclsRequest(**ALL), cast(Any, messages.reply(29, VERSION))
    turns, answer = await counted_turns(acls.describe(context, request, reply))
    assert len(answer.resources) == len(RULES)
    assert turns >= 2 * len(RULES)


async def test_what_a_filter_deleted_is_answered_in_turns(context: Any) -> None:
    make, reply = messages.request(31, VERSION), cast(Any, messages.reply(31, VERSION))
    request = make.DeleteAclsRequest(filters=[make.DeleteAclsFilter(**ALL)])
    turns, answer = await counted_turns(acls.delete(context, request, reply))
    assert [len(result.matching_acls) for result in answer.filter_results] == [len(RULES)]
    assert turns >= len(RULES)
