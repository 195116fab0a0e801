"""Quotas on SQLite and on PostgreSQL: set, changed and taken away, each entity for itself."""

from tiered.meta import changes, cluster, security
from tiered.meta.engine import Database
from tiered.rules.security.quotas import QuotaChange, QuotaEntity

pytest_plugins = ["tests.meta_databases"]

ALICE = QuotaEntity(user="alice")
ENTITIES = [
    ALICE,
    QuotaEntity(user=""),
    QuotaEntity(user="alice", client_id="app"),
    QuotaEntity(user="alice", client_id=""),
    QuotaEntity(client_id="app"),
    QuotaEntity(client_id=""),
    QuotaEntity(ip="::1"),
    QuotaEntity(ip=""),
]


def alter(database: Database, *changed: tuple[QuotaEntity, str, float | None]) -> int:
    wanted = [QuotaChange(entity=entity, quota=quota, value=value) for entity, quota, value in changed]
    return database.run_sync(lambda conn: security.alter_quotas(conn, wanted))


def held(database: Database, since: int) -> dict[tuple[QuotaEntity, str], float]:
    found = database.run_sync(lambda conn: changes.since(conn, since)).security
    assert found is not None
    return {
        (QuotaEntity(user=row.user_name, client_id=row.client_id, ip=row.ip), row.quota): row.value
        for row in found.quotas
    }


def test_each_entity_keeps_its_own_quotas(database: Database) -> None:
    before = database.run_sync(cluster.load).change_number
    number = alter(database, *((entity, "a_rate", float(at + 1)) for at, entity in enumerate(ENTITIES)))
    assert number > before
    assert held(database, before) == {(entity, "a_rate"): at + 1.0 for at, entity in enumerate(ENTITIES)}


def test_a_quota_is_replaced_and_taken_away_and_another_one_stays(database: Database) -> None:
    first = alter(database, (ALICE, "a_rate", 1.0), (ALICE, "b_rate", 2.5))
    second = alter(database, (ALICE, "a_rate", 3.0), (QuotaEntity(client_id="alice"), "a_rate", 9.0))
    assert held(database, first)[ALICE, "a_rate"] == 3.0
    alter(database, (ALICE, "a_rate", None), (QuotaEntity(user="nobody"), "a_rate", None))
    assert held(database, second) == {(ALICE, "b_rate"): 2.5, (QuotaEntity(client_id="alice"), "a_rate"): 9.0}
