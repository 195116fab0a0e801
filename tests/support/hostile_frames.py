"""Frames of a client that means harm, and what its neighbours notice."""

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
    """Another client, which asks all the time and must be answered; the bound is no measurement, only no hang."""
    over = threading.Event()
    waits: list[float] = []

    def ask() -> None:
        with RawConnection(broker, timeout_s=30) as connection:
            while not over.is_set():
                started = time.monotonic()
                connection.call(API_VERSIONS, 0, b"")
                waits.append(time.monotonic() - started)
                time.sleep(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert waits
    assert max(waits) < longest_s, f"a bystander waited {max(waits):.1f} s"
    assert "unforeseen" not in broker.log()


def frame(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, 7, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body
