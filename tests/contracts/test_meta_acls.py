"""Access control lists on SQLite and on PostgreSQL: added once, found and taken away by filters, within a bound."""

import pytest

from tests.components.guarded_broker import allow
from tiered.errors import PolicyViolation
from tiered.meta import changes, cluster, security
from tiered.meta.engine import Database
from tiered.meta.security import AclRow
from tiered.rules.security.acl import AclFilter, PatternType, ResourceType

pytest_plugins = ["tests.meta_databases"]

ORDERS = allow("READ", "TOPIC", "orders")
ALL = allow("READ", "TOPIC", "*", permission="DENY", principal="User:eve")
PREFIX = allow("WRITE", "TOPIC", "ord", pattern_type="PREFIXED", host="10.0.0.1")
GROUP = allow("READ", "GROUP", "orders")


def create(database: Database, *rules: AclRow) -> int:
    return database.run_sync(lambda conn: security.create_acls(conn, rules, now_ms=1))


def remove(database: Database, *filters: AclFilter) -> list[list[AclRow]]:
    return database.run_sync(lambda conn: security.remove_acls(conn, filters))


def held(database: Database, since: int) -> set[AclRow]:
    found = database.run_sync(lambda conn: changes.since(conn, since)).security
    assert found is not None
    return set(found.acls)


def test_rules_are_added_once_and_seen_by_the_feed(database: Database) -> None:
    before = database.run_sync(cluster.load).change_number
    assert create(database, ORDERS, ALL, PREFIX, ORDERS) > before
    create(database, ORDERS, GROUP)
    assert held(database, before) == {ORDERS, ALL, PREFIX, GROUP}


def test_each_filter_takes_away_what_it_means_and_says_what(database: Database) -> None:
    since = create(database, ORDERS, ALL, PREFIX, GROUP) - 1
    match = AclFilter(resource_type=ResourceType.TOPIC, resource_name="orders", pattern_type=PatternType.MATCH)
    eve = AclFilter(principal="User:eve")
    found = remove(database, match, eve, AclFilter(resource_name="nothing"))
    assert [set(some) for some in found] == [{ORDERS, ALL, PREFIX}, {ALL}, set()]
    assert held(database, since) == {GROUP}


def test_rules_that_are_named_go_and_none_that_is_only_like_them(database: Database) -> None:
    since = create(database, ORDERS, ALL, PREFIX) - 1
    removed = database.run_sync(lambda conn: security.remove_exactly(conn, [ORDERS, ORDERS, GROUP]))
    assert removed == [ORDERS]
    assert held(database, since) == {ALL, PREFIX}


def test_no_filter_finds_what_is_gone(database: Database) -> None:
    create(database, ORDERS)
    assert remove(database, AclFilter()) == [[ORDERS]]
    assert remove(database, AclFilter()) == [[]]


def test_there_are_no_more_rules_than_the_bound(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "MAX_ACLS", 2)
    since = create(database, ORDERS, ALL) - 1
    create(database, ORDERS)
    with pytest.raises(PolicyViolation, match="2 are possible"):
        create(database, GROUP)
    assert held(database, since) == {ORDERS, ALL}
