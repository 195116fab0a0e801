"""Records as JSON: `{"text", "base64", "size_bytes", "truncated"}` for every key, value and header.

Owns that form and its bounds. Pure: runs on the threads that decode, and in tests.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from tiered.broker.people.record_reader import Render, StoredRecord

DEFAULT_FIELD_BYTES = 64 << 10
MAX_FIELD_BYTES = 1 << 20
MAX_HEADERS = 100
MAX_HEADER_NAME = 256


def record_fields(stored: StoredRecord, *, field_bytes: int) -> dict[str, Any]:
    """The record, with at most `field_bytes` of its key and value each, and as many of its headers in all."""
    record = stored.record
    shown = []
    left_bytes = field_bytes
    for name, value in record.headers[:MAX_HEADERS]:
        shown.append({"key": printable(name)[:MAX_HEADER_NAME], "value": bytes_fields(value, max_bytes=left_bytes)})
        left_bytes = max(0, left_bytes - len(value or b""))
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": "LogAppendTime" if stored.is_log_append_time else "CreateTime",
        "key": bytes_fields(record.key, max_bytes=field_bytes),
        "value": bytes_fields(record.value, max_bytes=field_bytes),
        "headers": shown,
        "header_count": len(record.headers),
    }


def bytes_fields(content: bytes | None, *, max_bytes: int) -> dict[str, Any] | None:
    """`text` is null unless the whole content is UTF-8; what was cut off is told by `truncated` and `size_bytes`."""
    if content is None:
        return None
    cut = content[:max_bytes]
    return {
        "text": _text_of(content, cut),
        "base64": base64.b64encode(cut).decode(),
        "size_bytes": len(content),
        "truncated": len(cut) < len(content),
    }


def _text_of(content: bytes, cut: bytes) -> str | None:
    """The cut as text; a character that the cut goes through is left out."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return None
    if len(cut) == len(content):
        return content.decode()
    return cut.decode("utf-8", "ignore")


def printable(name: str) -> str:
    """A header's name whose surrogate escapes, which JSON cannot carry, are replaced."""
    return name.encode("utf-8", "replace").decode()


def renderer(field_bytes: int, about: Mapping[str, Any] | None = None) -> Render:
    """Makes one line of JSON of a record, with the fields of `about` before its own."""

    def render(stored: StoredRecord) -> bytes:
        return json.dumps({**(about or {}), **record_fields(stored, field_bytes=field_bytes)}).encode()

    return render
