"""What stands between a driver and the brokers' HTTP door, and lets a commit's request or answer be lost."""

import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Fate(Enum):
    PASSES = auto()
    LOSES_ANSWER = auto()
    KILLS_BEFORE = auto()
    """The driver dies, and no broker ever hears of the commit."""
    KILLS_AFTER = auto()


class CommitGate:
    """Forwards requests to `behind`. The commits meet `fates` in turn, and then pass."""

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.url = ""
        self.fates: deque[Fate] = deque()
        self.commits = 0
        self.aborts = 0
        self.kill: Callable[[], None] = lambda: None


@contextmanager
def commit_gate(behind: str) -> Iterator[CommitGate]:
    gate = CommitGate(behind)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(*_forwarded(gate.behind + self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            fate = Fate.PASSES
            if self.path == "/api/v1/transaction-commits":
                gate.commits += 1
                fate = gate.fates.popleft() if gate.fates else fate
            gate.aborts += self.path == "/api/v1/transaction-aborts"
            if fate is Fate.KILLS_BEFORE:
                gate.kill()
                return
            status, answer = _forwarded(gate.behind + self.path, body)
            if fate is Fate.KILLS_AFTER:
                gate.kill()
            if fate is Fate.PASSES:
                self._answer(status, answer)

        def _answer(self, status: int, answer: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            with suppress(ConnectionError):  # Whoever asked may have been killed meanwhile.
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing: a test has no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="commit-gate")
        thread.start()
        gate.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield gate
        finally:
            server.shutdown()
            thread.join()


def _forwarded(url: str, body: bytes | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
