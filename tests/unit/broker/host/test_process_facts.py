"""What the operating system says of this process, held against what the test knows of it."""

import os
import threading
from pathlib import Path

from tiered.broker.host.process_facts import read_process_facts


def test_what_the_process_takes_is_seen(tmp_path: Path) -> None:
    before = read_process_facts(tmp_path)
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    taken = bytearray(os.urandom(1 << 20)) * 64
    with (tmp_path / "open").open("w"):
        after = read_process_facts(tmp_path)
    over.set()
    thread.join()
    assert (after.open_fds - before.open_fds, after.threads - before.threads) == (1, 1)
    assert after.resident_bytes - before.resident_bytes > len(taken) // 2
    assert 0 < after.resident_bytes <= after.virtual_bytes
    assert after.cpu_s > before.cpu_s > 0
    assert 0 < after.open_fds <= after.max_fds
    assert 0 < after.disk_free_bytes <= after.disk_total_bytes
