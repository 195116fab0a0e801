"""Which records a search is for: by text, regular expression, field of JSON or header.

Owns the bound of what one record may cost. A stranger's expression is RE2's: its time grows with the size of the
expression and of the text alone, where Python's `re` can take hours for a short one. Must never raise for what a record
holds. Runs on the threads that decode.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import re2

from tiered.broker.groups.patterns import compiled
from tiered.broker.people.record_reader import Wanted
from tiered.errors import InvalidRegularExpression, InvalidRequest
from tiered.formats.record_batch import Record

MAX_PARSED_BYTES = 128 << 10
"""The bound of a value: a parser of JSON keeps the event loop waiting while it runs, 3 ms and more for so much."""
MAX_PARSED_STRUCTURES = 10_000
"""The bound of the objects and lists in a value, which take a parser the longest: 6 ms where there are 65,000."""
MAX_MATCHED_BYTES = 128 << 10
"""An expression is sought in so much of a value's beginning: the slowest takes 2 s for it, beside the event loop."""
MAX_INSTRUCTIONS = 2_000
"""The bound of an expression, as RE2 compiles it."""
REGEX_BYTES = 128 << 10
"""What RE2 may take for an expression. To compile a larger one would keep the event loop waiting."""
MAX_STEPS = 100
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([0-9]{1,9})\]|\['([^']*)'\]")


def _no_json(text: str) -> Any:
    raise ValueError(text)


_options: Any = re2.Options()
_options.max_mem = REGEX_BYTES
_options.log_errors = False
_options.never_capture = True
# Numbers stay as they were written: they may have more digits than a float keeps.
_json = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_json)


def all_of(conditions: Sequence[Wanted]) -> Wanted | None:
    """Records that meet all conditions; None where there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return lambda record: all(condition(record) for condition in conditions)


def with_text(text: str) -> Wanted:
    """Records whose value has the text in it, letter by letter."""
    wanted = text.encode()
    return lambda record: record.value is not None and wanted in record.value


def with_match(pattern: str) -> Wanted:
    """Records in whose value the pattern is found. Raises InvalidRegularExpression."""
    expression = compiled(pattern, _options)
    if expression.programsize > MAX_INSTRUCTIONS:
        raise InvalidRegularExpression(
            f"{pattern[:80]!r} is a regular expression of {expression.programsize} instructions, and at most "
            f"{MAX_INSTRUCTIONS} are allowed: repeat less, or look for a text"
        )

    def is_wanted(record: Record) -> bool:
        return record.value is not None and expression.search(record.value[:MAX_MATCHED_BYTES]) is not None

    return is_wanted


def with_header(name: str, content: str | None) -> Wanted:
    """Records that have the header, with this content unless that is None."""
    wanted = None if content is None else content.encode()
    return lambda record: any(key == name and wanted in (None, value) for key, value in record.headers)


def with_json_field(path: str, content: str | None) -> Wanted:
    """Records whose value is JSON that has the field, with this content unless that is None. Raises InvalidRequest."""
    steps = _steps_of(path)
    wanted = None if content is None else _parsed(content)
    is_structure = isinstance(wanted, dict | list)

    def is_wanted(record: Record) -> bool:
        data = record.value
        if data is None or len(data) > MAX_PARSED_BYTES or data.count(b"[") + data.count(b"{") > MAX_PARSED_STRUCTURES:
            return False
        try:
            value = _json.decode(data.decode())
        except (ValueError, RecursionError):
            return False
        for step in steps:
            if isinstance(value, dict) and step in value:
                value = value[step]
            elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            else:
                return False
        return content is None or (value == wanted if is_structure else _text_of(value) == content)

    return is_wanted


def _steps_of(path: str) -> list[str]:
    """The names and numbers of `items.0.sku`, `$.items[0].sku` or `$['items'][0]['sku']`."""
    text = path.strip().removeprefix("$")
    steps: list[str] = []
    at = 0
    while at < len(text) and len(steps) < MAX_STEPS:
        match = _STEP.match(text, at)
        if match is None:
            break
        steps.append(next(group for group in match.groups() if group is not None))
        at = match.end()
    if not steps or at < len(text):
        raise InvalidRequest(
            f"json_path is {path[:80]!r}: it must be names and numbers with dots between them, like items.0.sku or "
            f"$.items[0].sku, {MAX_STEPS} at most"
        )
    return steps


def _parsed(content: str) -> object:
    """An object or a list where `content` is one, else `content` itself."""
    if content[:1] not in ("{", "["):
        return content
    try:
        return _json.decode(content)
    except (ValueError, RecursionError):
        return content


def _text_of(value: object) -> str | None:
    """The text of a value as JSON writes it, a string without its quotes; None for an object or a list."""
    match value:
        case True:
            return "true"
        case False:
            return "false"
        case None:
            return "null"
        case str():
            return value
    return None
