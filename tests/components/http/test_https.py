"""The HTTP doors over TLS: for programs, for brokers that pass requests on, and for the commands."""

import contextlib
import gc
import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import NO_TEXT, Authority
from tiered.cli.main import main
from tiered.testing import LocalCluster, cluster

pytest_plugins = ["tests.certificates"]


@pytest.fixture(scope="module")
def two(authority: Authority) -> Iterator[LocalCluster]:
    settings = {
        "ssl.keystore.location": authority.sign("broker").both,
        "ssl.truststore.location": authority.pem,
        "http.ssl.client.auth": "requested",
    }
    with cluster(brokers=2, https=True, settings=settings, topics={"orders": 4}) as c:
        yield c


def get(url: str, authority: Authority) -> Any:
    context = ssl.create_default_context(cafile=str(authority.pem))
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        return json.load(answer)


def is_answered(url: str, authority: Authority) -> bool:
    try:
        get(url, authority)
    except urllib.error.HTTPError as error:
        return error.code != 503
    return True


def test_each_broker_answers_for_every_partition_over_tls(two: LocalCluster, authority: Authority) -> None:
    for url in two.http_urls:
        for partition in range(4):
            found = get(f"{url}/api/v1/topics/orders/partitions/{partition}/segments", authority)
            assert found["segments"] == []
        (first, second) = get(f"{url}/api/v1/cluster", authority)["brokers"]
        assert (first["state"], second["state"]) == ("live", "live")
        for number in (first["broker_id"], second["broker_id"]):
            shown = get(f"{url}/api/v1/brokers/{number}", authority)
            assert shown["activity"]["uptime_ms"] > 0
            assert "http" not in [listener["name"] for listener in shown["listeners"]], "the door is no Kafka listener"


def test_a_browser_is_told_to_come_by_https_alone(two: LocalCluster, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.pem))
    with urllib.request.urlopen(f"{two.http_url}/healthz", timeout=30, context=context) as answer:
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


def test_a_door_with_tls_answers_nobody_without(two: LocalCluster) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(two.http_url.replace("https:", "http:"), timeout=30)
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(two.http_url, timeout=30)


def test_commands_trust_whom_their_file_names(
    two: LocalCluster, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["segments", "orders", "--http", two.http_url]) == 1
    assert "ssl.truststore.location" in capsys.readouterr().err
    told = tmp_path / "client.properties"
    told.write_text(f"# trust\nssl.truststore.location = {authority.pem}\nlinger.ms=5\n")
    assert main(["segments", "orders", "--http", two.http_url, "--command-config", str(told)]) == 0


def test_handshakes_that_fail_take_no_connection_from_others(authority: Authority) -> None:
    settings = {
        "ssl.keystore.location": authority.sign("http").both,
        "tiered.http.max.connections": "5",
        "tiered.ssl.handshake.timeout.ms": "200",
    }
    with cluster(https=True, settings=settings) as c:
        host, port = c.http_url.removeprefix("https://").split(":")
        for _ in range(20):
            with socket.create_connection((host, int(port))) as sock:
                sock.sendall(b"no TLS\n")
        deadline = time.monotonic() + 10
        while not is_answered(f"{c.http_url}/healthz", authority):
            assert time.monotonic() < deadline, "handshakes that failed long ago still count"
            time.sleep(0.05)


def test_a_certificate_with_a_name_that_is_no_text_ends_its_own_connection_alone(
    two: LocalCluster, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.load_cert_chain(authority.sign("mallory", alternative_names=NO_TEXT).both)
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"{two.http_url}/healthz", timeout=30, context=context)
    gc.collect()
    assert "never retrieved" not in caplog.text
    (line,) = (record for record in caplog.records if "no text" in record.getMessage())
    assert line.getMessage().startswith("HTTPS connection from 127.0.0.1 closed: the certificate has a name")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert is_answered(f"{two.http_url}/healthz", authority)


def test_handshakes_that_fail_leave_nothing_for_the_collector(authority: Authority) -> None:
    """Each has buffers of a third of a MiB, and who opens connections and says nothing needs no login for it."""

    def left() -> int:
        return sum(isinstance(each, ssl.SSLObject) for each in gc.get_objects())

    settings = {"ssl.keystore.location": authority.sign("http").both, "tiered.ssl.handshake.timeout.ms": "200"}
    with cluster(https=True, settings=settings) as c:
        assert is_answered(f"{c.http_url}/healthz", authority)
        address = ("127.0.0.1", int(c.http_url.rpartition(":")[2]))
        gc.collect()
        gc.disable()
        try:
            before = left()
            late = [socket.create_connection(address) for _ in range(10)]
            for said in (b"", b"no TLS\n", b"\x16\x03\x01\x01\x00\x01"):
                for _ in range(10):
                    with socket.create_connection(address) as sock:
                        sock.sendall(said)
            assert [each.recv(1) for each in late] == [b""] * 10
            deadline = time.monotonic() + 10
            while left() > before:
                assert time.monotonic() < deadline, f"{left() - before} of 40 handshakes are still there"
                time.sleep(0.05)
        finally:
            gc.enable()
        for each in late:
            each.close()


def test_handshakes_that_never_come_give_way_to_others(authority: Authority) -> None:
    settings = {"ssl.keystore.location": authority.sign("http").both, "tiered.http.max.connections": "5"}
    with cluster(https=True, settings=settings) as c:
        address = ("127.0.0.1", int(c.http_url.rpartition(":")[2]))
        silent = [socket.create_connection(address, 30, ("127.0.0.2", 0)) for _ in range(60)]
        assert is_answered(f"{c.http_url}/healthz", authority)
        assert all(is_ended(each) for each in silent[:57])
        for each in silent:
            each.close()


def is_ended(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(
    two: LocalCluster, authority: Authority
) -> None:
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(authority.pem))
    client = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", int(two.http_url.rpartition(":")[2]))) as sock:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(sent.read())
                received.write(sock.recv(1 << 16))
        client.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        sock.sendall(sent.read())  # The handshake's end and the request, in one segment.
        sock.settimeout(10)
        answer = b""
        while b"\r\n" not in answer:
            received.write(sock.recv(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer += client.read()
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_new_certificates_are_shown_and_open_connections_stay(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.server.http.opening.WATCH_INTERVAL_MS", 20)
    shown = authority.sign("http")
    with cluster(https=True, settings={"ssl.keystore.location": shown.both}) as c:
        host, port = c.http_url.removeprefix("https://").split(":")
        get(f"{c.http_url}/readyz", authority)
        before = ssl.get_server_certificate((host, int(port)))
        authority.sign("http")
        deadline = time.monotonic() + 30
        while ssl.get_server_certificate((host, int(port))) == before:
            assert time.monotonic() < deadline, "the old certificate is still shown"
            time.sleep(0.02)
        get(f"{c.http_url}/readyz", authority)


def test_the_first_client_of_a_door_is_shown_the_newest_certificate(authority: Authority) -> None:
    """The door opens with its first client, long after the broker read its certificates."""
    shown = authority.sign("http")
    with cluster(https=True, settings={"ssl.keystore.location": shown.both}) as c:
        renewed = authority.sign("http").chain.read_text()
        host, port = c.http_url.removeprefix("https://").split(":")
        assert ssl.get_server_certificate((host, int(port))) == renewed


def test_a_broker_that_is_a_process_of_its_own_speaks_tls_too(authority: Authority) -> None:
    settings = {"ssl.keystore.location": authority.sign("http").both}
    with cluster(https=True, in_process=False, settings=settings) as c:
        assert c.http_url.startswith("https://")
        assert is_answered(f"{c.http_url}/readyz", authority)
