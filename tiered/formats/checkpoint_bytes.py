"""The bytes that all checkpoints share: one JSON object in canonical form with its format's name and its own hash.

Owns the form, the bound on its size and the check of its hash. Never knows what the members mean: `checkpoint` and
`group_checkpoint` do.
"""

import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tiered.errors import CorruptObject, UnknownFormat
from tiered.formats.json_fields import Fields

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_CHECKPOINT_BYTES: Final = 16 << 20
"""Larger ones are refused unread: a page of 1,000 segments has 0.7 MB, a cluster of 10,000 topics 5 MB.
Hostile JSON can take up to about 20 times its bytes while it is parsed."""
_PLAIN: Final = frozenset((int, str, bool))
_SURROGATE: Final = re.compile(rb"\\ud[89a-f]")
"""In canonical form, of a pair or alone: rare enough to look twice."""


def encode_checkpoint(format_name: str, checkpoint: "DataclassInstance") -> bytes:
    """The bytes of a checkpoint of this format: a member for each of its fields. A field that may be left out, and says
    that nothing is known (None, or empty), is."""
    return encode_members(format_name, _members(checkpoint))


def _members(value: "DataclassInstance") -> dict[str, Any]:
    found = {}
    for name, is_optional in _names(type(value)):
        content = getattr(value, name)
        if type(content) in _PLAIN:  # Most are; a head has fifteen thousand.
            found[name] = content
        elif not is_optional or (content is not None and content not in ((), {})):
            found[name] = _as_json(content)
    return found


@cache
def _names(kind: "type[DataclassInstance]") -> tuple[tuple[str, bool], ...]:
    """The fields, and whether they may be left out."""
    return tuple(
        (each.name, each.default is not MISSING or each.default_factory is not MISSING) for each in fields(kind)
    )


def _as_json(value: Any) -> Any:
    match value:
        case int() | str():
            return value
        case UUID():
            return str(value)
        case bytes():
            return binascii.b2a_base64(value, newline=False).decode("ascii")
        case tuple():
            return [_as_json(each) for each in value]
        case dict():
            return {name: _as_json(each) for name, each in value.items()}
        case _:
            return _members(value)


def encode_members(format_name: str, members: dict[str, Any]) -> bytes:
    """The bytes of a checkpoint of this format; equal members give equal bytes."""
    members["format"] = format_name
    texts = _canonical_texts(members)
    texts["sha256"] = _canonical_text(hashlib.sha256(_joined(texts)).hexdigest())
    return _joined(texts)


def read_members(data: bytes | bytearray | memoryview, format_name: str) -> Fields:
    """The members of a whole, unaltered checkpoint of this format. Raises CorruptObject."""
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise CorruptObject(f"a checkpoint of {len(data)} bytes is larger than {MAX_CHECKPOINT_BYTES}")
    try:
        members = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise CorruptObject(f"a checkpoint is no JSON: {error}") from None
    if not isinstance(members, dict):
        raise CorruptObject("a checkpoint is no JSON object")
    found = members.get("format")
    if found != format_name:
        message = f"this object has format {str(found)[:60]!r} where {format_name!r} belongs"
        if str(found).startswith(format_name.partition("/")[0] + "/"):
            raise UnknownFormat(f"{message}: another version of this program wrote it")
        raise CorruptObject(message)
    stored = members.pop("sha256", None)
    try:
        form = canonical(members)
    except (ValueError, RecursionError) as error:
        raise CorruptObject(f"a checkpoint has no canonical form: {error}") from None
    if stored != hashlib.sha256(form).hexdigest():
        raise CorruptObject("a checkpoint's sha256 is not that of its content: it is altered or cut off")
    if _SURROGATE.search(form) and not _is_text(members):
        raise CorruptObject("a checkpoint has half of a surrogate pair, which no text has and no database takes")
    return Fields({**members, "sha256": stored})


def _is_text(members: Mapping[str, Any]) -> bool:
    """Whether every character of them is one. JSON can escape halves of a pair, which nothing else can encode."""
    try:
        json.dumps(members, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def canonical(members: Mapping[str, Any]) -> bytes:
    """Keys sorted, no spaces, ASCII."""
    return _joined(_canonical_texts(members))


def _canonical_texts(members: Mapping[str, Any]) -> dict[str, str]:
    """The members' canonical texts by name. Long lists are encoded in pieces: the encoder holds the interpreter's lock
    to its end, which is 30 ms for 10,000 topics."""
    return {
        name: f"[{','.join(_pieces_of(value))}]" if isinstance(value, list) else _canonical_text(value)
        for name, value in members.items()
    }


def _pieces_of(items: list[Any]) -> Iterator[str]:
    for first in range(0, len(items), _PIECE_ITEMS):
        yield _canonical_text(items[first : first + _PIECE_ITEMS])[1:-1]


def _joined(texts: Mapping[str, str]) -> bytes:
    return f"{{{','.join(f'{_canonical_text(name)}:{texts[name]}' for name in sorted(texts))}}}".encode("ascii")


_PIECE_ITEMS = 100
_canonical_text = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
