"""Credentials, access control lists and quotas on SQLite and on PostgreSQL: all of them at once, when any changed."""

from sqlalchemy import Connection, insert

from tests.catalogue import NOW_MS
from tiered.meta import changes, cluster, security
from tiered.meta.engine import Database
from tiered.meta.security import AclRow, ClientQuotaRow, ScramCredentialRow, Security
from tiered.meta.security_tables import acl, client_quota, scram_credential

pytest_plugins = ["tests.meta_databases"]

RULE = AclRow(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="LITERAL",
    principal="User:alice",
    host="*",
    operation="READ",
    permission="ALLOW",
)
CREDENTIAL = ScramCredentialRow(
    user_name="alice", mechanism="SCRAM-SHA-512", salt=b"s", stored_key=b"st", server_key=b"se", iterations=4096
)


def fill(conn: Connection) -> int:
    number = security.note_change(conn)
    conn.execute(
        insert(acl).values(
            created_at_ms=NOW_MS,
            **{name: getattr(RULE, name) for name in AclRow.__slots__},
        )
    )
    conn.execute(
        insert(scram_credential).values({name: getattr(CREDENTIAL, name) for name in ScramCredentialRow.__slots__})
    )
    entities = (
        {"has_user": True, "user_name": "", "has_client_id": True, "client_id": "app", "has_ip": False, "ip": ""},
        {"has_user": False, "user_name": "", "has_client_id": False, "client_id": "", "has_ip": True, "ip": "::1"},
    )
    for entity in entities:
        conn.execute(insert(client_quota).values(quota="producer_byte_rate", value=1024.5, **entity))
    return number


def test_a_change_of_security_brings_all_of_it_and_no_other_change_does(database: Database) -> None:
    before = database.run_sync(cluster.load).change_number
    number = database.run_sync(fill)
    expected = Security(
        credentials=(CREDENTIAL,),
        acls=(RULE,),
        quotas=(
            ClientQuotaRow(user_name=None, client_id=None, ip="::1", quota="producer_byte_rate", value=1024.5),
            ClientQuotaRow(user_name="", client_id="app", ip=None, quota="producer_byte_rate", value=1024.5),
        ),
    )
    found = database.run_sync(lambda conn: changes.since(conn, before))
    assert found.number == number
    assert found.security == expected
    database.run_sync(cluster.take_number)
    assert database.run_sync(lambda conn: changes.since(conn, number)).security is None


def test_a_credential_is_not_shown_where_it_is_named() -> None:
    assert "b'st'" not in repr(CREDENTIAL)
    assert "alice" in repr(CREDENTIAL)
