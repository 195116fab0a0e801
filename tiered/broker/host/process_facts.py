"""The operating system's facts about this process and its data disk.

Owns nothing. Reads /proc and asks the file system, so it belongs on a thread; an unknown number is 0.
"""

import os
import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """A look at the process and its disk."""

    cpu_s: float
    resident_bytes: int
    virtual_bytes: int
    open_fds: int
    max_fds: int
    threads: int
    disk_free_bytes: int
    disk_total_bytes: int


def read_process_facts(data: Path) -> ProcessFacts:
    """Takes a look now. `data` is a folder on the disk that counts."""
    resident_bytes = virtual_bytes = open_fds = threads = 0
    try:
        pages = Path("/proc/self/statm").read_text().split()
        virtual_bytes, resident_bytes = (int(each) * resource.getpagesize() for each in pages[:2])
        open_fds = len(os.listdir("/proc/self/fd")) - 1  # The listing's own is one of them.
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        pass  # No Linux.
    usage = resource.getrusage(resource.RUSAGE_SELF)
    disk = os.statvfs(data)
    return ProcessFacts(
        cpu_s=usage.ru_utime + usage.ru_stime,
        resident_bytes=resident_bytes,
        virtual_bytes=virtual_bytes,
        open_fds=open_fds,
        max_fds=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        threads=threads,
        disk_free_bytes=disk.f_bavail * disk.f_frsize,
        disk_total_bytes=disk.f_blocks * disk.f_frsize,
    )
