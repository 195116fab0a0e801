"""Frames of a client that means harm, and what its neighbours notice."""

import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection

API_VERSIONS, METADATA, DESCRIBE_CONFIGS, LIST_OFFSETS = 18, 3, 32, 2
MIB = 1 << 20


def resident_mib(broker: BrokerProcess) -> float:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


@contextmanager
def bystander(broker: BrokerProcess, *, longest_s: float = 5.0) -> Iterator[None]:
    """Another client, which asks all the time and must be answered; the bound is no measurement, only no hang. Where it
    is passed, the message says who computed meanwhile: the broker, this process, or neither."""
    over = threading.Event()
    waits: list[tuple[float, float, float]] = []

    def ask() -> None:
        with RawConnection(broker, timeout_s=30) as connection:
            while not over.is_set():
                before = _seconds(broker)
                connection.call(API_VERSIONS, 0, b"")
                waits.append(tuple(now - then for now, then in zip(_seconds(broker), before, strict=True)))  # type: ignore[arg-type]
                time.sleep(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    waited, by_broker, here = max(waits)
    assert waited < longest_s, (
        f"a bystander waited {waited:.1f} s, of which the broker computed for {by_broker:.1f} s, and this process for "
        f"{here:.1f} s; load {os.getloadavg()}"
    )
    assert "unforeseen" not in broker.log()


def _seconds(broker: BrokerProcess) -> tuple[float, float, float]:
    """The time, what the broker has computed until now, and what this process has."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return time.monotonic(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), time.process_time()


def frame(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, 7, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body
