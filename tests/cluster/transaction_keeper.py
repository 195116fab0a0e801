"""Keeps loops of transactions going: each instance lives for some seconds, and is replaced in one way or another.

Owns the instances' processes and their lives. An instance is killed with -9, or stopped for a while as by a long pause,
or goes on beside its successor, which fences it; and whoever ends by itself is followed too.
"""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.child import ROOT

LIFE_S = (4.0, 14.0)
PAUSE_S = 3.0
AGAIN_S = 0.5
"""Between the end of one that could not go on and its successor."""
STOP_S = 15.0
ENDS = ("kill -9", "paused beside its successor", "beside its successor")
_INSTANCE_BITS = 11
"""How many attempts an instance may make, as bits."""


class LoopKeeper(threading.Thread):
    """One loop: instances of one transactional id, one after another."""

    def __init__(self, client: int, command: Sequence[str], options: Mapping[str, object], folder: Path) -> None:
        """`command` runs an instance; its options, one more argument, are these and those that are its own."""
        super().__init__(name=f"loop-{client}", daemon=True)
        self.counts: Counter[str] = Counter()
        self._client = client
        self._chance = random.Random(client)
        self._command = command
        self._options = {**options, "client": client}
        self._folder = folder
        self._instances = 0
        self._settles = threading.Event()
        self._halt = threading.Event()
        self._older: subprocess.Popen[bytes] | None = None
        """One that was replaced, and may still run."""

    def run(self) -> None:
        while not self._halt.is_set():
            process = self._start()
            self._watch(process)
            if process.poll() is not None:
                self.counts["ended by itself"] += 1
                self._halt.wait(AGAIN_S)
            elif self._halt.is_set():
                self._end(process)
            else:
                self._replace(process)
        self._forget_older()

    def settle(self) -> None:
        """From now on nobody is replaced but who ends by itself."""
        self._settles.set()

    def halt(self) -> None:
        """The instance ends after its present transaction."""
        self._halt.set()

    def finish(self) -> None:
        """Returns when it has ended."""
        self.halt()
        self.join(3 * STOP_S)

    def _start(self) -> subprocess.Popen[bytes]:
        self._instances += 1
        history = self._folder / f"loop-{self._client}-{self._instances:04}.history"
        options = {
            **self._options,
            "first_attempt": self._instances << _INSTANCE_BITS,
            "history": str(history),
        }
        return subprocess.Popen(
            [*self._command, json.dumps(options)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Returns when its life is over, in one way or another."""
        ends = time.monotonic() + self._chance.uniform(*LIFE_S)
        while process.poll() is None and not self._halt.is_set():
            if time.monotonic() >= ends and not self._settles.is_set():
                return
            time.sleep(0.1)

    def _replace(self, process: subprocess.Popen[bytes]) -> None:
        self._forget_older()
        how = self._chance.choice(ENDS)
        self.counts[how] += 1
        if how == "kill -9":
            process.kill()
            process.wait()
            return
        self._older = process
        if how == "paused beside its successor":
            os.kill(process.pid, signal.SIGSTOP)
            threading.Timer(PAUSE_S, self._go_on, (process,)).start()

    def _go_on(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)

    def _forget_older(self) -> None:
        if self._older is not None:
            self._older.kill()
            self._older.wait()
            self._older = None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
