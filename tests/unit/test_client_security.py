"""Kafka's client properties of security: what they mean, and that no secret of theirs is shown."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tiered.config.client_security import client_security, http_login
from tiered.config.listeners import SecurityProtocol
from tiered.config.secret import Secret
from tiered.errors import InvalidConfig


def test_nothing_said_is_plaintext_and_https_where_tls_is_spoken() -> None:
    found = client_security({})
    assert (found.protocol, found.checks_host_name) == (SecurityProtocol.PLAINTEXT, True)


def test_javas_and_librdkafkas_names_mean_the_same() -> None:
    java = client_security({"security.protocol": "SSL", "ssl.truststore.location": "/ca.pem"})
    librdkafka = client_security({"security.protocol": "ssl", "ssl.ca.location": "/ca.pem"})
    assert java == librdkafka
    assert java.tls.files == (Path("/ca.pem"),)


def test_a_password_is_in_no_repr_and_is_read_anew_from_its_file(tmp_path: Path) -> None:
    found = client_security({"sasl.username": "alice", "sasl.password": "hunter2", "ssl.key.password": "hunter3"})
    assert "hunter" not in repr(found)
    assert found.sasl_password is not None
    assert found.sasl_password.reveal() == "hunter2"
    path = tmp_path / "password"
    secret = Secret(f"file:{path}", name="sasl.password")
    for text in ("one", "two"):
        path.write_text(f"{text}\n")
        assert secret.reveal() == text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({"ssl.keystore.type": "JKS"}, "openssl pkcs12"),
        ({"ssl.truststore.locatoin": "x"}, "did you mean ssl.truststore.location"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "must be of TLSv1.2, TLSv1.3"),
        ({"ssl.keystore.key": "key.pem"}, "without ssl.keystore.certificate.chain"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_way_out(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        client_security(given)


def test_a_secret_that_cannot_be_had_names_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="TIERED_NO_SUCH_VARIABLE, which is not set"):
        Secret("env:TIERED_NO_SUCH_VARIABLE", name="sasl.password").reveal()
    with pytest.raises(InvalidConfig, match="cannot be read"):
        Secret(f"file:{tmp_path}/none", name="sasl.password").reveal()


def test_javas_login_modules_say_who_one_is() -> None:
    for module in ("plain.PlainLoginModule", "scram.ScramLoginModule"):
        found = client_security(
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "scram-sha-512",
                "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required\n"
                '  username="al\\"ice"\n  password="hunter\\\\2" ;',
            }
        )
        assert (found.sasl_mechanism, found.sasl_username) == ("SCRAM-SHA-512", 'al"ice')
        assert found.sasl_password is not None
        assert found.sasl_password.reveal() == "hunter\\2"
        assert "hunter" not in repr(found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "sasl.mechanism must be one of"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism must be one of"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "alice"}, "needs sasl.username and sasl.password"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.sun.Krb5LoginModule required hunter2;"},
            "one login module",
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "http://x"}, "must be file:///"),
    ],
)
def test_a_login_without_what_it_needs_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words) as refused:
        client_security({"security.protocol": "SASL_PLAINTEXT", **given})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "is_told"),
    [("https://broker:8443", True), ("http://127.0.0.1:8080", True), ("http://broker:8080", False)],
)
def test_a_password_crosses_no_network_in_the_clear(url: str, *, is_told: bool) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    assert bool(http_login(client_security(given), urlsplit(url))) is is_told
