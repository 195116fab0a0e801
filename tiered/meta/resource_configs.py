"""Configs of what has no row of its own: consumer groups, and subscriptions to clients' metrics.

Owns the stored text and the bound of how much there is. Must never interpret a value: `config` knows names, ranges and
defaults. They share the number of the brokers' settings in the feed: see `settings.note_change`.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select

from tiered.errors import PolicyViolation
from tiered.meta.settings import note_change
from tiered.meta.tables import resource_config

Resource = tuple[str, str]
"""(kind, name)"""
Stored = Mapping[Resource, Mapping[str, str]]

MAX_CONFIGS = 50_000
"""Every broker has all of them in memory and reads them anew when one changes."""


def alter(conn: Connection, resource: Resource, *, values: Mapping[str, str], removed: Iterable[str]) -> None:
    """Sets `values` and drops `removed`. Raises PolicyViolation when there would be too many."""
    note_change(conn)
    names = sorted({*values, *removed})
    conn.execute(delete(resource_config).where(*_of(resource), resource_config.c.name.in_(names)))
    _add(conn, resource, values)


def replace(conn: Connection, resource: Resource, values: Mapping[str, str]) -> None:
    """Makes `values` the whole of what is set. Raises PolicyViolation when there would be too many."""
    note_change(conn)
    conn.execute(delete(resource_config).where(*_of(resource)))
    _add(conn, resource, values)


def load_all(conn: Connection) -> dict[Resource, dict[str, str]]:
    """What is set, by resource, in the order of the keys."""
    found: dict[Resource, dict[str, str]] = {}
    for row in conn.execute(select(resource_config).order_by(*resource_config.primary_key.columns)):
        found.setdefault((row.kind, row.resource), {})[row.name] = row.value
    return found


def _of(resource: Resource) -> tuple[ColumnElement[bool], ...]:
    kind, name = resource
    return resource_config.c.kind == kind, resource_config.c.resource == name


def _add(conn: Connection, resource: Resource, values: Mapping[str, str]) -> None:
    if not values:
        return
    there = conn.execute(select(func.count()).select_from(resource_config)).scalar_one()
    if there + len(values) > MAX_CONFIGS:
        raise PolicyViolation(
            f"{there} configs of groups and client metrics are there, and {MAX_CONFIGS} are possible: delete some"
        )
    kind, resource_name = resource
    rows = [{"kind": kind, "resource": resource_name, "name": name, "value": value} for name, value in values.items()]
    conn.execute(insert(resource_config), rows)
