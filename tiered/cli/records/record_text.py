"""Records as text: a line that becomes a record, and a record that becomes a line.

Owns both formats (`text` and `json`) and no I/O.
"""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from tiered.cli.failure import UsageError
from tiered.formats.record_batch import Record
from tiered.server.http.messages.json_numbers import json_text, read_json

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:[tnr0\\]|x([0-9a-fA-F]{2}))")


def separator_bytes(text: str, option: str) -> bytes:
    r"""The separator that the option's text means; raises UsageError where it is empty."""
    if not text:
        raise UsageError(f"{option} must not be empty")
    return unescaped(text)


def unescaped(text: str) -> bytes:
    r"""The bytes of the text: `\t`, `\n`, `\r`, `\0`, `\\` and `\xNN` are read as in a shell's $'…'."""
    # As text, so that a word of several bytes is never looked into; a byte of \xNN is carried as Python does it.
    return _ESCAPE.sub(_meant, text).encode("utf-8", "surrogateescape")


def _meant(escape: re.Match[str]) -> str:
    if (digits := escape[1]) is None:
        return _ESCAPES[escape[0][1]]
    return bytes([int(digits, 16)]).decode("ascii", "surrogateescape")


def header_of(text: str, null: str | None = None) -> tuple[str, bytes | None]:
    """The header that `NAME=VALUE` means; a value that is the text `null` is none."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--header {text!r} is not allowed: it must be NAME=VALUE")
    return name, None if value == null else value.encode("utf-8", "surrogateescape")


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
        """The record's line, with its end. Null is empty, unless `null` says otherwise."""
        null = self.null or b""
        line = (null if record.value is None else record.value) + b"\n"
        if self.key_separator is None:
            return line
        return (null if record.key is None else record.key) + self.key_separator + line


class Template:
    """The text of `--template`, in which kcat's tokens stand for parts of a record.

    `%t` topic, `%p` partition, `%o` offset, `%T` timestamp in ms, `%k` key, `%s` value, `%K` and `%S` their sizes (-1
    for null), `%R` that of the value as a signed number in four bytes, `%h` headers, `%%` a percent sign. Raises
    UsageError for any other. Nothing is added at the end.
    """

    def __init__(self, text: str, null: str | None = None) -> None:
        self._null = (null or "").encode("utf-8", "surrogateescape")
        self._parts: list[bytes | str] = []
        literal = ""
        at = 0
        while at < len(text):
            if text[at] != "%":
                literal += text[at]
                at += 1
                continue
            mark = text[at + 1 : at + 2]
            if mark == "%":
                literal += "%"
            elif mark and mark in "tpoTksKSRh":
                self._parts += [unescaped(literal), mark]
                literal = ""
            else:
                raise UsageError(f"--template has %{mark}: known are %t %p %o %T %k %s %K %S %R %h and %%")
            at += 2
        self._parts.append(unescaped(literal))

    def text_of(self, record: Record, *, topic: str, partition: int) -> bytes:
        """The record in the template's words."""
        return b"".join(
            part if isinstance(part, bytes) else self._part(part, record, topic, partition) for part in self._parts
        )

    def _part(self, mark: str, record: Record, topic: str, partition: int) -> bytes:
        match mark:
            case "t":
                return topic.encode()
            case "k":
                return self._null if record.key is None else record.key
            case "s":
                return self._null if record.value is None else record.value
            case "R":
                return (-1 if record.value is None else len(record.value)).to_bytes(4, "big", signed=True)
            case "h":
                return b",".join(
                    name.encode("utf-8", "surrogateescape") + b"=" + (self._null if value is None else value)
                    for name, value in record.headers
                )
        numbers = {
            "p": partition,
            "o": record.offset,
            "T": record.timestamp_ms,
            "K": -1 if record.key is None else len(record.key),
            "S": -1 if record.value is None else len(record.value),
        }
        return str(numbers[mark]).encode()


def record_of_json(line: bytes, *, offset: int, timestamp_ms: int) -> Record:
    """The record that a line of `consume --json` shows; topic, partition and offset in it count for nothing.

    Raises ValueError that says what is wrong.
    """
    fields = read_json(line)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - the text is wrong, not a type of ours.
    headers = fields.get("headers", [])
    if not isinstance(headers, list) or not all(
        isinstance(each, dict) and isinstance(each.get("name"), str) for each in headers
    ):
        raise ValueError("headers must be an array of objects with name and value")
    given_ms = fields.get("timestamp_ms", timestamp_ms)
    if not isinstance(given_ms, int) or isinstance(given_ms, bool) or not -1 <= given_ms < 1 << 63:
        raise ValueError("timestamp_ms must be a whole number")
    return Record(
        offset=offset,
        timestamp_ms=given_ms,
        key=_bytes_in(fields, "key"),
        value=_bytes_in(fields, "value"),
        headers=tuple((each["name"], _bytes_in(each, "value")) for each in headers),
    )


def _bytes_in(fields: dict[str, Any], name: str) -> bytes | None:
    if (encoded := fields.get(f"{name}_base64")) is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 must be text")
        return base64.b64decode(encoded, validate=True)
    content = fields.get(name)
    if content is None:
        return None
    # A value that is no text is itself JSON: {"value": {"a": 1}} stands for {"a": 1}.
    return (content if isinstance(content, str) else json_text(content)).encode("utf-8", "surrogatepass")


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
