"""Disks of a few megabytes, which tests fill and empty."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHRINK_TRIES = 20
"""Somebody may write between the look at the disk and its change."""


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


def may_mount() -> bool:
    """Whether this user may have such disks."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder) / "disk", 1 << 20):
                return True
        except (AssertionError, OSError):
            return False


def shrink_to_what_is_used(folder: Path, *, besides_bytes: int) -> None:
    """Leaves so much room on the disk at `folder`, as if others had taken the rest: no byte is written for it."""
    for _ in range(SHRINK_TRIES):
        status = os.statvfs(folder)
        used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
        if resize(folder, used_bytes + besides_bytes):
            return
    raise AssertionError(f"{folder} fills faster than it can be made smaller")


def resize(folder: Path, size_bytes: int) -> bool:
    """Whether the disk at `folder` has that size now: it never gets smaller than what it has."""
    command = ["mount", "-o", f"remount,size={size_bytes}", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0


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
