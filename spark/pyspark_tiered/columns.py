"""The columns: those of Spark's Kafka source, or the part of them that a user's schema names.

Owns their types in Spark's words. Must never cast: a column has one type, and another one is an error.
"""

from typing import TYPE_CHECKING

from tiered.errors import InvalidConfig
from tiered.formats.arrow import ALL_COLUMNS, COLUMNS, HEADERS_COLUMN

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS_COLUMN: "array<struct<key:string,value:binary>>",
}


def ddl(*, headers: bool) -> str:
    """The schema as text; with `headers` as the last column."""
    return ", ".join(f"{name} {_TYPES[name]}" for name in (ALL_COLUMNS if headers else COLUMNS))


def columns_of(schema: "StructType") -> tuple[str, ...]:
    """The names of the columns in `schema`, in its order: with `.schema(...)` a user reads fewer of them.

    Raises `InvalidConfig` for a column that there is not, of another type, or not nullable.
    """
    for column in schema.fields:
        wanted = _TYPES.get(column.name)
        if wanted is None:
            raise InvalidConfig(f"the schema names column {column.name!r}; there are {', '.join(ALL_COLUMNS)}")
        given = column.dataType.simpleString()
        if given != wanted:
            raise InvalidConfig(f"column {column.name} is {wanted}, the schema says {given}; cast after load()")
        if not column.nullable:
            raise InvalidConfig(f"column {column.name} is nullable, the schema says it is not; filter after load()")
    return tuple(column.name for column in schema.fields)
