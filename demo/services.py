"""The processes of the demo: an S3 server (moto) and a broker, each on loopback and on ports that are free.

Owns their start and stop. Everything that they print goes to files, so that the story stays readable.
"""

import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BUCKET = "tiered-demo"
REGION = "us-east-1"
_START_SECONDS = 30
_STOP_SECONDS = 30
_MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


class ServiceFailed(Exception):
    """A process of the demo did not start, or did not stop as it should. The message names its log."""


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """An S3 API with one empty bucket, in a process of its own; gives its URL."""
    with (folder / "s3.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _MOTO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        port = process.stdout.readline().strip().decode()
        if not port.isdigit():
            raise ServiceFailed(f"the S3 server did not start: see {folder / 's3.log'}")
        url = f"http://127.0.0.1:{port}"
        s3_client(url).create_bucket(Bucket=BUCKET)
        yield url
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


def s3_client(url: str) -> Any:
    """A client for the demo's S3 server; credentials come from the environment, as for everybody."""
    import boto3

    return boto3.client("s3", endpoint_url=url, region_name=REGION)


def store_url(s3_url: str) -> str:
    return f"s3://{BUCKET}/flights?region={REGION}&endpoint_url={s3_url}"


@dataclass(slots=True, kw_only=True)
class Broker:
    """One `tiered serve`. `start` and `stop` may alternate; the ports may differ after each start."""

    folder: Path
    store: str
    settings: dict[str, str] = field(default_factory=dict)
    bootstrap: str = ""
    http: str = ""
    _process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Starts it and waits for its ready line; gives the seconds that this took."""
        argv = [sys.executable, "-m", "tiered.cli", "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        argv += ["--data", str(self.folder / "data"), "--store", self.store]
        for name, value in self.settings.items():
            argv += ["--set", f"{name}={value}"]
        started = time.monotonic()
        log_path = self.folder / "broker.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if not words or words[0] != "ready":
            self.kill()
            raise ServiceFailed(f"the broker did not start: see {log_path}")
        facts = dict(word.split("=", 1) for word in words[1:])
        self.bootstrap, self.http = facts["kafka"], facts["http"]
        return time.monotonic() - started

    def stop(self) -> None:
        """Asks it to stop, as systemd would; a stop that is not clean is a failure of the demo."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServiceFailed(f"the broker did not stop within {_STOP_SECONDS} s") from None
        self._process = None
        if code != 0:
            raise ServiceFailed(f"the broker stopped with code {code}: see {self.folder / 'broker.log'}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def segments(self, topic: str, partition: int) -> list[dict[str, Any]]:
        """The catalogue of one partition, over HTTP; raises ServiceFailed when the broker does not answer well."""
        url = f"http://{self.http}/api/v1/topics/{topic}/partitions/{partition}/segments"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                found: list[dict[str, Any]] = json.load(response)["segments"]
                return found
        except urllib.error.HTTPError as error:
            raise ServiceFailed(
                f"GET {url} answered {error.code}: {error.read(500).decode(errors='replace')}"
            ) from error
        except OSError as error:
            raise ServiceFailed(f"GET {url} failed: {error}") from error
