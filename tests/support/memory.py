"""Folders for what no test looks for on a disk: a file system in memory makes and deletes files at a fifth of the cost.

Never for a broker's data: what is resident there is asked of the file system, and one in memory does not say.
"""

import shutil
import tempfile
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 << 30


def folder_in_memory(prefix: str) -> Path:
    """A new folder with a short name, in memory where there is room; whoever asked for it deletes it."""
    has_room = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES
    return Path(tempfile.mkdtemp(prefix=prefix, dir=IN_MEMORY if has_room else None))
