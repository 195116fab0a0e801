"""Columns out of records' values: a JSON Schema or an Avro schema says which, and a decoder fills them.

Owns the mapping of both languages to Arrow types, and what makes a value bad. Must never guess: a value that is not
what the schema says gives a reason and no row, and a schema that has no columns for it is refused as a whole.
"""

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tiered.errors import InvalidConfig

if TYPE_CHECKING:
    import pyarrow as pa

_INT64 = range(-(2**63), 2**63)
_CONFLUENT_HEADER_BYTES = 5


class ValueFormat(StrEnum):
    """The format of the records' values."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    CONFLUENT_AVRO = "confluent-avro"
    """Avro behind a zero byte and four bytes of a schema registry's id, which is passed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """`text` is the schema's document, in the format's language; empty for raw values."""

    format: ValueFormat
    text: str = ""

    def fields(self) -> "list[pa.Field]":
        """The columns, all nullable, so that a later schema can leave one out. Raises `InvalidConfig`."""
        import pyarrow as pa

        if self.format is ValueFormat.RAW:
            return [pa.field("value", pa.binary())]
        described = _parsed(self.text)
        if self.format is ValueFormat.JSON:
            return list(_json_struct(described, "the value"))
        found = _avro_type(described, "the value", {})
        if not pa.types.is_struct(found):
            raise InvalidConfig("the Avro schema is no record: give one whose type is record")
        return list(found)

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        """A function from a value to its fields, which raises ValueError with the reason when it is bad."""
        described = _parsed(self.text)
        if self.format is ValueFormat.JSON:
            return lambda value: _json_row(value, described)
        header = _CONFLUENT_HEADER_BYTES if self.format is ValueFormat.CONFLUENT_AVRO else 0
        return _avro_decoder(described, header)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidConfig(f"the schema is no JSON document: {error}") from None


# JSON


def _json_struct(schema: Any, where: str) -> "pa.StructType":
    import pyarrow as pa

    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties:
        raise InvalidConfig(f"the JSON Schema says no properties of {where}: a column needs a name and a type")
    return pa.struct([pa.field(name, _json_type(each, f"{where}.{name}")) for name, each in properties.items()])


def _json_kind(schema: Any, where: str) -> str:
    """The one type besides null."""
    found = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = [each for each in ([found] if isinstance(found, str) else found or ()) if each != "null"]
    if len(kinds) != 1:
        raise InvalidConfig(f"the JSON Schema gives {where} the type {found!r}: a column has one, and may be null")
    return str(kinds[0])


def _json_type(schema: Any, where: str) -> "pa.DataType":
    import pyarrow as pa

    kind = _json_kind(schema, where)
    if kind == "object":
        return _json_struct(schema, where)
    if kind == "array":
        return pa.list_(_json_type(schema.get("items"), f"{where}[]"))
    if kind == "string":
        formats = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}
        return formats.get(schema.get("format", ""), pa.string())
    simple = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
    if kind not in simple:
        raise InvalidConfig(f"the JSON Schema gives {where} the type {kind!r}, which is none of JSON Schema's")
    return simple[kind]


