"""A worker process of Spark keeps its memory between pieces, and its modules out of each task's garbage collection."""

import subprocess
import sys

# As a task does: pieces of 8 MiB come from a pool's threads, three on their way, and fill Arrow batches.
PAGE_FAULTS = """
import os, resource, sys
import numpy as np
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pyspark_tiered.worker import keep_freed_memory

kept = sys.argv[1] == "kept" and keep_freed_memory()
zeros = os.open("/dev/zero", os.O_RDONLY)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for task in range(12):
    with ThreadPoolExecutor(4) as threads:
        waiting = deque()
        for piece in range(10):
            waiting.append(threads.submit(os.pread, zeros, 8 << 20, 0))
            if len(waiting) == 3:
                data = waiting.popleft().result()
                for batch in range(2):
                    keys, values = np.empty(4 << 20, np.uint8), np.empty(4 << 20, np.uint8)
                    values[:] = 1
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

FROZEN = """
import gc
from pyspark_tiered.worker import settle

settle()
frozen = gc.get_freeze_count()
class Circle: pass
circles = [Circle() for _ in range(1000)]
for each in circles: each.itself = each
del circles, each
settle()
print(frozen > 1000, gc.get_freeze_count() <= frozen, gc.collect() >= 1000)
"""


def answer_of(script: str, *arguments: str) -> list[str]:
    answer = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
    return answer.stdout.split()


def test_pages_that_were_freed_are_used_again() -> None:
    _, plain = answer_of(PAGE_FAULTS, "plain")
    kept, fewer = answer_of(PAGE_FAULTS, "kept")
    assert kept == "True"
    assert int(fewer) < int(plain) / 2


def test_what_a_later_task_leaves_behind_is_still_collected() -> None:
    assert answer_of(FROZEN) == ["True", "True", "True"]
