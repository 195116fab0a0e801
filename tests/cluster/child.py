"""A helper process that is told what to do in JSON lines, one answer each.

Owns the process and its two pipes. One order at a time, from any thread.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
STOP_S = 20.0


class Child:
    """`python -m MODULE ARGUMENTS`, used as a context. It ends when its stdin does."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        self._log = log.open("a")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._lock = threading.Lock()
        self._module = module
        self._log_path = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, order: dict[str, Any]) -> Any:
        """The answer to one order. Raises AssertionError with the child's last words when it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(order) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except OSError:
                line = ""
        assert line, f"{self._module} has ended:\n{self._log_path.read_text()[-4000:]}"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; kills it where it does not end by itself."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # It has ended before.
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
