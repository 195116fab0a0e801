"""What a process used, by the kernel's own accounting, and what machine it ran on.

Owns asking it. CPU seconds per GB are steadier than MB/s on a machine that others use too.
"""

import importlib.metadata
import os
import platform
import time
from pathlib import Path

PACKAGES = ("kio", "fastcrc", "cramjam", "sqlalchemy", "aiohttp", "boto3", "confluent-kafka", "pyspark", "pyarrow")
_SCHEDULER_CLOCK = 2


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, to the nanosecond, with all its threads and those that have ended.

    Raises OSError when it is gone.
    """
    # How Linux names the CPU clock of another process: clock_getcpuclockid(3), which Python has only for threads.
    return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)


def memory_mb(pid: int, what: str = "VmRSS") -> float:
    """Resident memory of a process in MB (10^6 bytes): now (VmRSS) or at its peak (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"/proc/{pid}/status has no {what}")


def idle_share(seconds: float = 1.0) -> float:
    """The share of all CPUs' time that nobody used during the next `seconds`."""

    def sample() -> tuple[int, int]:
        fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    idle_before, all_before = sample()
    time.sleep(seconds)
    idle_after, all_after = sample()
    return (idle_after - idle_before) / max(1, all_after - all_before)


def facts() -> dict[str, object]:
    """The machine and the versions, for the head of a report."""
    cpus = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().splitlines()[0].split()[1]
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "cpu": cpus[0].partition(":")[2].strip() if cpus else platform.processor(),
        "cpus": os.cpu_count(),
        "memory_gb": round(int(memory) * 1024 / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "idle_share_before": round(idle_share(), 3),
        "versions": versions,
    }


FREE_ENOUGH_MB = 700
APPEND_PROBE_BYTES = 512 << 20
_BLOCK_BYTES = 4 << 20


def free_memory_mb() -> int:
    """Memory that holds nothing at all, page cache included, in MB (10^6 bytes)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024 // 1_000_000
    raise LookupError("/proc/meminfo has no MemFree")


def warm_memory(path: Path) -> None:
    """Reads a file of holes until hardly any memory is free; the page cache then takes pages that are backed.

    On a virtual machine the first touch of a page costs the host's fault, up to 2.4 CPU s/GB, and it is
    charged to whoever appends to a log. The file stays until the caller removes it: removed, its pages
    would be given back to the host.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    block = bytearray(_BLOCK_BYTES)
    with path.open("wb") as holes:
        holes.truncate(2 * total)
    with path.open("rb", buffering=0) as holes:
        while free_memory_mb() > FREE_ENOUGH_MB and holes.readinto(block):
            pass


def append_floor(folder: Path) -> float:
    """CPU s/GB of appending to a new file in blocks of 1 MiB, here and now: below this no broker can be."""
    path = folder / "floor"
    block = bytearray(1 << 20)
    with path.open("wb", buffering=0) as file:
        before = os.times()
        for _ in range(APPEND_PROBE_BYTES >> 20):
            file.write(block)
        after = os.times()
    path.unlink()
    return (after.user + after.system - before.user - before.system) / APPEND_PROBE_BYTES * 1e9
