"""JSON schemas as values, the check of what clients send against the very schema that documents it, and the forms of
what we answer.

Owns the small part of JSON Schema 2020-12 that our routes use, and the making of a schema and of the answer from the
same rows, so that the document names exactly what is answered. Pure: neither reads requests nor sends answers.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from tiered.errors import InvalidRequest

Schema = Mapping[str, Any]

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
    "object": dict,
}
MAX_SHOWN_CHARS = 60
_SHORT = reprlib.Repr()
_SHORT.maxlong = _SHORT.maxother = MAX_SHOWN_CHARS + 1

ANYTHING: Schema = {}


def text(description: str = "", *, allowed: Sequence[str] = (), **limits: Any) -> Schema:
    """A string; `limits` are minLength, maxLength, pattern."""
    return _with({"type": "string", **limits, **({"enum": list(allowed)} if allowed else {})}, description)


def integer(description: str = "", *, minimum: int = 0, maximum: int = LONG_MAX) -> Schema:
    return _with({"type": "integer", "minimum": minimum, "maximum": maximum}, description)


def number(description: str = "") -> Schema:
    return _with({"type": "number"}, description)


def boolean(description: str = "") -> Schema:
    return _with({"type": "boolean"}, description)


def array(items: Schema, description: str = "", *, max_items: int | None = None) -> Schema:
    return _with(
        {"type": "array", "items": items, **({} if max_items is None else {"maxItems": max_items})}, description
    )


def mapping(
    values: Schema, description: str = "", *, max_properties: int | None = None, max_name_chars: int | None = None
) -> Schema:
    """An object with names of the client's choice."""
    limits: dict[str, Any] = {} if max_properties is None else {"maxProperties": max_properties}
    if max_name_chars is not None:
        limits["propertyNames"] = {"maxLength": max_name_chars}
    return _with({"type": "object", "additionalProperties": values, **limits}, description)


def record(
    properties: Mapping[str, Schema], *, optional: Sequence[str] = (), is_open: bool = False, description: str = ""
) -> Schema:
    """An object with these properties, all of them required except `optional`; others only when it `is_open`."""
    return _with(
        {
            "type": "object",
            "properties": dict(properties),
            "required": [name for name in properties if name not in optional],
            "additionalProperties": is_open,
        },
        description,
    )


def input_record(properties: Mapping[str, Schema], *, optional: Sequence[str] = ()) -> Schema:
    """An object that clients send: what is `optional` may also be null, as if it were absent."""
    taken = {name: nullable(schema) if name in optional else schema for name, schema in properties.items()}
    return record(taken, optional=optional)


def without_nulls(value: Any) -> Any:
    """A value that was checked, without the members that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return list(map(without_nulls, value)) if isinstance(value, list) else value


def kept_secret(schema: Schema) -> Schema:
    """`schema`, whose value no error repeats when it is of another type."""
    return {**schema, "writeOnly": True}


def nullable(schema: Schema) -> Schema:
    """`schema`, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def one_of(*schemas: Schema, description: str = "") -> Schema:
    """Any of `schemas`."""
    return _with({"anyOf": list(schemas)}, description)


