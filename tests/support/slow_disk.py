"""A broker whose disk takes seconds for each read of a log, and says so on stderr when the first one begins.

`BrokerProcess(..., prefix=SLOW_DISK)` starts one: what stands behind the prefix is `python -m tiered.cli ...`.
"""

import runpy
import sys
import time
from io import FileIO
from unittest.mock import patch

from tiered.hot.file_system import RealFileSystem

SLOW_DISK = (sys.executable, "-m", "tests.support.slow_disk")
READ_S = 3.0
READING = "the slow disk reads a log"


_read = RealFileSystem.read


def slow_read(fs: RealFileSystem, file: FileIO, length: int, position: int) -> bytes:
    if str(file.name).endswith(".log"):
        sys.stderr.write(f"{READING}\n")
        sys.stderr.flush()
        time.sleep(READ_S)
    return _read(fs, file, length, position)


if __name__ == "__main__":
    patch.object(RealFileSystem, "read", slow_read).start()
    del sys.argv[1:3]
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
