"""Cuts JSON objects that follow each other out of a stream of bytes.

Owns the state between two pieces of the stream. Finds where an object ends and nothing else: what is in it, its
parser says. Looks at every byte once, however small the pieces are.
"""

import re

from tiered.errors import InvalidRequest

_BETWEEN = re.compile(rb"[^ \t\r\n]")
_OUTSIDE_STRING = re.compile(rb'["{}]')
_INSIDE_STRING = re.compile(rb'["\\]')


class JsonSplitter:
    """Feed it bytes, get whole objects. Raises InvalidRequest for bytes that are no object, or too large a one."""

    def __init__(self, max_object_bytes: int) -> None:
        self._max_object_bytes = max_object_bytes
        self._buffer = bytearray()
        self._at = 0  # Everything before is scanned.
        self._depth = 0
        self._in_string = False

    def feed(self, data: bytes) -> list[bytes]:
        """The objects that `data` completes."""
        self._buffer += data
        found = []
        while (whole := self._next()) is not None:
            found.append(whole)
        if len(self._buffer) > self._max_object_bytes:
            raise InvalidRequest(f"a record is larger than {self._max_object_bytes} bytes of JSON: send smaller ones")
        return found

    def end(self) -> None:
        """The stream ends here. Raises InvalidRequest within an object."""
        if self._buffer:
            raise InvalidRequest("the body ends within a JSON object: send the whole of it")

    def _next(self) -> bytes | None:
        buffer = self._buffer
        if self._depth == 0 and not self._start():
            return None
        while True:
            match = (_INSIDE_STRING if self._in_string else _OUTSIDE_STRING).search(buffer, self._at)
            if match is None:
                self._at = len(buffer)
                return None
            at, char = match.start(), match.group()
            if char == b"\\":
                if at + 1 == len(buffer):
                    self._at = at  # The character that it escapes comes with the next piece.
                    return None
                self._at = at + 2
                continue
            self._at = at + 1
            if char == b'"':
                self._in_string = not self._in_string
            elif char == b"{":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return self._cut()

    def _start(self) -> bool:
        """Drops what is between two objects; False when the next one has not begun."""
        match = _BETWEEN.search(self._buffer)
        if match is None:
            self._buffer.clear()
            self._at = 0
            return False
        if match.group() != b"{":
            raise InvalidRequest("the body must be a JSON object, or several that follow each other")
        del self._buffer[: match.start()]
        self._at, self._depth = 1, 1
        return True

    def _cut(self) -> bytes:
        whole = bytes(self._buffer[: self._at])
        del self._buffer[: self._at]
        self._at = 0
        return whole
