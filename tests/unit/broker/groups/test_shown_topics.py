"""Which matched topics a subscriber gets: none before its right was looked at, and others with other rights."""

from tiered.broker.context import BrokerState
from tiered.broker.groups.memory import GroupMemory
from tiered.broker.groups.shown_topics import ShownTopics
from tiered.broker.security.access import Access
from tiered.config import BrokerSettings
from tiered.meta.security import AclRow, Security
from tiered.rules.groups.consumer_member import Pattern
from tiered.rules.security.principal import Principal

ANN = Pattern(".*", Principal("User", "ann"), "127.0.0.1")
MATCHED = frozenset({"own-1", "own-2", "hidden"})


def sees(name: str) -> AclRow:
    return AclRow(
        resource_type="TOPIC", resource_name=name, pattern_type="PREFIXED", principal="User:ann", host="*",
        operation="DESCRIBE", permission="ALLOW",
    )  # fmt: skip


def shown(*rules: AclRow) -> tuple[ShownTopics, BrokerState, GroupMemory]:
    settings = BrokerSettings.of({"tiered.authorizer": "acl", "super.users": "User:root"})
    state, memory = BrokerState(settings=settings, security=Security(acls=rules)), GroupMemory(lambda: 1 << 20)
    return ShownTopics(Access(state=state), memory, set), state, memory


async def test_a_topic_is_shown_once_its_right_was_looked_at() -> None:
    topics, _, memory = shown(sees("own"))
    assert topics.of(ANN, MATCHED) == frozenset()
    await topics.look(ANN, MATCHED)
    assert topics.of(ANN, MATCHED) == {"own-1", "own-2"}
    more = MATCHED | {"own-3"}
    assert topics.of(ANN, more) == {"own-1", "own-2"}
    await topics.look(ANN, more)
    assert topics.of(ANN, more) == {"own-1", "own-2", "own-3"}
    assert memory.taken_bytes > 0


async def test_other_rights_show_other_topics_under_another_version() -> None:
    topics, state, _ = shown(sees("own"))
    await topics.look(ANN, MATCHED)
    before = topics.version
    state.security = Security(acls=(sees("hidden"),))
    await topics.look(ANN, MATCHED)
    assert topics.of(ANN, MATCHED) == {"hidden"}
    assert topics.version > before
