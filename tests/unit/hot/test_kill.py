"""kill -9 of a real process that appends: what it acknowledged is there, whole and in order."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.hot.log_files import contents, open_log

REPOSITORY = Path(__file__).parents[3]

CHILD = """
import sys, threading
from pathlib import Path
from tests.unit.hot.log_files import append, batch, open_log

log = open_log(Path(sys.argv[1]), segment_bytes=40_000, index_interval_bytes=500)
number = log.log_end_offset

def flush():
    while True:
        log.flush()

if sys.argv[2] == "flushing":
    threading.Thread(target=flush, daemon=True).start()
print("ready", flush=True)
while True:
    for _ in range(20):
        append(log, batch(1, value_bytes=number % 500, marker=number))
        number += 1
    print(number, flush=True)
    if number % 100 == 0 and len(log.segments) > 6:
        log.delete_local_before(log.segments[2].base_offset)
"""


@pytest.mark.parametrize("mode", ["flushing", "never flushed"])
def test_what_a_killed_process_acknowledged_is_there(tmp_path: Path, mode: str) -> None:
    chance = random.Random(mode)
    acknowledged = 0
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "log"), mode],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.0, 0.15))
            child.send_signal(signal.SIGKILL)
            told = child.stdout.read().splitlines()
        # The kill may have cut the last line short: such a number is smaller than the real one.
        acknowledged = max([acknowledged, *(int(line) for line in told if line)])
        log = open_log(tmp_path / "log", segment_bytes=40_000, index_interval_bytes=500)
        assert log.log_end_offset >= acknowledged
        assert not log.recovery.dropped_files
        for offset, body in contents(log):
            assert f"{offset}".encode() in body
        log.close()
    assert acknowledged > 0
