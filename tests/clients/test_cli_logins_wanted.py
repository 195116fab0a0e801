"""What the commands say to who came without a login, or with one where none is wanted: which options give it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tiered.cli import main
from tiered.testing import LocalCluster, cluster

pytest_plugins = ["tests.certificates"]

LISTENERS = {"PLAIN": "PLAINTEXT", "ASKS": "SASL_PLAINTEXT", "GUARDED": "SASL_SSL", "MUTUAL": "SSL"}


@pytest.fixture(scope="module")
def one(authority: Authority) -> Iterator[LocalCluster]:
    settings = {
        "ssl.keystore.location": authority.sign("broker").both,
        "ssl.truststore.location": authority.pem,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
    }
    with cluster(listeners=LISTENERS, settings=settings) as c:
        yield c


@pytest.fixture
def properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TIERED_COMMAND_CONFIG", raising=False)
    return tmp_path / "client.properties"


LOGIN = "sasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password=secret\n"


def said(one: LocalCluster, listener: str, properties: Path, told: str, capsys: pytest.CaptureFixture[str]) -> str:
    properties.write_text(told)
    assert main(["topics", "list", "-b", one.bootstrap_at(listener), "--command-config", str(properties)]) == 1
    return capsys.readouterr().err


def test_a_login_that_is_wanted_is_said_with_what_gives_it(
    one: LocalCluster, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = one.bootstrap_at("ASKS")
    assert main(["topics", "list", "-b", at]) == 1
    told = capsys.readouterr().err
    assert f"{at} wants a login, by SCRAM-SHA-256 or SCRAM-SHA-512" in told
    assert (
        "security.protocol=SASL_PLAINTEXT, sasl.mechanism=SCRAM-SHA-512, sasl.username=NAME and sasl.password=" in told
    )
    assert "is the broker running" not in told


def test_doctor_says_it_too(one: LocalCluster, properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del properties
    assert main(["doctor", "-b", one.bootstrap_at("ASKS"), "--only", "broker"]) == 1
    assert "wants a login, by SCRAM-SHA-256 or SCRAM-SHA-512" in capsys.readouterr().out


def test_a_login_that_is_wanted_over_tls_is_said_too(
    one: LocalCluster, authority: Authority, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tls = f"security.protocol=SSL\nssl.truststore.location={authority.pem}\n"
    told = said(one, "GUARDED", properties, tls, capsys)
    assert "wants a login, by SCRAM-SHA-256 or SCRAM-SHA-512" in told
    assert "security.protocol=SASL_SSL" in told


def test_tls_that_is_wanted_is_said_and_the_port_is_not_called_wrong(
    one: LocalCluster, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for told in ("", f"security.protocol=SASL_PLAINTEXT\n{LOGIN}"):
        answer = said(one, "GUARDED", properties, told, capsys)
        assert "TLS is spoken at" in answer
        assert "security.protocol=SSL (SASL_SSL where a login is wanted)" in answer
        assert "no Kafka address" not in answer


def test_a_login_that_nobody_wants_is_said(
    one: LocalCluster, authority: Authority, properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = said(one, "PLAIN", properties, f"security.protocol=SASL_PLAINTEXT\n{LOGIN}", capsys)
    assert "wants no login: say security.protocol=PLAINTEXT" in plain
    tls = f"security.protocol=SASL_SSL\nssl.truststore.location={authority.pem}\n{LOGIN}"
    assert "wants no login: say security.protocol=SSL" in said(one, "MUTUAL", properties, tls, capsys)
