"""New rules: what could mean nothing is refused, each for its reason."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.counted_turns import counted_turns
from tests.unit.broker.context import surroundings
from tests.unit.broker.security.rules import reads
from tiered.broker.context import BrokerContext
from tiered.broker.security.access import Access
from tiered.broker.security.acls import Acls
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import InvalidRequest, SecurityDisabled
from tiered.meta.security import Security
from tiered.rules.security.acl import AclFilter, Operation, PatternType, Permission, ResourceType

WANTED: dict[str, Any] = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "orders",
    "pattern_type": PatternType.LITERAL,
    "principal": "User:ann",
    "host": "*",
    "operation": Operation.READ,
    "permission": Permission.ALLOW,
}
WRONG = (
    {"resource_type": ResourceType.ANY},
    {"pattern_type": PatternType.MATCH},
    {"operation": Operation.ANY},
    {"permission": Permission.ANY},
    {"resource_name": ""},
    {"resource_name": "a\0b"},
    {"resource_type": ResourceType.CLUSTER},
    {"principal": "ann"},
    {"host": "x" * 10_000},
)


def acls_of(context: BrokerContext) -> Acls:
    feed = ChangeFeed(context=context, image=ClusterImage())
    return Acls(context=context, access=Access(state=context.state), changes=Changes(feed=feed), feed=feed)


async def test_a_rule_that_could_mean_nothing_is_refused(tmp_path: Path) -> None:
    async with surroundings(tmp_path, tiered_authorizer="acl", super_users="User:root") as made:
        acls = acls_of(made.context)
        assert acls.check(**WANTED) == reads("orders")
        for wrong in WRONG:
            with pytest.raises(InvalidRequest):
                acls.check(**(WANTED | wrong))


async def test_where_no_rule_is_looked_at_nobody_is_told_of_any(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        acls = acls_of(made.context)
        with pytest.raises(SecurityDisabled):
            await acls.describe(AclFilter())
        with pytest.raises(SecurityDisabled):
            acls.stored_as({word: getattr(reads("orders"), word) for word in WANTED})


async def test_a_filter_that_meets_nothing_is_compared_with_all_rules_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
    async with surroundings(tmp_path, tiered_authorizer="acl", super_users="User:root") as made:
        acls = acls_of(made.context)
        made.state.security = Security(acls=tuple(reads(f"t{number}") for number in range(100)))
        turns, rules = await counted_turns(acls.describe(AclFilter(principal="User:nobody")))
        assert not rules
        assert turns >= 100
