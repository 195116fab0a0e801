"""Client quotas in SQL: which entity has which.

Owns the table's statements. Must never decide what a quota may be, or for whom it counts: `rules.security.quotas` does.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert

from tiered.meta.security import note_change
from tiered.meta.security_tables import client_quota
from tiered.rules.security.quotas import QuotaChange


def alter(conn: Connection, changes: Sequence[QuotaChange]) -> int:
    """The number of the change. Where the same quota is changed twice the last one counts."""
    number = note_change(conn)
    for change in changes:
        key = _key(change)
        conn.execute(delete(client_quota).where(*(client_quota.c[name] == value for name, value in key.items())))
        if change.value is not None:
            conn.execute(insert(client_quota).values(value=change.value, **key))
    return number


def _key(change: QuotaChange) -> dict[str, Any]:
    entity = change.entity
    return {
        "has_user": entity.user is not None,
        "user_name": entity.user or "",
        "has_client_id": entity.client_id is not None,
        "client_id": entity.client_id or "",
        "has_ip": entity.ip is not None,
        "ip": entity.ip or "",
        "quota": change.quota,
    }
