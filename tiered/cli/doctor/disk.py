"""The area `disk`: the data folder, and whether flushed data stays there.

Writes one small file of its own into the folder and removes it. It does not make a missing folder, but checks the
folder that would contain it.
"""

import fcntl
import json
import os
import statistics
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tiered.broker.host.data_folder import OWNER_FILE
from tiered.broker.host.disk_reserve import RESERVE_BYTES
from tiered.cli.doctor.findings import CheckResult, Situation, fail, ok, warn
from tiered.cli.output import in_bytes
from tiered.runtime import SystemClock, new_uuid

FSYNCS = 16
BLOCK_BYTES = 4096
SLOW_FSYNC_MS = 20.0
LITTLE_BYTES = 1 << 30
LITTLE_SHARE = 0.05
FEW_INODES = 10_000

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_OF_A_CONTAINER = frozenset({"overlay", "aufs"})
_FAR_AWAY = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "vboxsf"})
_LOCAL_DISK = "Put --data on a local disk (ext4 or xfs)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """The mount that a folder is on."""

    point: str
    kind: str
    options: frozenset[str]


def disk(situation: Situation) -> Iterator[CheckResult]:
    """The data folder's owner, file system, room, and how fast and sure it is."""
    data_dir = situation.options.data_dir
    folder = nearest_existing(data_dir)
    if not folder.is_dir():
        yield fail("folder", f"{folder} is no folder", "Name another with --data DIR.")
        return
    if folder == data_dir:
        yield from owner_of(data_dir, situation.options.broker_id)
    else:
        yield ok("folder", f"{data_dir} is not there yet; it will be made in {folder}", exists=False)
    yield from _file_system(folder)
    yield from _room(folder)
    yield from _flushing(folder)


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def owner_of(data_dir: Path, broker_id: int) -> Iterator[CheckResult]:
    """Which broker the folder belongs to, and whether one serves it now."""
    try:
        owner = json.loads((data_dir / OWNER_FILE).read_text())
        if not isinstance(owner, dict):
            raise TypeError("it holds no JSON object")
    except FileNotFoundError:
        owner = None
    except (OSError, ValueError, TypeError) as error:
        yield fail("owner", f"{data_dir / OWNER_FILE} cannot be read: {error}", "Put it back from a copy.")
        owner = None
    holder = _holder(data_dir)
    served = f"process {holder} serves it" if holder else "nobody serves it now"
    if owner is None:
        yield ok("folder", f"{data_dir} belongs to no broker yet; {served}", served=holder is not None)
    elif owner.get("broker_id") != broker_id:
        yield fail(
            "folder",
            f"{data_dir} belongs to broker {owner.get('broker_id')}, and --broker-id is {broker_id}",
            f"Start with --broker-id {owner.get('broker_id')}, or name another folder with --data DIR.",
        )
    else:
        message = f"{data_dir} belongs to broker {broker_id} of cluster {owner.get('cluster_id')}; {served}"
        yield ok("folder", message, served=holder is not None)


def _holder(data_dir: Path) -> str | None:
    """The process that has the folder's lock."""
    try:
        lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "?"
    finally:
        os.close(lock)
    return None


def mount_of(folder: Path, table: str | None = None) -> Mount | None:
    """Where the folder is mounted, by `/proc/self/mountinfo`; None where that cannot be told."""
    try:
        lines = (Path("/proc/self/mountinfo").read_text() if table is None else table).splitlines()
    except OSError:
        return None
    target = str(folder.resolve())
    best: Mount | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        point = fields[4].encode().decode("unicode_escape")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best.point)):
            options = frozenset(fields[5].split(",")) | frozenset(more[2].split(",") if len(more) > 2 else [])
            best = Mount(point=point, kind=more[0], options=options)
    return best


def _file_system(folder: Path) -> Iterator[CheckResult]:
    mount = mount_of(folder)
    if mount is None:
        return
    message = f"{folder} is on {mount.kind}, mounted at {mount.point}"
    if mount.kind in _IN_MEMORY:
        yield warn("file system", f"{message}: it is lost when the machine stops", _LOCAL_DISK, kind=mount.kind)
    elif mount.kind in _OF_A_CONTAINER:
        advice = "Mount a volume there: what is not uploaded yet is nowhere else."
        yield warn("file system", f"{message}: it is lost with the container", advice, kind=mount.kind)
    elif mount.kind in _FAR_AWAY or mount.kind.startswith("fuse."):
        says = f"{message}: locks and flushes over a network are slow, and not always kept"
        yield warn("file system", says, _LOCAL_DISK, kind=mount.kind)
    elif mount.options & {"nobarrier", "barrier=0"}:
        advice = "Mount it without nobarrier: a power cut would take what was acknowledged."
        yield fail("file system", f"{message} with barriers off", advice, kind=mount.kind)
    else:
        yield ok("file system", message, kind=mount.kind)


def _room(folder: Path) -> Iterator[CheckResult]:
    found = os.statvfs(folder)
    total, free = found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
    message = f"{in_bytes(free)} of {in_bytes(total)} are free"
    advice = "Free some space, or lower local.retention.bytes: what is cold needs no room here."
    if free <= 2 * RESERVE_BYTES:
        yield fail("space", f"{message}: a broker refuses produce", advice, free_bytes=free, total_bytes=total)
    elif free < LITTLE_BYTES or free < LITTLE_SHARE * total:
        yield warn("space", message, advice, free_bytes=free, total_bytes=total)
    else:
        yield ok("space", message, free_bytes=free, total_bytes=total)
    if found.f_files and found.f_favail < FEW_INODES:
        files = f"room for {found.f_favail:,} more files"
        yield warn("inodes", files, "Remove files, or make the file system with more inodes.", free=found.f_favail)


def _flushing(folder: Path) -> Iterator[CheckResult]:
    """Writes, flushes, renames, reads back and removes a file, as a broker does all day."""
    clock = SystemClock()
    name = f".tiered-doctor-{new_uuid().hex}"
    path, renamed = folder / name, folder / f"{name}.renamed"
    block = new_uuid().bytes * (BLOCK_BYTES // 16)
    waits: list[float] = []
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for index in range(FSYNCS):
                os.pwrite(file, block, index * BLOCK_BYTES)
                began_ms = clock.monotonic_ms()
                os.fdatasync(file)
                waits.append(clock.monotonic_ms() - began_ms)
        finally:
            os.close(file)
        path.replace(renamed)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        same = renamed.read_bytes() == block * FSYNCS
    except OSError as error:
        advice = f"Let user {os.geteuid()} write there, or name another folder with --data DIR."
        yield fail("writing", f"{folder} cannot be written to: {error.strerror}", advice)
        return
    finally:
        for each in (path, renamed):
            with suppress(OSError):
                each.unlink()
    if not same:
        yield fail("writing", f"{folder} does not give back what was written", "Replace this disk.")
        return
    yield ok("writing", f"{folder} takes writes, flushes, and renames that are flushed with it")
    median_ms, most_ms = statistics.median(waits), max(waits)
    message = f"a flush of 4 KiB takes {median_ms:.2f} ms, the slowest of {FSYNCS} {most_ms:.2f} ms"
    if median_ms > SLOW_FSYNC_MS:
        advice = "A faster disk makes flushes, checkpoints and SQLite faster; see flush.messages."
        yield warn("flushing", message, advice, fsync_median_ms=median_ms, fsync_max_ms=most_ms)
    else:
        yield ok("flushing", message, fsync_median_ms=median_ms, fsync_max_ms=most_ms)
