"""Server-sent events, read from the stream of another broker.

Owns the state between two pieces of the stream, and the bound of an event. Knows no event's meaning.
"""

from typing import NamedTuple

from tiered.errors import Retriable

MAX_EVENT_BYTES = 16 << 20
_END = b"\n\n"


class ReadEvent(NamedTuple):
    """One event. The name is empty for a comment, such as a heartbeat; so is the id where there is none."""

    name: str
    event_id: str
    data: bytes


class EventSplitter:
    """Feed it bytes, get whole events. Raises Retriable for one without an end."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0

    def feed(self, data: bytes) -> list[ReadEvent]:
        """The events that `data` completes."""
        buffer = self._buffer
        buffer += data
        found = []
        start = 0
        while (end := buffer.find(_END, max(start, self._scanned - 1))) >= 0:
            found.append(_event(bytes(buffer[start:end])))
            start = self._scanned = end + len(_END)
        del buffer[:start]
        self._scanned = len(buffer)
        if len(buffer) > MAX_EVENT_BYTES:
            raise Retriable(f"another broker sends an event of more than {MAX_EVENT_BYTES} bytes")
        return found


def _event(block: bytes) -> ReadEvent:
    """Our own events have each field on one line."""
    name, event_id, data = "", "", b""
    for line in block.split(b"\n"):
        field, _, value = line.partition(b": ")
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"id":
            event_id = value.decode("utf-8", "replace")
        elif field == b"data":
            data = value
    return ReadEvent(name, event_id, data)
