"""Users on SQLite and on PostgreSQL: made, changed and deleted, each for itself; and the row that is nobody's."""

import pytest

from tiered.meta import changes, cluster
from tiered.meta.engine import Database
from tiered.meta.security import NOBODY, alter_credentials, delete_user
from tiered.rules.security.sasl.failures import UserExists, UserNotFound
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import CredentialChange, ScramCredential

pytest_plugins = ["tests.meta_databases"]

SHA_256, SHA_512 = ScramMechanism
ONE = ScramCredential(salt=b"salt\x00", stored_key=b"stored\xff", server_key=b"server", iterations=4096)
OTHER = ScramCredential(salt=b"other", stored_key=b"s", server_key=b"k", iterations=8192)
Change = tuple[str, ScramMechanism, ScramCredential | None]


def change(database: Database, *wanted: Change, secret: bytes = b"first") -> set[str]:
    made = [CredentialChange(user_name=name, mechanism=how, credential=kept) for name, how, kept in wanted]
    return database.run_sync(lambda conn: alter_credentials(conn, made, secret=secret))


def held(database: Database, since: int = -1) -> dict[tuple[str, str], ScramCredential]:
    security = database.run_sync(lambda conn: changes.since(conn, since)).security
    assert security is not None
    return {
        (row.user_name, row.mechanism): ScramCredential(
            salt=row.salt, stored_key=row.stored_key, server_key=row.server_key, iterations=row.iterations
        )
        for row in security.credentials
    }


def test_each_user_has_one_credential_for_each_mechanism(database: Database) -> None:
    before = database.run_sync(cluster.load).change_number
    assert change(database, ("älice", SHA_256, ONE), ("älice", SHA_512, OTHER), ("bob", SHA_256, ONE)) == set()
    found = held(database, before)
    nobody = found.pop((NOBODY, SHA_512))
    assert nobody.salt == b"first"
    assert found == {("älice", SHA_256): ONE, ("älice", SHA_512): OTHER, ("bob", SHA_256): ONE}
    change(database, ("älice", SHA_256, OTHER), ("älice", SHA_512, None), secret=b"second")
    found = held(database)
    assert found.pop((NOBODY, SHA_512)).salt == b"first", (
        "unknown users are asked the same thing as long as there are any"
    )
    assert found == {("älice", SHA_256): OTHER, ("bob", SHA_256): ONE}


def test_a_user_of_whom_something_is_missing_is_left_alone_and_others_are_not(database: Database) -> None:
    change(database, ("alice", SHA_256, ONE))
    missing = change(database, ("alice", SHA_256, OTHER), ("alice", SHA_512, None), ("bob", SHA_256, OTHER))
    assert missing == {"alice"}
    found = held(database)
    assert (found["alice", SHA_256], found["bob", SHA_256]) == (ONE, OTHER)


def test_a_new_user_takes_no_name_that_somebody_has(database: Database) -> None:
    change(database, ("alice", SHA_256, ONE))
    before = held(database)
    wanted = [CredentialChange(user_name="alice", mechanism=SHA_512, credential=OTHER)]
    with pytest.raises(UserExists, match="exists already"):
        database.run_sync(lambda conn: alter_credentials(conn, wanted, secret=b"x", new_users=["bob", "alice"]))
    assert held(database) == before
    database.run_sync(lambda conn: alter_credentials(conn, wanted, secret=b"x"))
    assert held(database)["alice", SHA_512] == OTHER


def test_a_new_password_is_for_users_who_are_still_there(database: Database) -> None:
    change(database, ("alice", SHA_256, ONE))
    before = held(database)
    wanted = [CredentialChange(user_name="bob", mechanism=SHA_512, credential=OTHER)]
    with pytest.raises(UserNotFound, match="there is no user 'bob'"):
        database.run_sync(lambda conn: alter_credentials(conn, wanted, secret=b"x", existing_users=["alice", "bob"]))
    assert held(database) == before
    wanted = [CredentialChange(user_name="alice", mechanism=SHA_512, credential=OTHER)]
    database.run_sync(lambda conn: alter_credentials(conn, wanted, secret=b"x", existing_users=["alice"]))
    assert held(database)["alice", SHA_512] == OTHER


def test_a_user_is_deleted_with_all_its_passwords(database: Database) -> None:
    change(database, ("alice", SHA_256, ONE), ("alice", SHA_512, OTHER), ("bob", SHA_256, ONE))
    assert database.run_sync(lambda conn: delete_user(conn, "alice")) == [SHA_256, SHA_512]
    assert held(database).keys() == {("bob", SHA_256), (NOBODY, SHA_512)}
    with pytest.raises(UserNotFound, match="there is no user 'alice'"):
        database.run_sync(lambda conn: delete_user(conn, "alice"))


def test_no_repr_shows_what_is_kept(database: Database) -> None:
    change(database, ("alice", SHA_256, ONE))
    security = database.run_sync(lambda conn: changes.since(conn, -1)).security
    assert "stored" not in repr(security)
    assert "stored" not in repr(ONE)
