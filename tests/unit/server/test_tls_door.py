"""How handshakes end, and the bound on those in progress, which hold memory before anybody has said who they are."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from tests.certificates import NO_TEXT, Authority
from tiered.config.listeners import ListenerOptions, SecurityProtocol
from tiered.config.tls import listener_tls
from tiered.server.kafka.transport.tls_door import TlsDoor


@pytest.fixture
def options(tmp_path: Path) -> ListenerOptions:
    shown = Authority(tmp_path).sign("server")
    tls = listener_tls({"ssl.keystore.location": str(shown.both)}, where="")
    return ListenerOptions(name="SECURE", protocol=SecurityProtocol.SSL, tls=tls)


async def test_as_many_handshakes_are_broken_off_as_begin_beyond_the_bound(
    options: ListenerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.server.kafka.transport.tls_door.MAX_HANDSHAKES", 3)
    door = TlsDoor(options)
    why: list[str | None] = []
    pairs = [socket.socketpair() for _ in range(6)]
    for begun in (pairs[:3], pairs[3:]):
        for ours, _ in begun:
            ours.setblocking(False)
            door.begin(ours, asyncio.create_task, lambda *_: None, why.append)
        await asyncio.sleep(0.01)
    broken_off = list(why)
    door.stop()
    await asyncio.sleep(0.01)
    for _, theirs in pairs:
        theirs.close()
    assert len(broken_off) == 3
    assert len(why) == 6


async def test_a_certificate_with_a_name_that_is_no_text_ends_its_own_connection_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "ssl.keystore.location": str(authority.sign("server").both),
        "ssl.truststore.location": str(authority.pem),
        "ssl.client.auth": "required",
    }
    tls = listener_tls(settings, where="")
    door = TlsDoor(ListenerOptions(name="SECURE", protocol=SecurityProtocol.SSL, tls=tls))
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.load_cert_chain(authority.sign("mallory", alternative_names=NO_TEXT).both)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    why: list[str | None] = []
    async with asyncio.TaskGroup() as tasks:
        door.begin(ours, tasks.create_task, lambda *_: None, why.append)
        reader, writer = await asyncio.open_connection(sock=theirs, ssl=context, server_hostname="localhost")
        assert await reader.read() == b""
    writer.close()
    door.stop()
    (reason,) = why
    assert "a name that is no text" in str(reason)
