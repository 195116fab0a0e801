"""What the catalogue knows of security, as one piece: brokers keep it in memory and get it anew when any of it changed.

Owns the rows of credentials, access control lists and quotas, and the number of their last change. Must never decide
anything: `rules` does. Whoever changes one of these tables calls `note_change` first, in the same transaction.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from tiered.meta.cluster import take_number
from tiered.meta.security_tables import acl, client_quota, scram_credential
from tiered.meta.tables import ONLY_ROW, cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialRow:
    """What is kept of one user's password for one mechanism (RFC 5802)."""

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
