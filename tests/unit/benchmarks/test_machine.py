"""What a process used, by the kernel's accounting."""

import os
import threading
import time

from benchmarks.machine import cpu_seconds


def test_the_cpu_of_a_process_is_exact_and_has_what_its_ended_threads_used() -> None:
    thread = threading.Thread(target=lambda: sum(range(10_000)))
    thread.start()
    thread.join()
    before = time.process_time()
    measured = cpu_seconds(os.getpid())
    assert before <= measured <= time.process_time()
