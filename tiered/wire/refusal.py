"""The answer to a request of any API in which all that was asked for has one and the same error.

Owns how an answer mirrors its request: the error stands where the answer has room for one, and what names a part of the
request is said again there, because clients look for it. Pure, and short: an answer has `max_parts` parts at the most.
"""

from collections.abc import Iterator
from typing import Any

from tiered.errors import MalformedRequest
from tiered.wire import messages
from tiered.wire.schema import REQUIRED, FieldPlan, Message, MessagePlan

ERROR_CODE = "error_code"
MAX_PARTS = 5_000
"""Some ten milliseconds of the event loop, for an answer that says no."""
_ZEROS: dict[str | None, Any] = {"bool": False, "string": "", "bytes": b"", "uuid": None, "float64": 0.0}


def refusal(
    api_key: int, api_version: int, request: Any, code: int, words: str, *, max_parts: int = MAX_PARTS
) -> Message:
    """The whole answer. Raises UnsupportedVersion for a version whose messages are not known, MalformedRequest for a
    request of more parts than can be answered."""
    plan = messages.message_class(api_key, api_version, "response").plan
    return _mirrored(plan, request, code, words, iter(range(max_parts)))


def _mirrored(plan: MessagePlan, asked: Any, code: int, words: str, left: Iterator[int]) -> Message:
    if next(left, None) is None:
        raise MalformedRequest("more parts of a request than its refusal may have")
    made = plan.message_class()
    has_error = any(field.kafka_type == ERROR_CODE for field in plan.fields)
    for field in plan.fields:
        value: Any
        if field.kafka_type == ERROR_CODE:
            value = code
        elif field.name == "error_message":
            value = words
        elif field.message is not None and field.is_array:
            parts = _parts(field, asked, by_name_alone=has_error)
            value = tuple(_mirrored(field.message, each, code, words, left) for each in parts)
        elif field.message is not None:
            value = None if field.is_nullable else _mirrored(field.message, asked, code, words, left)
        elif (said := _said(field, asked)) is not REQUIRED and (field.is_nullable or said is not None):
            value = said
        elif field.default is not REQUIRED:
            value = field.default
        else:
            value = () if field.is_array else None if field.is_nullable else _ZEROS.get(field.kafka_type, 0)
        setattr(made, field.name, value)
    return made


def _parts(field: FieldPlan, asked: Any, *, by_name_alone: bool) -> Iterator[Any]:
    """The request's items that this field answers. An error beside it speaks for them, unless the request has a field
    of the same name."""
    plan = getattr(asked, "plan", None)
    for each in plan.fields if plan is not None else ():
        if each.is_array and (each.name == field.name or not by_name_alone):
            yield from getattr(asked, each.name) or ()


def _said(field: FieldPlan, asked: Any) -> Any:
    """The request's name for this; REQUIRED where it has none. A name comes first in its structure, whatever the name
    of its field is, or is all that there is."""
    plan = getattr(asked, "plan", None)
    if field.is_array or field.tag is not None:
        return REQUIRED
    if plan is None:
        return asked if isinstance(asked, str) == (field.kafka_type == "string") else REQUIRED
    first = plan.fields[0] if plan.fields else None
    for each in (*(each for each in plan.fields if each.name == field.name), first):
        if each is not None and each.kafka_type == field.kafka_type and not each.is_array:
            return getattr(asked, each.name)
    return REQUIRED
