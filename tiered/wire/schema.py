"""The shape of every message, taken from the dataclasses that kio generates from Kafka's own definitions.

Owns the translation of kio's field metadata into plans, and the classes of our own messages: the same names
as kio's, with raw values (numbers for error codes and milliseconds, `UUID` or None for an id of zeros). Must
never import kio's readers and writers, nor any message before it is asked for: all of them take seconds.
"""

import dataclasses
import datetime as dt
import enum
import typing
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, ClassVar

FIXED = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""The struct format of every type of fixed size, except ids."""

FIXED_BYTES = {"b": 1, "h": 2, "i": 4, "q": 8, "H": 2, "I": 4, "Q": 8, "d": 8, "?": 1}
UUID_BYTES = 16


class Required(enum.Enum):
    """The default of fields that have none."""

    REQUIRED = enum.auto()


REQUIRED = Required.REQUIRED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    """One field. Exactly one of `kafka_type` (a primitive type's name) and `message` is set."""

    name: str
    kafka_type: str | None
    message: "MessagePlan | None"
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any

    @property
    def format(self) -> str | None:
        """The struct format of one item, if it has a fixed size and is no id."""
        return None if self.kafka_type is None else FIXED.get(self.kafka_type)

    def item_bytes(self, flexible: bool) -> int:
        """The least that one item takes on the wire."""
        if self.message is not None:
            return 1 if self.is_nullable and not self.is_array else self.message.least_bytes
        if self.format is not None:
            return FIXED_BYTES[self.format]
        if self.kafka_type == "uuid":
            return UUID_BYTES
        return 1 if flexible else 2 if self.kafka_type == "string" else 4

    def least_bytes(self, flexible: bool) -> int:
        """The least that the field takes on the wire."""
        if self.is_array:
            return 1 if flexible else 4
        return self.item_bytes(flexible)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MessagePlan:
    """A message, or a structure inside one."""

    name: str
    flexible: bool
    fields: tuple[FieldPlan, ...]
    message_class: type["Message"]

    @property
    def untagged(self) -> tuple[FieldPlan, ...]:
        return tuple(field for field in self.fields if field.tag is None)

    @property
    def tagged(self) -> tuple[FieldPlan, ...]:
        return tuple(sorted((each for each in self.fields if each.tag is not None), key=lambda each: each.tag or 0))

    @property
    def least_bytes(self) -> int:
        return sum(each.least_bytes(self.flexible) for each in self.untagged) + (1 if self.flexible else 0)


class Message:
    """A request, a response or a structure inside one. Subclasses are made by `plan_of`, one for each kio class.

    Instances come from decoders and from the constructors of `messages`; comparing them compares their fields.
    """

    __slots__ = ()
    plan: ClassVar[MessagePlan]
    arrays: ClassVar[tuple[str, ...]]
    """The names of the fields that are arrays."""
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in self.plan.fields)

    def __repr__(self) -> str:
        values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in self.plan.fields)
        return f"{type(self).__name__}({values})"


def freed_in_pieces(message: Message) -> Iterator[None]:
    """Takes the items out of the message's arrays and lets go of them: a hundred thousand at once take 20 ms.

    A piece is some hundred objects, at whatever depth. The message has empty arrays afterwards: nobody may need it any
    more. An item that somebody else has stays whole.
    """
    # What an item of these lists has in arrays of its own lives on in a list here when the item goes.
    lists = [list(getattr(message, name)) for name in message.arrays if getattr(message, name)]
    for name in message.arrays:
        setattr(message, name, ())
    freed = 0
    while lists:
        items, deeper = lists.pop(), list[list[object]]()
        names = _arrays_in(items)
        if not names:
            freed += _FREED_AT_ONCE
            del items[-_FREED_AT_ONCE:]
        while names and items and freed < _FREED_AT_ONCE:
            item, freed = items.pop(), freed + 1
            for name in names:
                if array := getattr(item, name):
                    if len(array) > _FREED_AT_ONCE or _arrays_in(array):
                        deeper.append(list(array))
                    else:
                        freed += len(array)
            item = array = None
        if items:
            lists.append(items)
        lists.extend(deeper)
        if freed >= _FREED_AT_ONCE:
            freed = 0
            yield


def _arrays_in(array: Sequence[object]) -> tuple[str, ...]:
    """The names of the arrays that each item of an array has."""
    first = array[0]
    return first.arrays if isinstance(first, Message) else ()


_FREED_AT_ONCE = 256
_plans: dict[type, MessagePlan] = {}


def plan_of(kio_class: type) -> MessagePlan:
    """The plan of a message class of kio, with a class of our own for it: the same one for every thread."""
    found = _plans.get(kio_class)
    if found is None:
        # Threads that ask at once make two. Messages of two classes are never equal, so the first one counts.
        found = _plans.setdefault(kio_class, _new_plan(kio_class))
    return found


def _new_plan(kio_class: type) -> MessagePlan:
    hints = typing.get_type_hints(kio_class)
    fields = tuple(_plan_field(field, hints[field.name]) for field in dataclasses.fields(kio_class))
    message_class: type[Message] = type(
        kio_class.__name__,
        (Message,),
        {
            "__slots__": tuple(field.name for field in fields),
            "__module__": kio_class.__module__,
            "__doc__": kio_class.__doc__,
        },
    )
    flexible = bool(getattr(kio_class, "__flexible__"))  # noqa: B009 - a dynamic attribute of a dynamic class
    plan = MessagePlan(name=kio_class.__name__, flexible=flexible, fields=fields, message_class=message_class)
    message_class.plan = plan
    message_class.arrays = tuple(field.name for field in fields if field.is_array)
    return plan


def _plan_field(field: "dataclasses.Field[Any]", hint: Any) -> FieldPlan:
    hint, is_nullable = _without_none(hint)
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint, _ = _without_none(typing.get_args(hint)[0])
    is_message = dataclasses.is_dataclass(hint)
    kafka_type = None if is_message else str(field.metadata["kafka_type"])
    return FieldPlan(
        name=field.name,
        kafka_type=kafka_type,
        message=plan_of(hint) if is_message else None,
        is_array=is_array,
        is_nullable=is_nullable,
        tag=field.metadata.get("tag"),
        default=_default(field, kafka_type, is_array=is_array),
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (UnionType, typing.Union):
        return hint, False
    (inner,) = (each for each in typing.get_args(hint) if each is not NoneType)
    return inner, True


def _default(field: "dataclasses.Field[Any]", kafka_type: str | None, *, is_array: bool) -> Any:
    if field.name == "throttle_time":
        return 0  # A broker that does not throttle need not say so.
    if field.default is not dataclasses.MISSING:
        if field.default is None and kafka_type == "datetime_i64":
            return -1
        return raw_value(field.default)
    if "tag" in field.metadata and not is_array:
        return _IMPLICIT[kafka_type or ""]
    return REQUIRED


_IMPLICIT: dict[str, Any] = dict.fromkeys(FIXED, 0) | {"bool": False, "float64": 0.0, "string": "", "bytes": b""}
"""What a tagged field without a default of its own means when it is absent."""


def raw_value(value: Any) -> Any:
    """A value of kio's types as our messages carry it."""
    match value:
        case enum.IntEnum() | enum.Enum():
            return value.value
        case dt.timedelta():
            return value // dt.timedelta(milliseconds=1)
        case bool() | float() | str() | bytes() | None:
            return value
        case int():
            return int(value)
        case tuple():
            return tuple(raw_value(each) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plan = plan_of(type(value))
        made = plan.message_class()
        for each in plan.fields:
            setattr(made, each.name, raw_value(getattr(value, each.name)))
        return made
    return value
