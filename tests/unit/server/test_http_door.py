"""The HTTP door opens for its first client, whatever became of the package's files since the broker started."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tiered.server.http import opening as door
from tiered.server.http.opening import HttpDoor

HALF = "def application(service"
WHOLE = """
def application(service):
    return service

class HttpServer:
    def __init__(self, service):
        self.opened = service

    async def start(self, sock, tls, handshake_s):
        self.opened.set()

    async def stop(self):
        pass
"""


async def test_a_package_that_is_half_upgraded_does_not_end_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "application_of_an_upgrade.py"
    file.write_text(HALF)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(door, "RETRY_S", 0.05)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    opened: Any = asyncio.Event()
    opening = HttpDoor(opened, "application_of_an_upgrade")
    host, port = opening.bind("127.0.0.1", 0)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        opening.open(tasks)
        _, writer = await asyncio.open_connection(host, port)
        while "restart this broker" not in caplog.text:
            await asyncio.sleep(0.01)
        file.write_text(WHOLE)
        await opened.wait()
        writer.close()
        await opening.stop()
