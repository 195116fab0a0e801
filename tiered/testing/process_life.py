"""A broker as a process of its own: `tiered serve`, whose kill is SIGKILL.

Owns the child and the file of its log. Must never leave it running.
"""

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiered import allocator
from tiered.testing.broker_control import START_TIMEOUT_S, STOP_TIMEOUT_S, BrokerEndedError

if TYPE_CHECKING:
    from tiered.testing.cluster_options import CheckedOptions

LOG_TAIL_CHARS = 4_000


class ProcessLife:
    """One `tiered serve`; `environ` is added to this process's environment."""

    def __init__(self, told: "CheckedOptions", environ: Mapping[str, str]) -> None:
        self._told = told
        self._environ = environ
        self._process: subprocess.Popen[str] | None = None
        self.log_path = Path(f"{told.data}.log")

    def start(self) -> None:
        self._told.serve_options()  # Errors of the options are raised here, not written to the child's log.
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=_environment(self._environ),
            )
        assert self._process.stdout is not None
        timer = threading.Timer(START_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        except BaseException:
            self._reap(signal.SIGKILL)
            raise
        finally:
            timer.cancel()
        if not line.startswith("ready "):
            self._reap(signal.SIGKILL)
            raise BrokerEndedError(f"the broker did not get ready:\n{self._log_tail()}")

    def stop(self) -> None:
        code = self._reap(signal.SIGTERM)
        if code != 0:
            raise BrokerEndedError(f"the broker ended with exit code {code}:\n{self._log_tail()}")

    def kill(self) -> None:
        self._reap(signal.SIGKILL)

    def health(self) -> dict[str, Any]:
        told = self._told
        url = f"{told.http_scheme}://127.0.0.1:{told.http_port}/readyz"
        context = _believing(told.settings)
        with urllib.request.urlopen(url, timeout=10, context=context) as answer:  # noqa: S310 - http or https
            found: dict[str, Any] = json.load(answer)
        return found

    def _reap(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "tiered.cli", "serve"]
        for name, value in self._told.as_serve_takes_it().items():
            for each in value if isinstance(value, list) else [value]:
                command += [] if each is None else [f"--{name.replace('_', '-')}", str(each)]
        return command

    def _log_tail(self) -> str:
        return self.log_path.read_text()[-LOG_TAIL_CHARS:] if self.log_path.exists() else ""


def _believing(settings: Mapping[str, str]) -> ssl.SSLContext:
    """For a child of our own on loopback: whoever signed its certificate, and with that one where it asks for one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown := settings.get("ssl.keystore.location"):
        context.load_cert_chain(shown, password=settings.get("ssl.key.password"))
    return context


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    """This process's, without what tells a broker things, and with the path that this Tiered was found on."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIERED_")}
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**allocator.ENVIRONMENT, **kept, "PYTHONPATH": path, **added}
