"""Disks of a few megabytes, which tests fill and empty."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of its own at `folder`, which is made. Needs root, or a mount namespace of the user."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, (
        f"a small tmpfs cannot be mounted ({done.stderr.strip()}): run the tests as root, or under "
        "`unshare --user --map-root-user --mount`"
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def take_the_rest(path: Path) -> None:
    """Writes to `path` until not a byte is free."""
    with path.open("wb", buffering=0) as file:
        for size in (100_000, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    assert os.statvfs(path).f_bavail == 0
