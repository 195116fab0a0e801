"""What the kernel does with pages whose write-back has failed: they count as clean, and are not on the disk.

Owns which bytes of which file those are; at most one range of a file. Readers see them until they are dropped, further
fsyncs succeed without them, and only what is written again is written at all.
"""

import os
from pathlib import Path


class UnwrittenPages:
    """Of one machine."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[int, int]] = {}

    @property
    def any(self) -> bool:
        return bool(self._ranges)

    def sync_failed(self, path: str, synced_bytes: int) -> None:
        """What the file has beyond `synced_bytes` counts as clean from here on."""
        self._put(path, self.on_disk(path, synced_bytes), _size_bytes(path))

    def on_disk(self, path: str, size_bytes: int) -> int:
        """How much of the first `size_bytes` of the file is on the disk, if all else is."""
        return min(size_bytes, self._ranges.get(path, (size_bytes, 0))[0])

    def written(self, path: str, position: int, length: int) -> None:
        """These bytes are dirty again."""
        start, end = self._ranges.get(path, (0, 0))
        if position <= start < position + length:
            self._put(path, position + length, end)

    def truncated(self, path: str, size_bytes: int) -> None:
        start, end = self._ranges.get(path, (0, 0))
        self._put(path, start, min(end, size_bytes))

    def renamed(self, path: str, new_path: str) -> None:
        self._ranges.pop(new_path, None)
        if path in self._ranges:
            self._ranges[new_path] = self._ranges.pop(path)

    def removed(self, path: str) -> None:
        self._ranges.pop(path, None)

    def drop(self) -> list[str]:
        """From here on readers see the disk; the files that have changed by that."""
        found, self._ranges = self._ranges, {}
        ranges = {path: found[path] for path in sorted(found) if _size_bytes(path)}
        for path, (start, end) in ranges.items():
            if end >= _size_bytes(path):
                os.truncate(path, start)
            else:
                with open(path, "r+b") as file:
                    file.seek(start)
                    file.write(bytes(end - start))
        return list(ranges)

    def _put(self, path: str, start: int, end: int) -> None:
        if start < end:
            self._ranges[path] = start, end
        else:
            self._ranges.pop(path, None)


def _size_bytes(path: str) -> int:
    """Nothing where a whole folder was removed."""
    return Path(path).stat().st_size if Path(path).exists() else 0
