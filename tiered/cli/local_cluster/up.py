"""`tiered cluster up`: several brokers on one host for development, with a PostgreSQL of their own.

Owns the processes that it starts, and ends them all. Each broker is a `tiered serve`, so what holds here holds in
production. Must never restart one that ended: somebody who kills a broker wants to see what the others do, and is told
how to start it again.
"""

import argparse
import os
import selectors
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from tiered import allocator
from tiered.broker.host.data_folder import require_folder
from tiered.cli.failure import CommandFailed, UsageError
from tiered.cli.local_cluster.embedded_postgres import EmbeddedPostgres
from tiered.cli.output import say

STOP_S = 30.0
CONNECTIONS_A_BROKER = 10
POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One broker, and the command that runs it."""

    broker_id: int
    command: tuple[str, ...]
    log: Path


def run(arguments: argparse.Namespace) -> None:
    """Runs the cluster until Ctrl-C or SIGTERM. Raises CommandFailed and UsageError."""
    data = Path(arguments.data).expanduser().absolute()
    if arguments.meta is not None and not arguments.meta.startswith("postgres"):
        raise UsageError(f"--meta {arguments.meta} is not allowed: several brokers need postgresql://USER@HOST/DB")
    try:
        require_folder(data)
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--data {data} cannot be used: {error.strerror}") from error
    with ExitStack() as stack:
        must_end = stack.enter_context(_asked_to_end())
        meta = arguments.meta
        if meta is None:
            postgres = EmbeddedPostgres(
                data / "postgres", settings={"max_connections": 20 + CONNECTIONS_A_BROKER * arguments.brokers}
            )
            stack.callback(postgres.stop)
            postgres.start()
            meta = postgres.url()
        planned = planned_brokers(arguments, data, meta)
        brokers = _Brokers(planned, stack)
        brokers.start(must_end)
        _say(f"metadata store {meta}")
        _say(f"logs {data}/broker-*.log; Ctrl-C stops all")
        brokers.watch(must_end)


def planned_brokers(arguments: argparse.Namespace, data: Path, meta: str) -> list[Planned]:
    """The brokers with their commands: ports count up from the first, or are free ones."""
    store = arguments.store or f"file://{quote(str(data))}/objects"
    racks = arguments.racks or [f"rack-{broker_id}" for broker_id in range(1, arguments.brokers + 1)]
    found = []
    for index in range(arguments.brokers):
        broker_id = index + 1
        kafka = 0 if arguments.free_ports else arguments.kafka_port + index
        http = 0 if arguments.free_ports else arguments.http_port + index
        options = [
            *("--broker-id", str(broker_id)),
            *("--kafka", f"{arguments.host}:{kafka}"),
            *("--http", f"{arguments.host}:{http}"),
            *("--data", str(data / f"broker-{broker_id}")),
            *("--meta", meta),
            *("--store", store),
            *("--rack", racks[index % len(racks)]),
        ]
        if arguments.insecure:
            options.append("--insecure")
        pairs = [f"default.replication.factor={min(3, arguments.brokers)}", "tiered.disk.only.max.ms=600000"]
        if arguments.brokers >= 3:  # One of them may be away then, and an acknowledged record is on two.
            pairs.append("min.insync.replicas=2")
        pairs += arguments.set or []
        for pair in pairs:
            options += ["--set", pair]
        found.append(
            Planned(
                broker_id=broker_id,
                command=(sys.executable, "-m", "tiered.cli", "serve", *options),
                log=data / f"broker-{broker_id}.log",
            )
        )
    return found


class _Brokers:
    """The processes, in the order of their ids."""

    def __init__(self, planned: Sequence[Planned], stack: ExitStack) -> None:
        self._planned = planned
        self._running: dict[int, subprocess.Popen[str]] = {}
        stack.callback(self._stop)

    def start(self, must_end: Callable[[], bool]) -> None:
        """Returns when all are ready; each has printed its line by then. Raises CommandFailed."""
        # The first one makes the tables, which the others would only wait for.
        first, *others = self._planned
        for some in ([first], others):
            for each in some:
                self._running[each.broker_id] = _begun(each)
            self._wait_ready(some, must_end)
            if must_end():
                return

    def watch(self, must_end: Callable[[], bool]) -> None:
        """Returns when somebody asks for the end. Raises CommandFailed when no broker is left."""
        while not must_end():
            for each in self._planned:
                process = self._running.get(each.broker_id)
                if process is None:
                    continue
                try:
                    code = process.wait(POLL_S / len(self._planned))
                except subprocess.TimeoutExpired:
                    continue
                del self._running[each.broker_id]
                if must_end():
                    return
                how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                _say(f"broker {each.broker_id} ended {how}; start it again with: {shlex.join(each.command)}")
            if not self._running:
                raise CommandFailed(f"no broker runs any more; see {self._planned[0].log.parent}/broker-*.log")

    def _wait_ready(self, planned: Sequence[Planned], must_end: Callable[[], bool]) -> None:
        with selectors.DefaultSelector() as selector:
            for each in planned:
                output = self._running[each.broker_id].stdout
                assert output is not None
                selector.register(output, selectors.EVENT_READ, each)
            waiting = len(planned)
            while waiting and not must_end():
                for key, _ in selector.select(POLL_S):
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    if not line.startswith("ready "):
                        raise CommandFailed(f"broker {key.data.broker_id} did not start: {_last_words(key.data.log)}")
                    sys.stdout.write(line)
                    sys.stdout.flush()
                    selector.unregister(key.fileobj)
                    waiting -= 1

    def _stop(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._running.clear()


def _begun(planned: Planned) -> "subprocess.Popen[str]":
    # Brokers get a session of their own: Ctrl-C is for this command, which then stops them in order.
    with planned.log.open("a") as log:
        return subprocess.Popen(
            planned.command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, env=_environment()
        )


def _environment() -> dict[str, str]:
    """This process's, without what would tell every broker the same address."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIERED_")}
    return {**allocator.ENVIRONMENT, **kept}


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else f"see {log}"


def _say(words: str) -> None:
    """For people: stdout has the ready lines alone, which programs read."""
    say(f"tiered cluster: {words}", file=sys.stderr, flush=True)


@contextmanager
def _asked_to_end() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM or Ctrl-C came, from here on."""
    asked = False

    def remember(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True

    before = {number: signal.signal(number, remember) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
