"""Python source in the making: lines, indentation, and the constants that they name.

Owns nothing else. The text comes from kio's field names and from this room alone, never from the wire.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """One function while it is being written. `build` compiles it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._constants: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head` must end with a colon; lines written inside the `with` are indented below it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str = "v") -> str:
        """A local name that is used nowhere else."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, value: Any, prefix: str = "C") -> str:
        """The global name by which the function reaches `value`."""
        name = self.name(prefix)
        self._constants[name] = value
        return name

    def packer(self, layout: str) -> str:
        name = f"pack_{layout.replace('?', 'o')}"
        self._constants[name] = struct.Struct(">" + layout).pack
        return name

    def unpacker(self, layout: str) -> str:
        name = f"unpack_{layout.replace('?', 'o')}"
        self._constants[name] = struct.Struct(">" + layout).unpack_from
        return name

    def build(self, function: str, **constants: Any) -> Any:
        """The function called `function`, compiled."""
        namespace: dict[str, Any] = {**constants, **self._constants}
        text = "\n".join(self._lines)
        exec(compile(text, f"<{function}>", "exec"), namespace)  # noqa: S102 - see the first lines of this module
        return namespace[function]
