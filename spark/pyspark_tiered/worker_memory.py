"""What a Python worker of Spark does with its memory, between the pieces of a task and between tasks.

Owns settings of this process: three of the C library's allocator, and what the garbage collector looks through. Must
never be used in a process that is not one of Spark's workers.
"""

import ctypes
import gc
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of glibc's mallopt(3)."""

KEPT_BYTES = 256 << 20
"""Free memory at the end of the heap that is not given back."""
LARGEST_KEPT_BYTES = 16 << 20
"""A piece that is not larger comes from the heap."""


@cache  # Once for each process.
def keep_freed_memory() -> bool:
    """Whether the C library could be told to keep what is freed.

    A task reads 8 MiB after 8 MiB, and fills Arrow batches of 4 MiB. Given back to the system after each and asked for
    again, every page is cleared and mapped anew: an eighth of a long replay's CPU at 1 KiB a record.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # Another C library than glibc.
        return False
    settings = ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, LARGEST_KEPT_BYTES), (_ARENA_MAX, 2))
    return all(mallopt(setting, value) == 1 for setting, value in settings)


@cache
def settle() -> None:
    """What this process has loaded by the end of its first task is looked through no more.

    PySpark collects garbage after each task, which takes as long as many objects are alive: modules above all, a tenth
    of a long replay's CPU. What later tasks make is looked through as before.
    """
    gc.collect()
    gc.freeze()
