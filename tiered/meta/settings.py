"""Settings that people change while brokers run: of all brokers, of one, of groups and of subscriptions to metrics.

Owns the stored text, and the bound for resources without a row of their own. Must never interpret a value: `config`
knows names, ranges and defaults. All of them share one number in the feed.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from tiered.errors import PolicyViolation
from tiered.meta.cluster import take_number
from tiered.meta.tables import CLUSTER_WIDE, ONLY_ROW, broker_config, cluster, resource_config

log = logging.getLogger(__name__)

Resource = tuple[str, str]
"""(kind, name)"""
_RESOURCES = select(resource_config).order_by(*resource_config.primary_key.columns)
StoredConfigs = Mapping[Resource, Mapping[str, str]]

MAX_RESOURCE_CONFIGS = 10_000
"""Every broker has all of them in memory and reads them anew when one changes: so many take 16 ms, for which commits on
SQLite wait."""


def alter(
    conn: Connection, *, broker_id: int | None, values: Mapping[str, str], removed: Iterable[str] | None = ()
) -> None:
    """Sets `values` for one broker, or for all (`None`), and drops `removed`: where that is None, all that was set."""
    _note_change(conn)
    scope = CLUSTER_WIDE if broker_id is None else str(broker_id)
    write_texts(conn, broker_config, {"scope": scope}, values, removed)


def alter_resource(
    conn: Connection, resource: Resource, *, values: Mapping[str, str], removed: Iterable[str] | None = ()
) -> None:
    """The same for a resource without a row of its own. Raises PolicyViolation when there would be too many."""
    _note_change(conn)
    kind, name = resource
    write_texts(conn, resource_config, {"kind": kind, "resource": name}, values, removed)
    there = conn.execute(select(func.count()).select_from(resource_config)).scalar_one()
    if values and there > MAX_RESOURCE_CONFIGS:
        raise PolicyViolation(
            f"{there - len(values)} configs of groups and client metrics are there, and {MAX_RESOURCE_CONFIGS} are "
            "possible: delete some"
        )


def load_all(conn: Connection) -> dict[int | None, dict[str, str]]:
    """The stored settings, by broker id; `None` is the default for all brokers. A row that no broker writes is left
    out, and named in the log."""
    found: dict[int | None, dict[str, str]] = {}
    for row in conn.execute(select(broker_config).order_by(broker_config.c.scope, broker_config.c.name)):
        try:
            broker_id = None if row.scope == CLUSTER_WIDE else int(row.scope)
        except ValueError:
            words = (
                "the setting %.80r in broker_config is left out and can be deleted: its scope %.80r is no broker's id"
            )
            log.warning(words, row.name, row.scope)
            continue
        found.setdefault(broker_id, {})[row.name] = row.value
    return found


def load_resources(conn: Connection) -> dict[Resource, dict[str, str]]:
    """The stored configs, by resource, in the order of the keys."""
    found: dict[Resource, dict[str, str]] = {}
    for kind, name, config, value in conn.execute(_RESOURCES):  # By place: attributes of rows take twice as long.
        found.setdefault((kind, name), {})[config] = value
    return found


def write_texts(
    conn: Connection, table: Table, of: Mapping[str, Any], values: Mapping[str, str], removed: Iterable[str] | None
) -> None:
    """Sets `values` in a table of names and texts where its key is `of`, and drops `removed`: where that is None, all
    that was set. The caller has noted the change."""
    those = () if removed is None else (table.c.name.in_(sorted({*values, *removed})),)
    conn.execute(delete(table).where(*(table.c[name] == value for name, value in of.items()), *those))
    if values:
        conn.execute(insert(table), [{**of, "name": name, "value": value} for name, value in values.items()])


def _note_change(conn: Connection) -> None:
    # A removed row could carry no number, so the feed has one number for all settings.
    number = take_number(conn)
    conn.execute(update(cluster).where(cluster.c.id == ONLY_ROW).values(settings_change_number=number))
