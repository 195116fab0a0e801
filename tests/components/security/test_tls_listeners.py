"""Clients over TLS: what they get, who they are, and what is said to those who are not let in."""

import asyncio
import contextlib
import gc
import logging
import random
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess, free_port
from tests.certificates import Authority
from tiered.cli.main import main
from tiered.config.client_security import client_security
from tiered.formats.record import Record
from tiered.formats.record_batch import encode_batch
from tiered.peer import Cluster
from tiered.peer.connection import Peer
from tiered.peer.security import PeerSecurity, TlsFailed
from tiered.testing import LocalCluster, cluster

pytest_plugins = ["tests.certificates"]

HANDSHAKE_MS = 2_000
"""Long enough for a client that waits for a core: at 400 one in a whole run was late itself."""


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[LocalCluster]:
    server = authority.sign("server", password="hunter2")
    with cluster(
        listeners={"SECURE": "SSL", "MUTUAL": "SSL"},
        topics={"numbers": 1},
        settings={
            "listener.name.secure.ssl.keystore.location": server.both,
            "listener.name.mutual.ssl.keystore.certificate.chain": server.chain.read_text(),
            "listener.name.mutual.ssl.keystore.key": f"file:{server.key}",
            "ssl.key.password": "hunter2",
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.location": authority.pem,
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:CN=(.*?),O=Example/$1/U",
            "tiered.ssl.handshake.timeout.ms": HANDSHAKE_MS,
        },
    ) as c:
        yield c


def address(c: LocalCluster, listener: str) -> tuple[str, int]:
    host, _, port = c.bootstrap_at(listener).rpartition(":")
    return host, int(port)


def security(authority: Authority, **more: str) -> PeerSecurity:
    given = {"security.protocol": "SSL", "ssl.truststore.location": str(authority.pem)}
    return PeerSecurity(client_security(given | {name.replace("_", "."): value for name, value in more.items()}))


async def test_what_is_written_over_tls_is_read_over_tls_and_without(
    secured: LocalCluster, authority: Authority
) -> None:
    async with await Peer.connect(*address(secured, "SECURE"), security=security(authority)) as peer:
        answer = await peer.request(
            3,
            lambda make: make.MetadataRequest(
                topics=None,
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            ),
        )
    assert [(each.host, each.port) for each in answer.brokers] == [address(secured, "SECURE")]


async def test_each_listener_is_told_its_own_address(secured: LocalCluster, authority: Authority) -> None:
    me = authority.sign("alice")
    for listener, more in (("SECURE", {}), ("MUTUAL", {"ssl_keystore_location": str(me.both)})):
        async with Cluster(secured.bootstrap_at(listener), security=security(authority, **more)) as client:
            found = await client.metadata(["numbers"])
            assert [(each.host, each.port) for each in found.brokers.values()] == [address(secured, listener)]


async def refused(c: LocalCluster, listener: str, security_: PeerSecurity) -> str:
    with pytest.raises(TlsFailed) as failure:
        await Peer.connect(*address(c, listener), security=security_)
    return str(failure.value)


async def test_a_client_refuses_who_is_not_trusted_has_expired_or_is_for_another_host(
    secured: LocalCluster, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "another authority")
    assert "ssl.truststore.location" in await refused(secured, "SECURE", security(other))
    for name, hosts, days, words in (("old", ("127.0.0.1",), -1, "expired"), ("elsewhere", ("example.com",), 30, "IP")):
        shown = authority.sign(name, hosts=hosts, days=days)
        settings = {"ssl.keystore.location": shown.both}
        with cluster(listeners={"SECURE": "SSL"}, settings=settings) as wrong:
            assert words in await refused(wrong, "SECURE", security(authority))
            if name == "elsewhere":
                unchecked = security(authority, ssl_endpoint_identification_algorithm="")
                (await Peer.connect(*address(wrong, "SECURE"), security=unchecked)).close()


async def test_a_listener_refuses_who_shows_no_certificate_or_one_of_strangers(
    secured: LocalCluster, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "another authority").sign("mallory")
    assert "asks for a certificate" in await refused(secured, "MUTUAL", security(authority))
    shown = security(authority, ssl_keystore_location=str(stranger.both))
    assert "does not know who signed" in await refused(secured, "MUTUAL", shown)


