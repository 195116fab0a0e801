"""Processes that begin with everything imported: forks of a warm parent, with the part of `Popen` that tests use.

Owns one parent for each environment that Python itself reads at its start, from the first process on until this
process ends; what still runs then is killed. `tests/warm_parent.py` is the other end.
"""

import atexit
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from tiered import allocator

ROOT = Path(__file__).resolve().parent.parent
# The interpreter, its libraries and the loader read these once.
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")

_parents: dict[tuple[tuple[str, str], ...], socket.socket] = {}
_starting = threading.Lock()


class WarmProcess:
    """`python -m MODULE ARGUMENTS`; its pid is real, and its end is told as `Popen` tells it."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        environ: Mapping[str, str],
        stderr: int,
        folder: Path | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.args = [sys.executable, "-m", module, *arguments]
        environ = {**allocator.ENVIRONMENT, **environ}
        told = {
            "module": module,
            "arguments": list(arguments),
            "environ": dict(environ),
            "folder": str(folder or Path.cwd()),
        }
        self._lock = threading.Lock()
        self._report, report = os.pipe()
        out, stdout = os.pipe()
        self.stdout: IO[str] = os.fdopen(out)
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            socket.send_fds(_parent(environ), [marshal.dumps(told)], [report, stdin, stdout, stderr])
        finally:
            for each in (report, stdin, stdout):
                os.close(each)
        self.pid = self._next()

    def _next(self) -> int:
        """The next number that the parent says of this process: first its id, in the end its exit code."""
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._report, 1)
            assert byte, "the warm parent has ended"
            line += byte
        return int(line)

    def poll(self) -> int | None:
        """The exit code, minus the signal that ended it, or None while it runs."""
        with self._lock:
            if self.returncode is None and select.select([self._report], [], [], 0)[0]:
                self.returncode = self._next()
                os.close(self._report)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        with self._lock:
            if self.returncode is None:
                select.select([self._report], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """To a process that has just ended, nothing, as `Popen` has it."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _parent(environ: Mapping[str, str]) -> socket.socket:
    """Where orders go; whoever needs this environment first starts the parent."""
    start = {name: value for name, value in environ.items() if name.startswith(READ_AT_START)}
    key = tuple(sorted(start.items()))
    with _starting:
        if key not in _parents:
            others = {name: value for name, value in os.environ.items() if not name.startswith(READ_AT_START)}
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.warm_parent", str(theirs.fileno())],
                    cwd=ROOT,
                    env={**others, **start},
                    pass_fds=[theirs.fileno()],
                    # It ends when this pipe does.
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                )
            atexit.register(_end, process)
            _parents[key] = ours
        return _parents[key]


def _end(parent: subprocess.Popen[bytes]) -> None:
    assert parent.stdin is not None
    parent.stdin.close()
    parent.wait()
