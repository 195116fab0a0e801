"""SQL's rows about security, as one piece: brokers keep them in memory, and read all anew when any has changed.

Owns the rows of credentials, access control lists and quotas, the bound of their number, and the number of their last
change: a function that changes one of these tables calls `note_change` first, in the same transaction. Must never see a
password, nor decide what a rule or a quota means: `rules.security` does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, insert, select, update

from tiered.errors import PolicyViolation
from tiered.meta.cluster import take_number
from tiered.meta.security_tables import acl, client_quota, scram_credential
from tiered.meta.tables import ONLY_ROW, cluster
from tiered.meta.upserts import insert_for
from tiered.rules.security.acl import AclFilter
from tiered.rules.security.quotas import QuotaChange, QuotaEntity
from tiered.rules.security.sasl.failures import UserExists, UserNotFound
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import CredentialChange, ScramCredential

MAX_ACLS = 20_000
"""Every broker has all of them in memory and reads them anew when one changes."""
NOBODY = ""
"""Whose row of `scram_credential` is no user's: its salt is a secret of this cluster, out of which brokers make what
they ask unknown users. It comes with the first user."""
SECRET_BYTES = 32
_ACL_KEY = tuple(column.name for column in acl.primary_key.columns)
_KEPT = tuple(each.name for each in fields(ScramCredential))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialRow:
    """One user's credential for one mechanism (RFC 5802)."""

    user_name: str
    mechanism: str
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredentialRow({self.user_name!r}, {self.mechanism})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRow:
    """One rule; the words are Kafka's, in capitals. `host` is an address or `*`."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRow:
    """One quota of one entity. None: the entity has no such part; `''`: the default of its kind."""

    user_name: str | None
    client_id: str | None
    ip: str | None
    quota: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Everything, as of one change."""

    credentials: tuple[ScramCredentialRow, ...] = ()
    acls: tuple[AclRow, ...] = ()
    quotas: tuple[ClientQuotaRow, ...] = ()


def note_change(conn: Connection) -> int:
    """The number of a change of these tables. Rows that are removed could carry none, so all of them share one."""
    number = take_number(conn)
    conn.execute(update(cluster).where(cluster.c.id == ONLY_ROW).values(security_change_number=number))
    return number


def load_all(conn: Connection) -> Security:
    """All that is kept, in the order of the keys."""
    credentials = conn.execute(
        select(scram_credential).order_by(scram_credential.c.user_name, scram_credential.c.mechanism)
    )
    quotas = conn.execute(select(client_quota).order_by(*client_quota.primary_key.columns))
    return Security(
        credentials=tuple(ScramCredentialRow(**row) for row in credentials.mappings()),
        acls=load_acls(conn),
        quotas=tuple(
            ClientQuotaRow(
                user_name=row.user_name if row.has_user else None,
                client_id=row.client_id if row.has_client_id else None,
                ip=row.ip if row.has_ip else None,
                quota=row.quota,
                value=row.value,
            )
            for row in quotas
        ),
    )


def load_acls(conn: Connection) -> tuple[AclRow, ...]:
    """Every rule, in the order of the keys."""
    columns = [column for column in acl.c if column is not acl.c.created_at_ms]
    rows = conn.execute(select(*columns).order_by(*acl.primary_key.columns))
    return tuple(AclRow(**row) for row in rows.mappings())


# Changes


def create_acls(conn: Connection, rules: Sequence[AclRow], *, now_ms: int) -> int:
    """The number of the change. Rules that exist already stay. Raises PolicyViolation when there would be too many."""
    number = note_change(conn)
    there = set(load_acls(conn))
    new = [rule for rule in dict.fromkeys(rules) if rule not in there]
    if len(there) + len(new) > MAX_ACLS:
        raise PolicyViolation(
            f"{len(there)} access control lists are there, and {MAX_ACLS} are possible: name resources by the "
            "beginning of their names (PREFIXED), or delete some"
        )
    if new:
        conn.execute(insert(acl), [{**_values(rule), "created_at_ms": now_ms} for rule in new])
    return number


def remove_acls(conn: Connection, filters: Sequence[AclFilter]) -> list[list[AclRow]]:
    """The rules that each filter has found, all of which are gone."""
    note_change(conn)
    there = load_acls(conn)
    found = [[rule for rule in there if wanted.matches(rule)] for wanted in filters]
    for rule in dict.fromkeys(rule for some in found for rule in some):
        conn.execute(delete(acl).where(_is(acl, _values(rule))))
    return found


