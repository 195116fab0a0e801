"""New rules: what could mean nothing is refused, each for its reason."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.context import surroundings
from tests.unit.broker.security.rules import reads
from tiered.broker.security.access import Access
from tiered.broker.security.acls import Acls
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import InvalidRequest, SecurityDisabled
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


async def test_a_rule_that_could_mean_nothing_is_refused(tmp_path: Path) -> None:
    async with surroundings(tmp_path, tiered_authorizer="acl", super_users="User:root") as made:
        feed = ChangeFeed(context=made.context, image=ClusterImage())
        acls = Acls(
            context=made.context,
            access=Access(state=made.context.state),
            changes=Changes(feed=feed),
            feed=feed,
        )
        assert acls.check(**WANTED) == reads("orders")
        for wrong in WRONG:
            with pytest.raises(InvalidRequest):
                acls.check(**(WANTED | wrong))


async def test_where_no_rule_is_looked_at_nobody_is_told_of_any(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        feed = ChangeFeed(context=made.context, image=ClusterImage())
        acls = Acls(
            context=made.context,
            access=Access(state=made.context.state),
            changes=Changes(feed=feed),
            feed=feed,
        )
        with pytest.raises(SecurityDisabled):
            acls.describe(AclFilter())
        with pytest.raises(SecurityDisabled):
            acls.stored_as({word: getattr(reads("orders"), word) for word in WANTED})
