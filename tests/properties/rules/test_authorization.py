"""Access control lists, prepared, say what Kafka's documentation says, rule by rule."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.security.acl import SUPPORTED, AclFilter, Operation, PatternType, Permission, ResourceType
from tiered.rules.security.authorization import (
    EVERYTHING,
    MAX_SCOPE_NAMES,
    MAX_SCOPE_PREFIXES,
    AccessList,
    NameScope,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


NAMES = st.text("ab", min_size=1, max_size=3)
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2"])
USERS = st.sampled_from(["User:ann", "User:bob", "Group:ann"])
TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
ASKED = st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS])
ROWS = st.lists(
    st.builds(
        Row,
        resource_type=TYPES.map(lambda each: each.name),
        resource_name=NAMES | st.just("*"),
        pattern_type=st.sampled_from(["LITERAL", "PREFIXED"]),
        principal=USERS | st.just("User:*"),
        host=HOSTS | st.just("*"),
        operation=st.sampled_from(["ALL", "READ", "WRITE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"]),
        permission=st.sampled_from(["ALLOW", "DENY"]),
    ),
    max_size=6,
)


def _is_about(row: Row, resource_type: ResourceType, name: str) -> bool:
    if row.resource_type != resource_type.name:
        return False
    if row.pattern_type == "PREFIXED":
        return name.startswith(row.resource_name)
    return row.resource_name in (name, "*")


def _is_for(row: Row, principal: str, host: str) -> bool:
    return row.principal in (principal, "User:*") and row.host in (host, "*")


def _oracle(
    rows: list[Row],
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    allow_unnamed: bool,
) -> bool:
    """As Kafka documents it, without any index."""
    about = [row for row in rows if _is_about(row, resource_type, name)]
    mine = [row for row in about if _is_for(row, principal, host)]
    if any(row.permission == "DENY" and row.operation in (operation.name, "ALL") for row in mine):
        return False
    enough = {operation.name, "ALL"}
    if operation is Operation.DESCRIBE:
        enough |= {"READ", "WRITE", "DELETE", "ALTER"}
    if operation is Operation.DESCRIBE_CONFIGS:
        enough |= {"ALTER_CONFIGS"}
    if any(row.permission == "ALLOW" and row.operation in enough for row in mine):
        return True
    return allow_unnamed and not about


@given(rows=ROWS, principal=USERS, host=HOSTS, operation=ASKED, kind=TYPES, name=NAMES, allow_unnamed=st.booleans())
def test_the_prepared_list_decides_as_the_plain_reading_of_the_rules(
    rows: list[Row],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    allow_unnamed: bool,
) -> None:
    prepared = AccessList(rows, super_users=["User:root"], allow_unnamed=allow_unnamed)
    expected = _oracle(rows, principal, host, operation, kind, name, allow_unnamed=allow_unnamed)
    scope = prepared.scope(principal, host, operation, kind)
    assert scope.holds(name) or not expected, "a list looks wherever something may be seen"
    assert prepared.allows(principal, host, operation, kind, name) is expected
    assert prepared.allows("User:root", host, operation, kind, name)
    bits = prepared.authorized_operations(principal, host, kind, name)
    for each in SUPPORTED[kind]:
        assert bool(bits >> each & 1) is _oracle(rows, principal, host, each, kind, name, allow_unnamed=allow_unnamed)


@given(rows=ROWS, principal=USERS, host=HOSTS, allow_unnamed=st.booleans())
def test_somewhere_is_allowed_only_where_some_name_is(
    rows: list[Row], principal: str, host: str, allow_unnamed: bool
) -> None:
    prepared = AccessList(rows, allow_unnamed=allow_unnamed)
    # Names of up to four letters hold one that no rule names, and one under every prefix.
    names = ["c"] + [row.resource_name + end for row in rows for end in ("", "c")]
    somewhere = any(
        _oracle(rows, principal, host, Operation.WRITE, ResourceType.TOPIC, name, allow_unnamed=allow_unnamed)
        for name in names
    )
    answer = prepared.allows_any(principal, host, Operation.WRITE, ResourceType.TOPIC)
    # What Kafka counts as dominated may still leave a name over, never the other way round: it errs towards no.
    assert somewhere or not answer


def test_a_rule_about_names_that_begin_with_a_star_leaves_the_others_to_everybody() -> None:
    row = Row(
        resource_type="TOPIC",
        resource_name="*",
        pattern_type="PREFIXED",
        principal="User:bob",
        host="*",
        operation="READ",
        permission="DENY",
    )
    prepared = AccessList([row], allow_unnamed=True)
    assert prepared.allows("User:alice", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, "orders")
    assert prepared.allows_any("User:alice", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC)


def test_a_scope_is_what_rules_of_the_principal_name_and_everything_where_they_are_many() -> None:
    def allowing(*names: str, pattern_type: str = "LITERAL", operation: str = "DESCRIBE") -> list[Row]:
        return [
            Row(
                resource_type="GROUP",
                resource_name=name,
                pattern_type=pattern_type,
                principal="User:alice",
                host="*",
                operation=operation,
                permission="ALLOW",
            )
            for name in names
        ]

    def scope(*rows: Row, principal: str = "User:alice", **how: Any) -> NameScope:
        return AccessList(rows, **how).scope(principal, "10.0.0.1", Operation.DESCRIBE, ResourceType.GROUP)

    some = [*allowing("a", "b", operation="READ"), *allowing("team-", pattern_type="PREFIXED")]
    assert scope(*some) == NameScope(frozenset({"a", "b"}), ("team-",))
    assert scope(*some, principal="User:mallory").is_nothing
    assert scope(*allowing("a", operation="DELETE_RECORDS")).is_nothing
    for everything in (
        scope(*some, *allowing("*")),
        scope(*allowing(*map(str, range(MAX_SCOPE_NAMES + 1)))),
        scope(*allowing(*map(str, range(MAX_SCOPE_PREFIXES + 1)), pattern_type="PREFIXED")),
        scope(super_users=["User:alice"]),
        scope(allow_unnamed=True),
    ):
        assert everything is EVERYTHING
    assert EVERYTHING.holds("any")


@given(rows=ROWS, name=NAMES, kind=TYPES | st.just(ResourceType.ANY), pattern=st.sampled_from(PatternType))
def test_a_filter_means_what_kafka_says_it_means(
    rows: list[Row], name: str, kind: ResourceType, pattern: PatternType
) -> None:
    wanted = AclFilter(resource_type=kind, resource_name=name, pattern_type=pattern)
    for row in rows:
        if pattern is PatternType.MATCH:
            expected = any(_is_about(row, each, name) for each in ResourceType)
        else:
            expected = row.resource_name == name and pattern.name in ("ANY", row.pattern_type)
        assert wanted.matches(row) is (expected and kind.name in ("ANY", row.resource_type))


@given(rows=ROWS)
def test_an_open_filter_matches_everything_and_each_word_narrows_it(rows: list[Row]) -> None:
    for row in rows:
        assert AclFilter().matches(row)
        assert AclFilter(principal=row.principal, host=row.host).matches(row)
        assert AclFilter(operation=Operation[row.operation], permission=Permission[row.permission]).matches(row)
        assert not AclFilter(principal="User:zoe").matches(row)
        assert not AclFilter(host="10.9.9.9").matches(row)
        assert not AclFilter(operation=Operation.CREATE).matches(row)
