"""JSON objects that we answer with, described once: each field's schema, and where in a value it is found.

Owns the making of a schema and of the answer from the same rows, so the document names exactly what is answered. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from tiered.server.http.messages.schema import Schema, array, record

Read = str | Callable[[Any], Any]
"""The path of an attribute, or what reads the value."""
Field = Schema | tuple[Schema, Read]
"""A schema alone: the attribute has the field's name."""
NOTHING: Mapping[str, Schema] = {}


class Form:
    """An object of these fields, in this order. A field that is `optional` is left out where it would be null.

    `and_then` are fields that whoever answers adds: long lists, which are made in turns.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        *,
        optional: Sequence[str] = (),
        is_open: bool = True,
        and_then: Mapping[str, Schema] = NOTHING,
    ) -> None:
        pairs = {name: each if isinstance(each, tuple) else (each, name) for name, each in fields.items()}
        self._readers = {name: reader(read) for name, (_, read) in pairs.items()}
        self._optional = optional
        schemas = {name: schema for name, (schema, _) in pairs.items()}
        self.schema = record({**schemas, **and_then}, optional=optional, is_open=is_open)

    def of(self, value: object, **given: Any) -> dict[str, Any]:
        """The answer for `value`. Fields that are `given` are not looked for in it."""
        readers = self._readers.items()
        if given:
            assert given.keys() <= self._readers.keys(), "only fields of the form are given"
            found = {name: given[name] if name in given else read(value) for name, read in readers}
        else:
            found = {name: read(value) for name, read in readers}
        for name in self._optional:
            if found[name] is None:
                del found[name]
        return found

    def many(self, where: Read, description: str = "") -> Field:
        """A field with a list of these, for the values that are found at `where`."""
        read = reader(where)
        return array(self.schema, description), lambda value: [self.of(each) for each in read(value)]


def reader(read: Read) -> Callable[[Any], Any]:
    """The function that `read` stands for."""
    return attrgetter(read) if isinstance(read, str) else read
