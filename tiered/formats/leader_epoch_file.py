"""Which leader epoch wrote from which offset on, as the text file that Kafka calls leader-epoch-checkpoint.

Owns the text: a line `0` (the version), a line with the number of entries, then a line `epoch start_offset`
for each. Must never decide what an epoch means: `rules.replication.leader_epochs` does.

Migration: another version is refused with CorruptFile; there is none yet, here or in Kafka.
"""

import re
from collections.abc import Iterable
from typing import Final

from tiered.errors import CorruptFile

_VERSION: Final = b"0"
_NUMBER = re.compile(rb"(?:0|[1-9][0-9]{0,18})\Z")
_MAX_EPOCH: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1


def encode_leader_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """The file for entries `(leader_epoch, start_offset)`, epochs rising and offsets never falling."""
    rows = tuple(entries)
    lines = ["0", str(len(rows)), *(f"{epoch} {start_offset}" for epoch, start_offset in rows)]
    return ("\n".join(lines) + "\n").encode("ascii")


def decode_leader_epochs(data: bytes | bytearray | memoryview) -> tuple[tuple[int, int], ...]:
    """The entries `(leader_epoch, start_offset)` of a file's bytes.

    Raises CorruptFile when it is not exactly such a file: epochs must rise, offsets must not fall.
    """
    content = bytes(data)
    if not content.endswith(b"\n"):
        raise CorruptFile("a leader epoch file does not end with a line end: it is cut off")
    lines = content[:-1].split(b"\n")
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptFile(f"a leader epoch file begins with {lines[0][:20]!r}, not with its version 0")
    if _number(lines[1], _MAX_EPOCH) != len(lines) - 2:
        raise CorruptFile(f"a leader epoch file says it has {lines[1][:20]!r} entries and has {len(lines) - 2}")
    entries: list[tuple[int, int]] = []
    previous_epoch, previous_start = -1, 0
    for line in lines[2:]:
        first, _, second = line.partition(b" ")
        epoch, start_offset = _number(first, _MAX_EPOCH), _number(second, _MAX_OFFSET)
        if epoch <= previous_epoch or start_offset < previous_start:
            raise CorruptFile(f"a leader epoch file has entry {line[:40]!r} out of order")
        previous_epoch, previous_start = epoch, start_offset
        entries.append((epoch, start_offset))
    return tuple(entries)


def _number(text: bytes, maximum: int) -> int:
    if not _NUMBER.match(text) or int(text) > maximum:
        raise CorruptFile(f"a leader epoch file has {text[:20]!r} where a number belongs")
    return int(text)