def _json_row(value: bytes, schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except RecursionError:
        raise ValueError("no JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    fitted = _fitted(found, schema, "the value")
    if not isinstance(fitted, dict):
        raise ValueError("the value is null")  # noqa: TRY004 - a bad value has one kind of error
    return fitted


def _fitted(value: Any, schema: Mapping[str, Any], where: str) -> Any:
    """The value as its column takes it. Raises ValueError."""
    if value is None:
        return None
    kind = _json_kind(schema, where)
    match kind, value:
        case "object", dict():
            missing = [name for name in schema.get("required", ()) if name not in value]
            if missing:
                raise ValueError(f"{where} has no {missing[0]}, which is required")
            return {
                name: _fitted(value.get(name), each, f"{where}.{name}") for name, each in schema["properties"].items()
            }
        case "array", list():
            return [_fitted(each, schema["items"], f"{where}[]") for each in value]
        case "string", str():
            return _text(value, schema.get("format", ""), where)
        case "boolean", bool():
            return value
        case (("integer" | "number"), bool()):
            pass
        case "integer", int() if value in _INT64:
            return value
        case "integer", float() if value.is_integer() and int(value) in _INT64:
            return int(value)
        case "number", int() | float():
            return _number(value, where)
    raise ValueError(f"{where} is {json.dumps(value)[:80]} and not of type {kind}")


def _number(value: float, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{where} is too large for a number") from None


def _text(value: str, form: str, where: str) -> Any:
    try:
        value.encode()
        if form == "date-time":
            found = datetime.fromisoformat(value)
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        if form == "date":
            return date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{where} is {value[:80]!a} and no {form or 'text in UTF-8'}") from None
    return value


# Avro


def _avro_type(schema: Any, where: str, named: dict[str, "pa.DataType"]) -> "pa.DataType":
    import pyarrow as pa

    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise InvalidConfig(
                f"the Avro schema gives {where} a union of several types: a column has one, and may be null"
            )
        return _avro_type(others[0], where, named)
    if isinstance(schema, str):
        return named[schema] if schema in named else _avro_simple(schema, where)
    kind = schema.get("type")
    if isinstance(kind, (list, dict)):
        return _avro_type(kind, where, named)
    logical = _avro_logical(schema)
    if logical is not None:
        found = logical
    elif kind == "record":
        found = pa.struct(
            [
                pa.field(each["name"], _avro_type(each["type"], f"{where}.{each['name']}", named))
                for each in schema["fields"]
            ]
        )
    elif kind == "array":
        found = pa.list_(_avro_type(schema["items"], f"{where}[]", named))
    elif kind == "map":
        found = pa.map_(pa.string(), _avro_type(schema["values"], f"{where}{{}}", named))
    elif kind == "enum":
        found = pa.string()
    elif kind == "fixed":
        found = pa.binary()
    else:
        found = _avro_simple(kind, where)
    if "name" in schema:
        named[schema["name"]] = found
        if "namespace" in schema:
            named[f"{schema['namespace']}.{schema['name']}"] = found
    return found


def _avro_simple(name: Any, where: str) -> "pa.DataType":
    import pyarrow as pa

    simple = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
    }
    if name not in simple:
        raise InvalidConfig(f"the Avro schema gives {where} the type {name!r}, for which there is no column")
    return simple[name]


def _avro_logical(schema: Mapping[str, Any]) -> "pa.DataType | None":
    import pyarrow as pa

    logical = schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return {
        "timestamp-millis": pa.timestamp("us", tz="UTC"),
        "timestamp-micros": pa.timestamp("us", tz="UTC"),
        "local-timestamp-millis": pa.timestamp("us"),
        "local-timestamp-micros": pa.timestamp("us"),
        "date": pa.date32(),
        "time-millis": pa.time64("us"),
        "time-micros": pa.time64("us"),
        "uuid": pa.string(),
    }.get(logical or "")


def _avro_decoder(described: Any, header_bytes: int) -> Callable[[bytes], dict[str, Any]]:
    import fastavro

    schema = fastavro.parse_schema(described)
    uuids = _uuid_paths(described)
    bad: Sequence[type[Exception]] = (
        EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, RecursionError, MemoryError,
    )  # fmt: skip

    def decode(value: bytes) -> dict[str, Any]:
        if header_bytes and (len(value) < header_bytes or value[0] != 0):
            raise ValueError("no Avro of a schema registry: it does not begin with a zero byte and an id")
        stream = io.BytesIO(value)
        stream.seek(header_bytes)
        try:
            found: Any = fastavro.schemaless_reader(stream, schema)
        except tuple(bad) as error:
            raise ValueError(f"no Avro of this schema: {type(error).__name__} {error}".strip()) from None
        if stream.tell() != len(value):
            raise ValueError(f"no Avro of this schema: {len(value) - stream.tell()} bytes are left over")
        for name in uuids:
            if found.get(name) is not None:
                found[name] = str(found[name])
        return dict(found)

    return decode


def _uuid_paths(described: Mapping[str, Any]) -> list[str]:
    """The fields of the record itself that hold a UUID: Python's are objects, the column is text."""
    return [each["name"] for each in described.get("fields", ()) if "uuid" in json.dumps(each["type"])]