def test_who_speaks_the_wrong_protocol_is_told_in_the_log(
    secured: LocalCluster, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(address(secured, "SECURE"), 5) as plain:
        plain.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        assert plain.recv(1) == b""
    context = ssl.create_default_context(cafile=str(authority.pem))
    plain_address = ("127.0.0.1", int(secured.bootstrap.rpartition(":")[2]))
    with (
        socket.create_connection(plain_address, 5) as tls,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        context.wrap_socket(tls, server_hostname="127.0.0.1")
    logged = said(caplog, "needs security.protocol=SSL") + said(caplog, "the client speaks TLS")
    assert len(logged) == 2


@pytest.fixture(autouse=True)
def all_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tiered")


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = [each.getMessage() for each in caplog.records if words in each.getMessage()]
        if found:
            return found[:1]
        time.sleep(0.01)
    raise AssertionError(f"the log says nothing like {words!r}")


def test_slow_handshakes_end_and_hold_up_nobody(
    secured: LocalCluster, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address(secured, "SECURE"), 10)) for _ in range(50)]
        for sock in slow[::2]:
            sock.sendall(b"\x16\x03\x01\x02\x00\x01")
        context = ssl.create_default_context(cafile=str(authority.pem))
        with (
            socket.create_connection(address(secured, "SECURE"), 10) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as quick,
        ):
            quick.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            assert struct.unpack(">ii", read_exactly(quick, 8))[1] == 7
        for sock in slow:
            assert sock.recv(1) == b""
    assert said(caplog, "did not end within 2 s")


def read_exactly(sock: ssl.SSLSocket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        some = sock.recv(count - len(found))
        assert some, "the connection ended"
        found += some
    return found


def test_the_ready_line_has_each_listener_and_commands_enter_the_one_they_are_told_how_to(
    authority: Authority, make_broker: Callable[..., BrokerProcess], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    broker = make_broker(
        "--listener", f"SECURE=SSL://127.0.0.1:{port}",
        settings={"ssl.keystore.location": str(authority.sign("process").both)},
    ).start()  # fmt: skip
    assert f" listener.SECURE=127.0.0.1:{port}" in broker.ready_line
    assert f" http=127.0.0.1:{broker.http_port} " in broker.ready_line
    assert main(["topics", "list", "-b", f"127.0.0.1:{port}"]) == 1
    assert "TLS is spoken" in capsys.readouterr().err
    told = tmp_path / "client.properties"
    told.write_text(f"security.protocol=SSL\nssl.truststore.location={authority.pem}\n")
    assert main(["topics", "list", "-b", f"127.0.0.1:{port}", "--command-config", str(told)]) == 0
    assert main(["topics", "list", "-b", broker.bootstrap, "--command-config", str(told)]) == 1
    assert "TLS" in capsys.readouterr().err


def test_ciphers_without_forward_secrecy_are_refused(secured: LocalCluster, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-GCM-SHA256:AES256-SHA")
    with (
        socket.create_connection(address(secured, "SECURE"), 10) as sock,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        context.wrap_socket(sock, server_hostname="127.0.0.1")


async def test_large_batches_go_both_ways_whole_and_a_slow_reader_is_waited_for(
    secured: LocalCluster, authority: Authority
) -> None:
    topic = secured.create_topic(configs={"max.message.bytes": 8 << 20})
    async with Cluster(secured.bootstrap_at("SECURE"), security=security(authority)) as client:
        values = [random.Random(number).randbytes(3_000_000) for number in range(4)]
        for value in values:
            record = Record(offset=0, timestamp_ms=0, key=None, value=value, headers=())
            await client.produce(topic, 0, encode_batch([record]))
        fetched = await client.fetch(topic, 0, 0, max_bytes=64 << 20)
        read = bytes(fetched.records)
    assert [read.count(value) for value in values] == [1, 1, 1, 1]
    async with Cluster(secured.bootstrap) as plain:
        assert bytes((await plain.fetch(topic, 0, 0, max_bytes=64 << 20)).records) == read


def test_connections_that_ended_leave_no_tls_for_the_collector(secured: LocalCluster, authority: Authority) -> None:
    def left() -> int:
        return sum(isinstance(each, ssl.SSLObject) for each in gc.get_objects())

    context = ssl.create_default_context(cafile=str(authority.pem))
    gc.collect()
    gc.disable()
    try:
        before = left()
        for number in range(20):
            with socket.create_connection(address(secured, "SECURE")) as plain:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
                    client.sendall(struct.pack(">i", 1000) + bytes(number))
        deadline = time.monotonic() + 10
        while left() > before:
            assert time.monotonic() < deadline, f"{left() - before} of 20 are still there"
            time.sleep(0.05)
    finally:
        gc.enable()


async def test_new_certificates_are_shown_without_a_restart_and_broken_ones_are_not(
    authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.server.kafka.transport.tls_door.WATCH_INTERVAL_MS", 20)
    shown = authority.sign("renewed")
    with cluster(listeners={"SECURE": "SSL"}, settings={"ssl.keystore.location": shown.both}) as c:
        before = serial_at(c)
        whole = shown.both.read_bytes()
        shown.both.write_bytes(whole[: len(whole) // 2])
        await asyncio.to_thread(said, caplog, "goes on with its certificates from before")
        assert serial_at(c) == before
        authority.sign("renewed")
        await asyncio.to_thread(said, caplog, "has new certificates")
        assert serial_at(c) != before


def serial_at(c: LocalCluster) -> bytes:
    """The certificate that the listener shows now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address(c, "SECURE"), 10) as sock, context.wrap_socket(sock) as tls:
        found = tls.getpeercert(binary_form=True)
    assert found is not None
    return found
