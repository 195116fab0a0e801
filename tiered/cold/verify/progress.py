"""The file that lets a verification go on where an earlier one was stopped: which segments were found whole.

Owns that file. One line of JSON that says what run it belongs to, then 32 hexadecimal digits a segment: a hash of
the object's id, size and root. A line that is none of these (a crash cut it off) is passed over: its segment is
checked again. Must never hold a segment of another store or sample, and never one that was not read to its end.

Not a format of the store: whoever does not know a file's version refuses it, and it can be thrown away at any time.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Self

from tiered.errors import InvalidConfig
from tiered.formats.checkpoint import CommittedSegment
from tiered.rules.segments.sampling import ChunkSample

_FORMAT = "tiered.verify-progress/1"
_DIGEST_BYTES = 16
_LINE = re.compile(rb"[0-9a-f]{32}\Z")
_MAX_HEAD_BYTES = 64 * 1024


class ProgressFile:
    """The segments that `path` holds, which takes about 100 bytes of memory each. Used by one thread.

    Raises InvalidConfig when the file belongs to another run, or cannot be written.
    """

    def __init__(self, path: Path, *, store_url: str, sample: ChunkSample, now_ms: int) -> None:
        self._path = path
        wanted = {"format": _FORMAT, "store": store_url, "fraction": sample.fraction, "seed": sample.seed}
        self._done: set[bytes] = set()
        try:
            self._file = path.open("a+b")
            self._file.seek(0)
            head = self._file.readline(_MAX_HEAD_BYTES)
            if head:
                self.began_at_ms = self._read(head, wanted)
                self._end_cut_line()
            else:
                self.began_at_ms = now_ms
                self._file.write(json.dumps({**wanted, "began_at_ms": now_ms}).encode() + b"\n")
                self._file.flush()
        except OSError as error:
            raise InvalidConfig(f"cannot use the progress file {path}: {error.strerror}; name another one") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._done)

    def has(self, segment: CommittedSegment) -> bool:
        """True when an earlier run looked at exactly this object, and nothing was wrong."""
        return _digest(segment) in self._done

    def add(self, segment: CommittedSegment) -> None:
        """Nothing is wrong with the segment, or the sample of it. Survives the death of the process at once."""
        digest = _digest(segment)
        if digest not in self._done:
            self._done.add(digest)
            self._file.write(digest.hex().encode() + b"\n")
            self._file.flush()

    def remove(self) -> None:
        """The run is over, and there is nothing to go on with."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _read(self, head: bytes, wanted: dict[str, object]) -> int:
        try:
            found = json.loads(head)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            self._file.close()
            raise InvalidConfig(f"{self._path} is no progress file of this version; name another one, or remove it")
        different = [name for name, value in wanted.items() if found.get(name) != value]
        if different:
            self._file.close()
            words = ", ".join(f"{name} {found.get(name)} and not {wanted[name]}" for name in different)
            raise InvalidConfig(f"{self._path} belongs to another run ({words}); name another file, or remove this one")
        for line in self._file:
            digest = line.rstrip(b"\n")
            if _LINE.match(digest):
                self._done.add(bytes.fromhex(digest.decode()))
        return int(found.get("began_at_ms", 0))

    def _end_cut_line(self) -> None:
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(size - 1)
        if self._file.read(1) != b"\n":
            self._file.write(b"\n")
            self._file.flush()


def _digest(segment: CommittedSegment) -> bytes:
    text = f"{segment.object_id} {segment.size_bytes} {segment.root_sha256}"
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
