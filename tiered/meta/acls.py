"""Access control lists in SQL: rules are added and taken away, and none changes.

Owns the table's statements and the bound of their number. Must never decide what a rule means:
`rules.security.authorization` does.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, insert

from tiered.errors import PolicyViolation
from tiered.meta.security import AclRow, load_acls, note_change
from tiered.meta.security_tables import acl
from tiered.rules.security.acl import AclFilter

MAX_RULES = 20_000
"""Every broker has all of them in memory and reads them anew when one changes."""
_KEY = tuple(column.name for column in acl.primary_key.columns)


def create(conn: Connection, rules: Sequence[AclRow], *, now_ms: int) -> int:
    """The number of the change. What is there already stays as it is. Raises PolicyViolation when there would be too
    many."""
    number = note_change(conn)
    there = set(load_acls(conn))
    new = [rule for rule in dict.fromkeys(rules) if rule not in there]
    if len(there) + len(new) > MAX_RULES:
        raise PolicyViolation(
            f"{len(there)} access control lists are there, and {MAX_RULES} are possible: name resources by the "
            "beginning of their names (PREFIXED), or delete some"
        )
    if new:
        conn.execute(insert(acl), [{**_values(rule), "created_at_ms": now_ms} for rule in new])
    return number


def remove(conn: Connection, filters: Sequence[AclFilter]) -> list[list[AclRow]]:
    """The rules that each filter has found, all of which are gone."""
    note_change(conn)
    there = load_acls(conn)
    found = [[rule for rule in there if wanted.matches(rule)] for wanted in filters]
    for rule in dict.fromkeys(rule for some in found for rule in some):
        conn.execute(delete(acl).where(and_(*(acl.c[name] == value for name, value in _values(rule).items()))))
    return found


def _values(rule: AclRow) -> dict[str, str]:
    return {name: getattr(rule, name) for name in _KEY}
