"""Who may log in by a password, in SQL.

Owns the statements on `scram_credential`, and the one row of it that is nobody's: its key, the empty name, cannot be a
user's, and what stands there is a secret of this cluster, out of which brokers make what they ask unknown users. It
comes with the first user. Must never see a password.
"""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, and_, delete, select

from tiered.meta.security import note_change
from tiered.meta.security_tables import scram_credential
from tiered.meta.upserts import insert_for
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import CredentialChange

NOBODY = ""
SECRET_BYTES = 32


def alter(conn: Connection, changes: Iterable[CredentialChange], *, secret: bytes) -> set[str]:
    """The users who lack a credential that was to be deleted: nothing of theirs is changed, everything else is.

    `secret` counts when the cluster has none yet.
    """
    note_change(conn)
    conn.execute(
        insert_for(conn, scram_credential)
        .values(
            user_name=NOBODY,
            mechanism=ScramMechanism.SHA_512,
            salt=secret,
            stored_key=b"",
            server_key=b"",
            iterations=1,
        )
        .on_conflict_do_nothing()
    )
    by_user: dict[str, list[CredentialChange]] = {}
    for change in changes:
        assert change.user_name != NOBODY, "the row of nobody is changed by nobody"
        by_user.setdefault(change.user_name, []).append(change)
    missing = set()
    for user_name, theirs in by_user.items():
        if all(change.credential is not None or _is_there(conn, change) for change in theirs):
            for change in theirs:
                _alter_one(conn, change)
        else:
            missing.add(user_name)
    return missing


def _is_there(conn: Connection, change: CredentialChange) -> bool:
    return conn.scalar(select(scram_credential.c.iterations).where(_is_key_of(change))) is not None


def _alter_one(conn: Connection, change: CredentialChange) -> None:
    kept = change.credential
    if kept is None:
        conn.execute(delete(scram_credential).where(_is_key_of(change)))
        return
    values = {
        "salt": kept.salt,
        "stored_key": kept.stored_key,
        "server_key": kept.server_key,
        "iterations": kept.iterations,
    }
    conn.execute(
        insert_for(conn, scram_credential)
        .values(user_name=change.user_name, mechanism=change.mechanism, **values)
        .on_conflict_do_update(index_elements=["user_name", "mechanism"], set_=values)
    )


def _is_key_of(change: CredentialChange) -> ColumnElement[bool]:
    table = scram_credential.c
    return and_(table.user_name == change.user_name, table.mechanism == change.mechanism)
