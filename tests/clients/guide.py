"""The shell commands of a document, run as they stand there, one after the other in one bash.

Owns that shell, and what its user would have on the PATH: the scripts of Kafka's bin folder.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.clients.foreign_tools import tool
from tests.clients.java_client import SCRIPTS

BLOCK = re.compile(r"^(#+ .*?)$|^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
DONE = "--- done"
BLOCK_S = 240.0
CONNECT = {"connect-distributed": "org.apache.kafka.connect.cli.ConnectDistributed"}


def blocks(document: Path) -> dict[str, list[str]]:
    """The shell blocks below each heading, with the number signs of the heading left out."""
    found: dict[str, list[str]] = {}
    heading = ""
    for match in BLOCK.finditer(document.read_text()):
        if match[1] is not None:
            heading = match[1].lstrip("# ")
        else:
            found.setdefault(heading, []).append(match[2])
    return found


def make_scripts(folder: Path, jars: Path) -> None:
    """What Kafka's bin folder has, for short lives: the better compiler would never earn what it costs."""
    folder.mkdir()
    options = "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    for name, program in {**SCRIPTS, **CONNECT}.items():
        script = folder / f"{name}.sh"
        script.write_text(f"#!/bin/sh\nexec {tool('java')} {options} -cp '{jars}/*' {program} \"$@\"\n")
        script.chmod(0o755)


class Reader:
    """Somebody who enters the commands. `instead` has what they replace: names and ports that are examples."""

    def __init__(self, folder: Path, scripts: Path, instead: Mapping[str, str]) -> None:
        self._instead = instead
        self._started: list[int] = []
        self._shell = subprocess.Popen(
            [tool("bash")],
            cwd=folder,
            env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # What a reader would see fail, though the last command of the block succeeds.
        self.enter("set -E; trap 'echo FAILED: $BASH_COMMAND' ERR")

    def enter(self, block: str) -> list[str]:
        """The lines that it said. Raises AssertionError when one of its commands fails."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        for example, real in self._instead.items():
            block = block.replace(example, real)
        self._shell.stdin.write(f"{block}\necho; echo '{DONE}'\n")
        self._shell.stdin.flush()
        said: list[str] = []
        timer = threading.Timer(BLOCK_S, self._shell.kill)
        timer.start()
        try:
            while (line := self._shell.stdout.readline().rstrip("\n")) != DONE:
                said.append(line)
                assert line or self._shell.poll() is None, "\n".join(["it did not end", block, *said])
        finally:
            timer.cancel()
        assert not any(line.startswith("FAILED: ") for line in said), "\n".join([block, *said])
        return [line for line in said if line]

    def last_started(self) -> int:
        """The process that the last block with `&` has left in the background; it is ours to end."""
        pid = int(self.enter("echo $!")[-1])
        self._started.append(pid)
        return pid

    def kill(self, pid: int) -> None:
        """kill -9 of what `last_started` said, and the zombie is reaped."""
        self._started.remove(pid)
        os.kill(pid, signal.SIGKILL)
        self.enter(f"wait {pid} 2> /dev/null || true")

    def leave(self) -> None:
        """Ends the shell and what it has left in the background."""
        for pid in self._started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._shell.kill()
        self._shell.wait()
