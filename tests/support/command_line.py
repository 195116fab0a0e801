"""The command line as tests call it, in their own process or as one of its own."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tiered.cli import main

COMMAND = [sys.executable, "-m", "tiered.cli"]


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    stdout: bytes
    stderr: bytes


class Tiered:
    """Runs commands against one broker: in this process where they end by themselves, which is far faster."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.environ = {"TIERED_BOOTSTRAP": broker.bootstrap, "TIERED_HTTP": broker.http}

    def run(self, *argv: str, lines: bytes = b"", code: int = 0) -> Done:
        out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
        with tempfile.TemporaryFile() as stdin, pytest.MonkeyPatch.context() as patch:
            stdin.write(lines)
            stdin.seek(0)
            patch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
            for name, value in self.environ.items():
                patch.setenv(name, value)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                ended = main(argv)
            out.flush()
            err.flush()
        done = Done(out.buffer.getvalue(), err.buffer.getvalue())
        assert ended == code, (argv, ended, done.stdout[-2000:], done.stderr.decode()[-2000:])
        return done

    def out(self, *argv: str, lines: bytes = b"") -> bytes:
        done = self.run(*argv, lines=lines)
        assert done.stderr == b""
        return done.stdout

    def json(self, *argv: str, lines: bytes = b"") -> Any:
        return json.loads(self.out(*argv, "--json", lines=lines))

    def failure(self, *argv: str, lines: bytes = b"", code: int = 1) -> str:
        return self.run(*argv, lines=lines, code=code).stderr.decode()

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.environ},
        )
