"""Dynamic broker settings: defaults for all brokers, and those of one broker.

Owns the stored text. Must never interpret a value: `config` knows names, ranges and defaults.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, delete, insert, select, update

from tiered.meta.cluster import take_number
from tiered.meta.tables import CLUSTER_WIDE, ONLY_ROW, broker_config, cluster


def alter(
    conn: Connection, *, broker_id: int | None, values: Mapping[str, str], removed: Iterable[str] = ()
) -> dict[str, str]:
    """Sets `values` and drops `removed` for one broker, or for all (`None`); the settings of that scope afterwards."""
    note_change(conn)
    scope = _scope(broker_id)
    _remove(conn, scope, {*values, *removed})
    _add(conn, scope, values)
    return _of_scope(conn, scope)


def replace(conn: Connection, *, broker_id: int | None, values: Mapping[str, str]) -> None:
    """Makes `values` the whole of what is set for one broker, or for all (`None`)."""
    note_change(conn)
    scope = _scope(broker_id)
    conn.execute(delete(broker_config).where(broker_config.c.scope == scope))
    _add(conn, scope, values)


def load_all(conn: Connection) -> dict[int | None, dict[str, str]]:
    """What is set, by broker id; `None` is the default for all brokers."""
    found: dict[int | None, dict[str, str]] = {}
    for row in conn.execute(select(broker_config).order_by(broker_config.c.scope, broker_config.c.name)):
        broker_id = None if row.scope == CLUSTER_WIDE else int(row.scope)
        found.setdefault(broker_id, {})[row.name] = row.value
    return found


def note_change(conn: Connection) -> None:
    """Takes a number for a change of settings, of brokers or of other resources."""
    # A removed row could carry no number, so the feed has one number for all settings.
    number = take_number(conn)
    conn.execute(update(cluster).where(cluster.c.id == ONLY_ROW).values(settings_change_number=number))


def _scope(broker_id: int | None) -> str:
    return CLUSTER_WIDE if broker_id is None else str(broker_id)


def _remove(conn: Connection, scope: str, names: set[str]) -> None:
    conn.execute(delete(broker_config).where(broker_config.c.scope == scope, broker_config.c.name.in_(sorted(names))))


def _add(conn: Connection, scope: str, values: Mapping[str, str]) -> None:
    if values:
        rows = [{"scope": scope, "name": name, "value": value} for name, value in values.items()]
        conn.execute(insert(broker_config), rows)


def _of_scope(conn: Connection, scope: str) -> dict[str, str]:
    statement = select(broker_config.c.name, broker_config.c.value).where(broker_config.c.scope == scope)
    return {row.name: row.value for row in conn.execute(statement)}
