"""Random messages of kio's classes, and what kio itself reads and writes: the reference our codecs are held to."""

import dataclasses
import datetime as dt
import io
import random
import typing
from types import NoneType, UnionType
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import TZAware, i32Timedelta, i64Timedelta

_TEXTS = ("", "a", "topic-1", "grüße", "x" * 130, "流" * 50)
_BYTES = (b"", b"\x00", b"abc" * 60)
_CODES = tuple(ErrorCode)
_INTS = {
    "int8": 7, "int16": 15, "int32": 31, "int64": 63,
}  # fmt: skip


def sample(cls: type, rng: random.Random, *, max_items: int = 3) -> Any:
    """A valid instance of a kio class with random content; tagged fields are often at their default."""
    values = {}
    for field in dataclasses.fields(cls):
        if "tag" in field.metadata and rng.random() < 0.4 and field.default is not dataclasses.MISSING:
            continue
        values[field.name] = _value(field.type, field.metadata.get("kafka_type"), rng, max_items)
    return cls(**values)


def _value(hint: Any, kafka_type: str | None, rng: random.Random, max_items: int) -> Any:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        if rng.random() < 0.3:
            return None
        (hint,) = (each for each in typing.get_args(hint) if each is not NoneType)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_value(inner, kafka_type, rng, max_items) for _ in range(rng.randint(0, max_items)))
    if dataclasses.is_dataclass(hint):
        return sample(typing.cast(type, hint), rng, max_items=max_items)
    return _primitive(str(kafka_type), rng)


def _primitive(kafka_type: str, rng: random.Random) -> Any:
    if kafka_type in _INTS:
        bits = _INTS[kafka_type]
        return rng.choice((0, -1, 1, (1 << bits) - 1, -(1 << bits), rng.randrange(-(1 << bits), 1 << bits)))
    match kafka_type:
        case "uint16" | "uint32" | "uint64":
            return rng.randrange(1 << int(kafka_type[4:]))
        case "float64":
            return rng.uniform(-1e9, 1e9)
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(_TEXTS)
        case "bytes" | "records":
            return rng.choice(_BYTES)
        case "uuid":
            return UUID(int=rng.getrandbits(128) | 1)
        case "error_code":
            return rng.choice(_CODES)
        case "timedelta_i32":
            return i32Timedelta.parse(dt.timedelta(milliseconds=rng.choice((0, -1, 30_000, (1 << 31) - 1))))
        case "timedelta_i64":
            return i64Timedelta.parse(dt.timedelta(milliseconds=rng.choice((0, -1, 86_400_000, 1 << 40))))
        case "datetime_i64":
            return TZAware.parse(dt.datetime.fromtimestamp(rng.randrange(0, 1 << 32), tz=dt.UTC))
    raise AssertionError(f"no sample for {kafka_type}")


def kio_bytes(message: Any) -> bytes:
    """What kio writes."""
    with io.BytesIO() as out:
        entity_writer(type(message))(out, message)
        return out.getvalue()


def kio_message(cls: type, data: bytes) -> Any:
    """What kio reads. Only for bytes that are known to be whole: kio aborts the process on hostile counts."""
    return entity_reader(cls)(data, 0)[0]


def raw(value: Any) -> Any:
    """A kio value as our codecs give it: numbers for error codes and times, bytes and text as they are."""
    match value:
        case ErrorCode():
            return value.value
        case dt.timedelta():
            return round(value.total_seconds() * 1000)
        case dt.datetime():
            return round(value.timestamp() * 1000)
    return value
