"""JSON whose numbers keep their text, for values that are only passed on: `1.10` stays `1.10`, with every digit.

Owns how numbers are read and how JSON is written again; the rest is Python's `json`. Pure; the CLI uses it too.
"""

import json
from collections.abc import Callable
from typing import Any

_STRING = json.JSONEncoder(ensure_ascii=False).encode
_WORDS = {None: "null", True: "true", False: "false"}


class WrittenNumber(float):
    """A JSON number that also has its text: no float has the digits of `1.10`, `1E5` or `1e400`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def read_json(text: str | bytes, *, pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The JSON value; raises ValueError, for NaN and Infinity too, which Python's `json` takes for numbers."""
    return json.loads(
        text,
        parse_float=WrittenNumber,
        parse_int=_whole_number,
        parse_constant=_refuse_constant,
        object_pairs_hook=pairs_hook,
    )


def json_text(value: Any) -> str:
    """`value` as JSON without blanks, its numbers as they were written. Who reads it bounds its depth."""
    if isinstance(value, str):
        return _STRING(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_STRING(name)}:{json_text(item)}" for name, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return _WORDS[value] if value is None or isinstance(value, bool) else repr(value)


def _whole_number(text: str) -> int | WrittenNumber:
    # An int keeps every digit, but not the sign of -0.
    return WrittenNumber(text) if text == "-0" else int(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")
