"""Records as text: a line that becomes a record, and a record that becomes a line.

Owns both formats (`text` and `json`) and no I/O.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any

from tiered.cli.failure import UsageError
from tiered.formats.record_batch import Record

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def separator_bytes(text: str, option: str) -> bytes:
    r"""The separator that the option's text means: `\t`, `\n`, `\r`, `\0` and `\\` are read as in a shell's $'…'."""
    out, at = "", 0
    while at < len(text):
        if text[at] == "\\" and text[at + 1 : at + 2] in _ESCAPES:
            out += _ESCAPES[text[at + 1]]
            at += 2
        else:
            out += text[at]
            at += 1
    if not out:
        raise UsageError(f"{option} must not be empty")
    return out.encode("utf-8", "surrogateescape")


def header_of(text: str) -> tuple[str, bytes | None]:
    """The header that `NAME=VALUE` means; `NAME` alone has no value (null)."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--header {text!r} is not allowed: it must be NAME=VALUE")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def line_format_of(key_separator: str | None, null: str | None) -> "LineFormat":
    """The format that `--key-separator` and `--null` mean; raises UsageError."""
    return LineFormat(
        key_separator=None if key_separator is None else separator_bytes(key_separator, "--key-separator"),
        null=None if null is None else null.encode("utf-8", "surrogateescape"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line is cut into key and value, and how both are put together again."""

    key_separator: bytes | None = None
    null: bytes | None = None
    """What stands for null, in keys and in values; without it nothing is null but a key that is not there."""

    def record_of(
        self, line: bytes, *, offset: int, timestamp_ms: int, headers: tuple[tuple[str, bytes | None], ...] = ()
    ) -> Record:
        """The record of a line without its end. A line without the separator is a value without a key."""
        key: bytes | None = None
        value: bytes | None = line
        if self.key_separator is not None:
            before, found, after = line.partition(self.key_separator)
            if found:
                key, value = before, after
        if self.null is not None:
            key = None if key == self.null else key
            value = None if value == self.null else value
        return Record(offset=offset, timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)

    def line_of(self, record: Record) -> bytes:
        """The record's line, with its end. What is null is empty, unless `null` says otherwise."""
        null = self.null or b""
        line = (null if record.value is None else record.value) + b"\n"
        if self.key_separator is None:
            return line
        return (null if record.key is None else record.key) + self.key_separator + line


def json_line_of(record: Record, *, topic: str, partition: int) -> bytes:
    """The record as one line of JSON. Bytes that are no UTF-8 stand in base64 under `key_base64`, `value_base64`."""
    fields: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": _printable(name), **_field("value", value)} for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _printable(name: str) -> str:
    """A header's name whose surrogate escapes, which JSON cannot carry, are replaced."""
    return name.encode("utf-8", "replace").decode()
