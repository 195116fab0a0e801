"""Typed reading of JSON objects that came from a store: every member is there, of its type, within its bounds.

Owns the checks, all of which raise CorruptObject and name the member. Never interprets a value.
"""

import binascii
import re
from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from tiered.errors import CorruptObject
from tiered.ids import is_legal_topic_name

_MAX_INT64: Final = 2**63 - 1
MAX_INT: Final = 2**31 - 1
MAX_SHORT: Final = 2**15 - 1
MAX_EPOCH: Final = 2**30
MAX_VERSION: Final = 2**40
MAX_NUMBER: Final = 2**62
"""Of what a restored cluster goes on counting from: there is room above."""
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class Fields:
    """The members of one JSON object."""

    __slots__ = ("_members",)

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def _wrong(self, name: str) -> CorruptObject:
        return CorruptObject(f"member {name!r} is {self._members.get(name)!r:.60}")

    def integer(self, name: str, *, minimum: int = 0, maximum: int = _MAX_INT64) -> int:
        value = self._members.get(name)
        if type(value) is not int or not minimum <= value <= maximum:
            raise self._wrong(name)
        return value

    def boolean(self, name: str) -> bool:
        value = self._members.get(name)
        if type(value) is not bool:
            raise self._wrong(name)
        return value

    def text(self, name: str, *, max_chars: int) -> str:
        value = self._members.get(name)
        if type(value) is not str or len(value) > max_chars:
            raise self._wrong(name)
        return value

    def word(self, name: str, words: Collection[str]) -> str:
        """One of these."""
        value = self._members.get(name)
        if type(value) is not str or value not in words:
            raise self._wrong(name)
        return value

    def topic(self, name: str) -> str:
        """A legal topic name: readers make paths and requests of it."""
        value = self.text(name, max_chars=249)
        if not is_legal_topic_name(value):
            raise self._wrong(name)
        return value

    def hexadecimal(self, name: str) -> str:
        """A SHA-256 in 64 lower-case digits."""
        value = self.text(name, max_chars=64)
        if not _SHA256.match(value):
            raise self._wrong(name)
        return value

    def uuid(self, name: str) -> UUID:
        value = self.text(name, max_chars=36)
        if not _UUID.match(value):
            raise self._wrong(name)
        return UUID(value)

    def texts(self, name: str, *, max_chars: int) -> dict[str, str]:
        """An object whose members are all texts."""
        value = self._members.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name)
        inner = Fields(value)
        return {key: inner.text(key, max_chars=max_chars) for key in value}

    def list_of_texts(self, name: str, *, max_chars: int) -> tuple[str, ...]:
        value = self._members.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) and len(each) <= max_chars for each in value):
            raise self._wrong(name)
        return tuple(value)

    def tables(self, name: str, *, max_chars: int) -> dict[str, dict[str, str]]:
        """An object whose members are objects whose members are all texts."""
        value = self._members.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name)
        inner = Fields(value)
        return {key: inner.texts(key, max_chars=max_chars) for key in value}

    def binary(self, name: str) -> bytes:
        """Bytes in base64."""
        value = self._members.get(name)
        if type(value) is not str:
            raise self._wrong(name)
        try:
            return binascii.a2b_base64(value, strict_mode=True)
        except ValueError:
            raise self._wrong(name) from None

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of numbers, none below 0."""
        value = self._members.get(name)
        if not isinstance(value, list) or not all(type(each) is int and 0 <= each <= MAX_INT for each in value):
            raise self._wrong(name)
        return tuple(value)

    def object(self, name: str) -> "Fields":
        """One object."""
        value = self._members.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name)
        return Fields(value)

    def objects(self, name: str) -> list["Fields"]:
        """A list of objects."""
        value = self._members.get(name)
        if not isinstance(value, list):
            raise self._wrong(name)
        if not all(isinstance(each, dict) for each in value):
            raise self._wrong(name)
        return [Fields(each) for each in value]

    def rows_of_integers(self, name: str, *, width: int) -> list[list[int]]:
        """A list of lists of so many numbers, none below 0."""
        value = self._members.get(name)
        if not isinstance(value, list):
            raise self._wrong(name)
        for row in value:
            if not isinstance(row, list) or len(row) != width:
                raise self._wrong(name)
            if not all(type(each) is int and 0 <= each <= _MAX_INT64 for each in row):
                raise self._wrong(name)
        return value
