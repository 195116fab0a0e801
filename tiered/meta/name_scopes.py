"""The names that a principal may have rights to, as a condition of SQL: a list reads no rows in vain.

Owns that condition. Must never decide about a right: whoever reads the rows asks for each of them.
"""

from sqlalchemy import ColumnElement, Connection, SQLColumnExpression, and_, false, or_, true

from tiered.rules.security.authorization import NameScope

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def within(conn: Connection, column: SQLColumnExpression[str], scope: NameScope) -> ColumnElement[bool]:
    """True of the rows whose name the scope holds. `column` is a table's key."""
    if scope.is_everything:
        return true()
    # SQLite orders text by its code points, so that its index finds a beginning. PostgreSQL has an order of languages.
    begins_with = _in_range if conn.dialect.name == "sqlite" else _like
    ways = [begins_with(column, prefix) for prefix in scope.prefixes]
    if scope.names:
        ways.append(column.in_(sorted(scope.names)))
    # One way stands by itself: beside an empty one SQLite goes through all names, 20 ms of 100,000 groups.
    return or_(*ways) if ways else false()


def _like(column: SQLColumnExpression[str], prefix: str) -> ColumnElement[bool]:
    return column.startswith(prefix, autoescape=True)


def _in_range(column: SQLColumnExpression[str], prefix: str) -> ColumnElement[bool]:
    end = _end_of(prefix)
    return column >= prefix if end is None else and_(column >= prefix, column < end)


def _end_of(prefix: str) -> str | None:
    """The first text behind all that begin with `prefix`; None where there is none."""
    beginning = prefix.rstrip(chr(_LAST))
    if not beginning:
        return None
    following = ord(beginning[-1]) + 1
    return beginning[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
