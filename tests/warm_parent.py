"""A process that has imported what brokers need and forks one for each order: `python -m tests.warm_parent FD`.

Importing takes a broker five times as long as all else that it does until it is ready. What is forked is a process of
its own in every respect that a test can see: its id, arguments, environment, folder, streams, signals and its death.

Owns the forks, and reports each one's id and end. Must never start a thread or an event loop, and must never import
what does: a fork has no thread but its own. Ends when its stdin does, and its forks with it.
"""

import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What a broker imports at its start or when it is first asked for it.
MODULES = (
    "aiohttp.web",
    "alembic.command",
    "boto3.session",
    "botocore.httpsession",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "tiered.cli.main",
    "tiered.cli.serve",
    "tiered.meta.engine",
)
# And packages with all that is in them.
PACKAGES = ("tiered.server", "tiered.broker", "tiered.hot", "tiered.cold", "tiered.peer", "tiered.wire")
ORDER_BYTES = 1 << 17
# An order's descriptors: where its end is reported, stdin, stdout, stderr.
DESCRIPTORS = 4
LIFE_LINE = 0


@dataclass(slots=True)
class Forks:
    """The processes that live, by the descriptor that tells of their end."""

    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    living: dict[int, tuple[int, int]] = field(default_factory=dict)
    """pidfd: process id, and where its end is reported."""

    def add(self, pid: int, report: int) -> None:
        pidfd = os.pidfd_open(pid)
        self.living[pidfd] = (pid, report)
        self.selector.register(pidfd, selectors.EVENT_READ)
        _report(report, pid)

    def reap(self, pidfd: int) -> None:
        pid, report = self.living.pop(pidfd)
        self.selector.unregister(pidfd)
        os.close(pidfd)
        _report(report, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os.close(report)

    def let_go(self) -> None:
        """In a fork, which has no part in its parent's others."""
        self.selector.close()
        for pidfd, (_, report) in self.living.items():
            os.close(pidfd)
            os.close(report)

    def kill(self) -> None:
        for pid, _ in self.living.values():
            os.kill(pid, signal.SIGKILL)


def _report(report: int, number: int) -> None:
    try:
        os.write(report, b"%d\n" % number)
    except BrokenPipeError:
        pass  # Nobody asks any more.


def warm_up() -> None:
    """Imports everything. The collector never looks at what is there then, so that forks share its memory."""
    gc.disable()
    for module in MODULES:
        importlib.import_module(module)
    for name in PACKAGES:
        package = importlib.import_module(name)
        for each in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(each.name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "something that was imported has started a thread"
    gc.freeze()
    gc.enable()


def serve(orders: socket.socket) -> dict[str, Any] | None:
    """An order, in the process that was forked for it; None in the parent, when there will be no more."""
    forks = Forks()
    forks.selector.register(orders, selectors.EVENT_READ)
    forks.selector.register(LIFE_LINE, selectors.EVENT_READ)
    while True:
        for key, _ in forks.selector.select():
            if key.fd == LIFE_LINE:
                # Nobody is left who could end them.
                forks.kill()
                return None
            if key.fd != orders.fileno():
                forks.reap(key.fd)
                continue
            data, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES, DESCRIPTORS)
            report, *streams = descriptors
            pid = os.fork()
            if pid == 0:
                forks.let_go()
                orders.close()
                os.close(report)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                order: dict[str, Any] = marshal.loads(data)
                return order
            for stream in streams:
                os.close(stream)
            forks.add(pid, report)


def become(order: dict[str, Any]) -> None:
    """Runs a module as `python -m` does, for whoever ordered it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["folder"])
    # What Python imports by itself at its start has seen the parent's environment.
    if (begin := getattr(sys.modules.get("sitecustomize"), "begin", None)) is not None:
        begin()
    sys.argv = ["", *order["arguments"]]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


def main() -> None:
    # Ctrl-C goes to every process of a terminal; this one ends when the one that started it does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = socket.socket(fileno=int(sys.argv[1]))
    warm_up()
    order = serve(orders)
    if order is not None:
        become(order)


if __name__ == "__main__":
    main()
