"""A real worker of Kafka Connect, in exactly-once mode: started, asked over HTTP, killed -9."""

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.broker_process import free_port
from tests.clients.foreign_tools import tool

DEADLINE_S = 120.0


class Worker:
    """Of a distributed Connect cluster that has no other."""

    def __init__(self, jars: Path, bootstrap: str, folder: Path) -> None:
        self._http = f"http://127.0.0.1:{(port := free_port())}"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "exactly.once.source.support": "enabled",
            "listeners": f"http://127.0.0.1:{port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "plugin.discovery": "only_scan",
        }
        for what in ("config", "offset", "status"):
            settings[f"{what}.storage.topic"] = f"connect-{what}s"
            settings[f"{what}.storage.replication.factor"] = 1
        file = folder / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._log = folder / "worker.log"
        self._command = [tool("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        self._command += ["org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def ensure_stopped(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Its answer; tried again while the worker is starting or rebalancing."""
        deadline = time.monotonic() + DEADLINE_S
        data = None if body is None else json.dumps(body).encode()
        while True:
            request = urllib.request.Request(self._http + path, data, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except OSError as error:
                said = error.read().decode() if isinstance(error, urllib.request.HTTPError) else str(error)
                assert time.monotonic() < deadline, f"{said}\n{self._log.read_text()[-4000:]}"
                time.sleep(0.2)