def remove_exactly(conn: Connection, rules: Sequence[AclRow]) -> list[AclRow]:
    """Those of the rules that were there; all of them are gone. However many are named, the table is read once."""
    note_change(conn)
    stored_rules = set(load_acls(conn))
    removed = [rule for rule in dict.fromkeys(rules) if rule in stored_rules]
    for rule in removed:
        conn.execute(delete(acl).where(_is(acl, _values(rule))))
    return removed


def alter_quotas(conn: Connection, changes: Sequence[QuotaChange]) -> int:
    """The number of the change. Where the same quota is changed twice the last one counts."""
    number = note_change(conn)
    for change in changes:
        key = quota_key(change.entity, change.quota)
        conn.execute(delete(client_quota).where(_is(client_quota, key)))
        if change.value is not None:
            conn.execute(insert(client_quota).values(value=change.value, **key))
    return number


def quota_key(entity: QuotaEntity, quota: str) -> dict[str, Any]:
    """The key of a quota's row."""
    return {
        "has_user": entity.user is not None,
        "user_name": entity.user or "",
        "has_client_id": entity.client_id is not None,
        "client_id": entity.client_id or "",
        "has_ip": entity.ip is not None,
        "ip": entity.ip or "",
        "quota": quota,
    }


def alter_credentials(
    conn: Connection,
    changes: Iterable[CredentialChange],
    *,
    secret: bytes,
    new_users: Iterable[str] = (),
    existing_users: Iterable[str] = (),
) -> set[str]:
    """The users who lack a credential that was to be deleted: nothing of theirs is changed, everything else is.

    `secret` counts when the cluster has none yet. Raises UserExists where one of `new_users` is there already, and
    UserNotFound where one of `existing_users` is not; nothing is changed then.
    """
    note_change(conn)  # Its lock is held until the transaction ends: nobody adds or deletes a user in between.
    for user_name in new_users:
        if _mechanisms_of(conn, user_name):
            raise UserExists(
                f"user {user_name[:80]!r} exists already, and nothing was changed: give it a new password instead"
            )
    for user_name in existing_users:
        if not _mechanisms_of(conn, user_name):
            raise UserNotFound(f"there is no user {user_name[:80]!r}, and nothing was changed: create it instead")
    nobody = {"salt": secret, "stored_key": b"", "server_key": b"", "iterations": 1}
    conn.execute(
        insert_for(conn, scram_credential)
        .values(user_name=NOBODY, mechanism=ScramMechanism.SHA_512, **nobody)
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
                _alter_credential(conn, change)
        else:
            missing.add(user_name)
    return missing


def delete_user(conn: Connection, user_name: str) -> list[str]:
    """The mechanisms of all passwords that the user had and that are deleted now. Raises UserNotFound."""
    assert user_name != NOBODY, "the row of nobody is changed by nobody"
    note_change(conn)
    mechanisms = _mechanisms_of(conn, user_name)
    if not mechanisms:
        raise UserNotFound(f"there is no user {user_name[:80]!r}; GET /api/v1/users has those that there are")
    conn.execute(delete(scram_credential).where(scram_credential.c.user_name == user_name))
    return mechanisms


def _mechanisms_of(conn: Connection, user_name: str) -> list[str]:
    column = scram_credential.c.mechanism
    return list(conn.scalars(select(column).where(scram_credential.c.user_name == user_name).order_by(column)))


def _is_there(conn: Connection, change: CredentialChange) -> bool:
    statement = select(scram_credential.c.iterations).where(_is(scram_credential, _key_of(change)))
    return conn.scalar(statement) is not None


def _alter_credential(conn: Connection, change: CredentialChange) -> None:
    key = _key_of(change)
    if change.credential is None:
        conn.execute(delete(scram_credential).where(_is(scram_credential, key)))
        return
    kept = {name: getattr(change.credential, name) for name in _KEPT}
    conn.execute(
        insert_for(conn, scram_credential)
        .values(**key, **kept)
        .on_conflict_do_update(index_elements=list(key), set_=kept)
    )


def _key_of(change: CredentialChange) -> dict[str, str]:
    return {"user_name": change.user_name, "mechanism": change.mechanism}


def _values(rule: AclRow) -> dict[str, str]:
    return {name: getattr(rule, name) for name in _ACL_KEY}


def _is(table: Table, key: Mapping[str, Any]) -> ColumnElement[bool]:
    """The condition that names one row."""
    return and_(*(table.c[name] == value for name, value in key.items()))
