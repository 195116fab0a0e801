"""`tiered serve` whose appends meet pages that are in the cache already: what the broker costs, without the machine.

Appending to a new file makes the kernel take a page for every 4 KiB, and on many virtual machines each of them
is faulted in by the host: up to 2 CPU seconds per GB that no broker can avoid (`append_floor_cpu_s_per_gb`).
Here every segment's writes land in its first 32 MB, so the same pages are written again and again; with
`--discard` they land nowhere. What is read back is then wrong: only produce is measured. Everything else is the
product's own code.
"""

import os
import sys
from typing import Any

from tiered import cli
from tiered.hot.file_system import RealFileSystem

FOLDED_BYTES = 32 << 20


def _folded(_self: RealFileSystem, file: Any, data: Any, position: int) -> int:
    return os.pwrite(file.fileno(), data, position % FOLDED_BYTES)


def _discarded(_self: RealFileSystem, _file: Any, data: Any, _position: int) -> int:
    return len(data)


def main() -> int:
    discards = "--discard" in sys.argv
    arguments = [each for each in sys.argv[1:] if each != "--discard"]
    RealFileSystem.write = _discarded if discards else _folded  # type: ignore[method-assign, assignment]
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