def check(value: object, schema: Schema, where: str = "the body") -> None:
    """InvalidRequest that says where `value` is not as `schema` has it."""
    if not schema:
        return  # There may be very much of anything.
    choices = schema.get("anyOf")
    if choices is not None:
        _check_any(value, choices, where)
    kind = schema.get("type")
    if kind is not None and not _is(value, kind):
        other = "" if schema.get("writeOnly") else f", not {_shown(value)}"
        raise InvalidRequest(f"{where} must be {_article(kind)} {kind}{other}")
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        raise InvalidRequest(f"{where} is {_shown(value)}: it must be one of {', '.join(map(str, allowed))}")
    if isinstance(value, str):
        _check_text(value, schema, where)
    elif isinstance(value, list):
        _check_array(value, schema, where)
    elif isinstance(value, dict):
        _check_object(value, schema, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if (least is not None and value < least) or (most is not None and value > most):
            raise InvalidRequest(f"{where} is {_shown(value)}: it must be from {least} to {most}")


def _check_any(value: object, choices: Sequence[Schema], where: str) -> None:
    first: InvalidRequest | None = None
    for choice in choices:
        try:
            check(value, choice, where)
        except InvalidRequest as error:
            # Of two objections the one to a choice of the right type says more.
            kind = choice.get("type")
            if first is None or (kind is not None and _is(value, kind)):
                first = error
        else:
            return
    if first is not None:
        raise first


def _check_text(value: str, schema: Schema, where: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{where} holds half of a surrogate pair, which no UTF-8 text can hold") from None
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        raise InvalidRequest(
            f"{where} has {len(value)} characters: it must have {schema.get('minLength', 0)} to "
            f"{schema.get('maxLength', 'any number')}"
        )


def _check_array(value: list[Any], schema: Schema, where: str) -> None:
    if len(value) > schema.get("maxItems", len(value)):
        raise InvalidRequest(f"{where} has {len(value)} items: send {schema['maxItems']} at most")
    for index, item in enumerate(value):
        check(item, schema.get("items", ANYTHING), f"{where}[{index}]")


def _check_object(value: dict[str, Any], schema: Schema, where: str) -> None:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise InvalidRequest(f"{where} has no {name!r}, which it needs")
    if len(value) > schema.get("maxProperties", len(value)):
        raise InvalidRequest(f"{where} has {len(value)} entries: send {schema['maxProperties']} at most")
    others = schema.get("additionalProperties", True)
    names = schema.get("propertyNames", ANYTHING)
    for name, item in value.items():
        _check_text(name, names, f"a name in {where}")
        if name in known:
            check(item, known[name], f"{where}.{name}")
        elif others is False:
            raise InvalidRequest(f"{where} has {name[:MAX_SHOWN_CHARS]!r}; known are {', '.join(sorted(known))}")
        elif isinstance(others, Mapping):
            check(item, others, f"{where}.{name[:MAX_SHOWN_CHARS]}")


def _is(value: object, kind: str) -> bool:
    # In Python True is an int, in JSON it is not.
    return isinstance(value, _TYPES[kind]) and not (isinstance(value, bool) and kind in ("integer", "number"))


def _article(kind: str) -> str:
    return "an" if kind[0] in "aio" else "a"


def _shown(value: object) -> str:
    # The whole of a long list takes as long to write as it took to read.
    shown = repr(value[: MAX_SHOWN_CHARS + 1]) if isinstance(value, str) else _SHORT.repr(value)
    return shown if len(shown) <= MAX_SHOWN_CHARS else shown[:MAX_SHOWN_CHARS] + "…"


def _with(schema: dict[str, Any], description: str) -> Schema:
    return {**schema, "description": description} if description else schema


Read = str | Callable[[Any], Any]
"""The path of an attribute, or what reads the value."""
Field = Schema | tuple[Schema, Read]
"""A schema alone: the attribute has the field's name."""
NOTHING: Mapping[str, Schema] = {}


class Form:
    """An object of these fields, in this order. A field that is `optional` is left out where it would be null.

    `and_then` are fields that whoever answers adds: long lists, which are made in turns.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        *,
        optional: Sequence[str] = (),
        is_open: bool = True,
        and_then: Mapping[str, Schema] = NOTHING,
    ) -> None:
        pairs = {name: each if isinstance(each, tuple) else (each, name) for name, each in fields.items()}
        self._readers = {name: reader(read) for name, (_, read) in pairs.items()}
        self._optional = optional
        schemas = {name: schema for name, (schema, _) in pairs.items()}
        self.schema = record({**schemas, **and_then}, optional=optional, is_open=is_open)

    def of(self, value: object, **given: Any) -> dict[str, Any]:
        """The answer for `value`. Fields that are `given` are not looked for in it."""
        readers = self._readers.items()
        if given:
            assert given.keys() <= self._readers.keys(), "only fields of the form are given"
            found = {name: given[name] if name in given else read(value) for name, read in readers}
        else:
            found = {name: read(value) for name, read in readers}
        for name in self._optional:
            if found[name] is None:
                del found[name]
        return found

    def many(self, where: Read, description: str = "") -> Field:
        """A field with a list of these, for the values that are found at `where`."""
        read = reader(where)
        return array(self.schema, description), lambda value: [self.of(each) for each in read(value)]


def reader(read: Read) -> Callable[[Any], Any]:
    """The function that `read` stands for."""
    return attrgetter(read) if isinstance(read, str) else read
