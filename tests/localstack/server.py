"""A LocalStack of our own for tests, by the runner that people use: `localstack/run.py`.

Owns one process on a free port of loopback. Everything in it is gone when it ends.
"""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from tests.broker_process import free_port

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "localstack" / "run.py"
BUCKET = "tiered-test"
READY = "Ready."
START_S = 90
STOP_S = 30


def install() -> str:
    """Why LocalStack cannot be had here; empty where it can, and then it is installed."""
    done = subprocess.run([sys.executable, str(RUNNER), "--install"], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip()[-2000:]


class Emulator:
    """A LocalStack that is ready."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    @property
    def url(self) -> str:
        """Its endpoint for all of AWS."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        """What it says about itself."""
        with urllib.request.urlopen(f"{self.url}/_localstack/{path}", timeout=10) as answer:
            return json.load(answer)

    def listens_on(self) -> set[tuple[str, int]]:
        """Every address on which it or a child of it accepts connections or takes datagrams."""
        process = psutil.Process(self.process.pid)
        return {
            (connection.laddr.ip, connection.laddr.port)
            for each in (process, *process.children(recursive=True))
            for connection in each.net_connections()
            if connection.laddr and not connection.raddr
        }


@contextmanager
def localstack(log: Path) -> Iterator[Emulator]:
    """Raises AssertionError with its log when it is not ready in time."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(RUNNER), "--port", str(port), "--bucket", BUCKET], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + START_S
        while READY not in log.read_text(errors="replace").splitlines():
            said = log.read_text(errors="replace")[-4000:]
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
        yield Emulator(process, port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
