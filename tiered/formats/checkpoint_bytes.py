"""The bytes that all checkpoints share: one JSON object in canonical form with its format's name and its own hash.

Owns the form, the bound on its size and the check of its hash. Never knows what the members mean: `checkpoint` and
`group_checkpoint` do.
"""

import binascii
import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from tiered.errors import CorruptObject, UnknownFormat
from tiered.formats.json_fields import Fields

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

MAX_CHECKPOINT_BYTES: Final = 16 << 20
"""Larger ones are refused unread: a page of 1,000 segments has 0.7 MB, a cluster of 10,000 topics 5 MB.
Hostile JSON can take up to about 20 times its bytes while it is parsed."""
_PLAIN: Final = frozenset((int, str, bool))
_SURROGATE: Final = re.compile(rb"\\ud[89a-f]")
"""In canonical form, of a pair or alone: rare enough to look twice."""


def encode_checkpoint(format_name: str, checkpoint: "DataclassInstance") -> bytes:
    """The bytes of a checkpoint of this format: a member for each of its fields. A field that may be left out, and says
    that nothing is known (None, or empty), is."""
    return _at_once(encode_in_pieces(format_name, checkpoint))


def encode_in_pieces(format_name: str, checkpoint: "DataclassInstance") -> Generator[None, None, bytes]:
    """The same bytes. A piece is `_PIECE_ITEMS` items of a list or a table, half a millisecond."""
    texts = yield from _texts_in_pieces({"format": format_name, **dict(_contents(checkpoint))}, _as_json)
    texts["sha256"] = _canonical_text(hashlib.sha256(_joined(texts)).hexdigest())
    return _joined(texts)


def _contents(value: "DataclassInstance") -> Iterator[tuple[str, Any]]:
    """The names of the fields that are not left out, and what they have."""
    for name, is_optional in _names(type(value)):
        content = getattr(value, name)
        if not is_optional or (content is not None and content not in ((), {})):
            yield name, content


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
            # Most are plain; a head has fifteen thousand.
            return {name: each if type(each) in _PLAIN else _as_json(each) for name, each in _contents(value)}


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
    return _joined(_at_once(_texts_in_pieces(members, lambda value: value)))


def _texts_in_pieces(
    members: Mapping[str, Any], as_json: Callable[[Any], Any]
) -> Generator[None, None, dict[str, str]]:
    """The members' canonical texts by name. The encoder holds the interpreter's lock to its end, which is 30 ms for
    10,000 topics."""
    texts = {}
    for name, value in members.items():
        if not isinstance(value, dict | list | tuple):
            texts[name] = _canonical_text(as_json(value))
            continue
        inner: list[str] = []
        for piece in _pieces_of(value):
            if inner:
                yield
            inner.append(_canonical_text(as_json(piece))[1:-1])
        begin, end = "{}" if isinstance(value, dict) else "[]"
        texts[name] = f"{begin}{','.join(inner)}{end}"
    return texts


def _pieces_of(value: Any) -> Iterator[Any]:
    """A table's are in the order of its keys."""
    keys = sorted(value) if isinstance(value, dict) else value
    for first in range(0, len(keys), _PIECE_ITEMS):
        some = keys[first : first + _PIECE_ITEMS]
        yield {key: value[key] for key in some} if isinstance(value, dict) else some


def _at_once(pieces: Generator[None, None, T]) -> T:
    """What they give at their end."""
    try:
        while True:
            next(pieces)
    except StopIteration as end:
        result: T = end.value
        return result


def _joined(texts: Mapping[str, str]) -> bytes:
    return f"{{{','.join(f'{_canonical_text(name)}:{texts[name]}' for name in sorted(texts))}}}".encode("ascii")


_PIECE_ITEMS = 100
_canonical_text = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
