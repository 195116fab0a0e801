"""Listeners by name: where they come from, which settings are theirs, and which are refused."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tiered.config import ServeOptions, load_serve_options
from tiered.config.client_security import client_security
from tiered.config.listeners import SecurityProtocol
from tiered.config.tls import ClientAuth
from tiered.errors import InvalidConfig


def options(environ: dict[str, str] | None = None, toml: dict[str, Any] | None = None, **given: Any) -> ServeOptions:
    return load_serve_options(Namespace(**given), environ or {}, toml or {})


def test_without_a_word_there_is_one_plaintext_listener() -> None:
    (only,) = options().listeners
    assert (only.name, only.protocol, only.host, only.port) == ("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)


SECURE = "SECURE=SSL://127.0.0.1:9093"
KEYSTORE = "ssl.keystore.location=/server.pem"


@pytest.mark.parametrize(
    ("environ", "toml", "given"),
    [
        ({}, {}, {"listener": ["OPEN=PLAINTEXT://127.0.0.1:9092", SECURE], "set": [KEYSTORE]}),
        ({"TIERED_LISTENER": f"OPEN=PLAINTEXT://127.0.0.1:9092,{SECURE}", "TIERED_SET": KEYSTORE}, {}, {}),
        (
            {},
            {
                "listener": ["OPEN=PLAINTEXT://127.0.0.1:9092", SECURE],
                "settings": {"ssl": {"keystore": {"location": "/server.pem"}}},
            },
            {},
        ),
    ],
)
def test_listeners_come_from_the_command_line_the_environment_or_the_file(
    environ: dict[str, str], toml: dict[str, Any], given: dict[str, Any]
) -> None:
    opened, secure = options(environ, toml, **given).listeners
    assert (opened.name, opened.tls) == ("OPEN", None)
    assert (secure.name, secure.protocol) == ("SECURE", SecurityProtocol.SSL)
    assert secure.tls is not None
    assert secure.tls.material.files == (Path("/server.pem"),)


def test_what_is_set_for_one_listener_wins_for_it_alone() -> None:
    told = options(
        kafka="127.0.0.1:9092",
        listener=[SECURE, "OTHER=SSL://127.0.0.1:9094"],
        set=[
            KEYSTORE,
            "listener.name.other.ssl.keystore.location=/other.pem",
            "listener.name.other.ssl.client.auth=required",
            "listener.name.other.ssl.truststore.location=/ca.pem",
        ],
        inter_broker_listener="other",
        advertise=["a.example:1", "OTHER=b.example:2"],
    )
    plain, secure, other = told.listeners
    assert secure.tls is not None
    assert other.tls is not None
    assert (secure.tls.client_auth, other.tls.client_auth) == (ClientAuth.NONE, ClientAuth.REQUIRED)
    assert other.tls.material.files == (Path("/other.pem"), Path("/ca.pem"))
    assert (plain.advertised, other.advertised) == (("a.example", 1), ("b.example", 2))
    assert told.inter_broker is other
    among = {"security.protocol": "SSL", "ssl.keystore.location": "/other.pem", "ssl.truststore.location": "/ca.pem"}
    assert told.inter_broker_security == client_security(among)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"listener": ["SECURE=TLS://127.0.0.1:1"]}, "NAME=PROTOCOL://HOST:PORT"),
        ({"listener": [SECURE]}, "ssl.keystore.location is missing"),
        ({"listener": [SECURE, SECURE], "set": [KEYSTORE]}, "two listeners are named SECURE"),
        ({"listener": [SECURE], "set": [KEYSTORE, "ssl.client.auth=required"]}, "needs ssl.truststore.location"),
        (
            {"kafka": "127.0.0.1:1", "set": ["listener.name.plaintext.sasl.enabled.mechanisms=PLAIN"]},
            "PLAINTEXT has no SASL",
        ),
        ({"advertise": ["OTHER=a.example:1"]}, "names no listener: there is PLAINTEXT"),
        ({"inter_broker_listener": "OTHER"}, "OTHER is no listener: there is PLAINTEXT"),
    ],
)
def test_listeners_that_cannot_be_meant_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        options(**given)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"kafka": "0.0.0.0:9092"}, True),
        ({"kafka": "[::]:9092"}, True),
        ({"kafka": "broker.example:9092"}, True),
        ({"http": "10.0.0.1:8080"}, True),
        ({"http": "https://10.0.0.1:8080", "set": [KEYSTORE]}, True),
        ({"listener": ["A=SSL://10.0.0.1:9093"], "set": [KEYSTORE]}, True),
        ({"kafka": "127.0.0.2:9092", "http": "localhost:8080"}, False),
        ({"kafka": "0.0.0.0:9092", "http": "0.0.0.0:8080", "insecure": True}, False),
        (
            {
                "listener": ["A=SSL://10.0.0.1:9093"],
                "http": "https://10.0.0.1:8080",
                "set": [KEYSTORE, "ssl.client.auth=required", "ssl.truststore.location=/ca.pem"],
            },
            False,
        ),
        ({"listener": ["A=SASL_SSL://10.0.0.1:9093"], "set": [KEYSTORE]}, False),
    ],
)
def test_who_is_not_on_this_machine_must_say_who_they_are_or_nobody_is_let_in(
    given: dict[str, Any], refused: bool
) -> None:
    if not refused:
        assert options(**given).listeners
        return
    with pytest.raises(InvalidConfig, match="say --insecure where the network itself is closed"):
        options(**given)


def test_the_http_door_has_certificates_of_its_own_where_they_are_given() -> None:
    told = options(
        http="https://127.0.0.1:8443",
        listener=[SECURE],
        set=[KEYSTORE, "http.ssl.keystore.location=/http.pem"],
    )
    assert told.http_tls is not None
    assert told.http_tls.material.files == (Path("/http.pem"),)
    assert (told.http_host, told.http_port) == ("127.0.0.1", 8443)
