"""A real broker process for tests: `tiered serve` on free loopback ports, killed and restarted at will.

Used as a plain class and, through `tests/components/conftest.py` and its siblings, as fixtures.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.warm_start import WarmProcess

START_S = 60.0
STOP_S = 60.0


# Below those that the system gives to outgoing connections: one of them must not have a broker's port when it restarts.
# Browsers go to no port 10080.
OUR_PORTS = range(10_100, 32_000)
CHOSEN_PORTS = Path(tempfile.gettempdir()) / "tiered-test-ports"
"""A file for each port that a test has chosen: whoever chose it listens there only a moment later."""
CHOSEN_FOR_S = 120.0


def free_port(*, besides: int = 0) -> int:
    """One on loopback that nobody has at the moment, or has chosen in the last minutes, and not that one."""
    # Not the shared generator: Hypothesis seeds it alike in every worker.
    for port in random.SystemRandom().sample(OUR_PORTS, 100):
        if port == besides or not _is_chosen_first(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("of a hundred ports none is free")


def _is_chosen_first(port: int) -> bool:
    CHOSEN_PORTS.mkdir(exist_ok=True)
    path = CHOSEN_PORTS / str(port)
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        if time.time() - path.stat().st_mtime < CHOSEN_FOR_S:
            return False
        path.touch()
    return True


class BrokerProcess:
    """One `tiered serve`. `start` returns once the ready line was read; `kill` is kill -9."""

    def __init__(
        self,
        data: Path,
        *arguments: str,
        settings: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.arguments = list(arguments)
        self.settings = dict(settings or {})
        self.environ = dict(environ or {})
        self.prefix = list(prefix)
        self.kafka_port = 0
        self.http_port = 0
        self.ready_line = ""
        self.process: subprocess.Popen[str] | WarmProcess | None = None
        self.log_path = data.parent / f"{data.name}.stderr"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def words(self) -> list[str]:
        """What stands after `tiered`. A restart takes the ports of the first start, as clients expect."""
        found = ["serve", "--data", str(self.data)]
        found += ["--kafka", f"127.0.0.1:{self.kafka_port}", "--http", f"127.0.0.1:{self.http_port}"]
        for name, value in self.settings.items():
            found += ["--set", f"{name}={value}"]
        return found + self.arguments

    def command(self) -> list[str]:
        """The whole command line, for who starts it in another way."""
        return [*self.prefix, sys.executable, "-m", "tiered.cli", *self.words()]

    def start(self, *, environ: Mapping[str, str] | None = None) -> "BrokerProcess":
        """Raises AssertionError with the broker's own words when it does not get ready."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        self.kafka_port = self.kafka_port or free_port()
        self.http_port = self.http_port or free_port(besides=self.kafka_port)
        log = self.log_path.open("a")
        environ = {**os.environ, **self.environ, **(environ or {})}
        if self.prefix:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log, text=True, env=environ)
        else:
            self.process = WarmProcess("tiered.cli", self.words(), environ=environ, stderr=log.fileno())
        log.close()
        line = self._first_line()
        if not line.startswith("ready "):
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the broker did not get ready: {line!r}\n{self.log()[-4000:]}")
        self.ready_line = line
        fields = dict(part.split("=", 1) for part in line.split()[1:])
        self.kafka_port = int(fields["kafka"].rpartition(":")[2])
        self.http_port = int(fields["http"].rpartition(":")[2])
        return self

    def _first_line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        timer = threading.Timer(START_S, self.process.kill)
        timer.start()
        try:
            return self.process.stdout.readline()
        finally:
            timer.cancel()

    def kill(self) -> None:
        """kill -9, and the zombie reaped."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def wait_killed(self, timeout_s: float = 60.0) -> None:
        """Returns when the process has died by SIGKILL of its own accord (a crash point)."""
        assert self.process is not None
        assert self.process.wait(timeout_s) == -signal.SIGKILL, self.log()[-4000:]

    def stop(self) -> int:
        """A controlled shutdown; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def ensure_stopped(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    # Asking over HTTP

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.http + path, timeout=30) as answer:
            return json.load(answer)

    def health(self) -> dict[str, Any]:
        """What /readyz says, whatever its status; `status` is that."""
        try:
            with urllib.request.urlopen(self.http + "/readyz", timeout=10) as answer:
                return {"status": 200, **json.load(answer)}
        except urllib.error.HTTPError as error:
            return {"status": error.code, **json.load(error)}

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(self.http + "/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        raise KeyError(name)

    def segments(self, topic: str, partition: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/api/v1/topics/{topic}/partitions/{partition}/segments")
        return found

    def wait_cold(
        self, topic: str, partition: int = 0, *, end_offset: int, only: bool = False, timeout_s: float = 60
    ) -> None:
        """Returns once the object store holds everything below `end_offset`; with `only`, once the disk does not."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.segments(topic, partition)
            done = found["cold_end_offset"] >= end_offset
            if only:
                done = done and found["local_log_start_offset"] >= end_offset
            if done:
                return
            assert time.monotonic() < deadline, f"not cold after {timeout_s} s: {found}\n{self.log()[-4000:]}"
            time.sleep(0.05)
