"""Readers of a read replica who log in by tokens: it has no users, and needs none."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.raw import RawConnection
from tests.components.read_replicas import ReplicaThread
from tests.support.sasl_door import AUDIENCE, AUTHENTICATE, FAILED, HANDSHAKE, KEY, UNSUPPORTED, token
from tests.unit.cold.stored_segments import PARTITION, TOPIC
from tests.unit.cold.verified_store import make_store
from tiered.cold.local import LocalStore
from tiered.config.listeners import ListenerOptions, SecurityProtocol
from tiered.errors import InvalidConfig
from tiered.wire import messages

GUARDED = (ListenerOptions(name="GUARDED", protocol=SecurityProtocol.SASL_PLAINTEXT, port=0),)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    return LocalStore(make_store(tmp_path_factory.mktemp("bucket"), tmp_path_factory.mktemp("logs")).root)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "tiered.http.authentication": "basic",
        "connection.failed.authentication.delay.ms": 20,
    }


@pytest.fixture(scope="module")
def replica(
    bucket: LocalStore, settings: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicaThread]:
    with ReplicaThread(tmp_path_factory.mktemp("replica"), bucket, listeners=GUARDED, **settings) as thread:
        yield thread


def said(replica: ReplicaThread, mechanism: str, message: bytes) -> tuple[int, int]:
    """The codes of both answers; the second one is -1 where the first refuses."""
    shake, prove = messages.request(HANDSHAKE, 1), messages.request(AUTHENTICATE, 2)
    with RawConnection(replica, timeout_s=10) as door:
        first = door.ask(HANDSHAKE, 1, shake.SaslHandshakeRequest(mechanism=mechanism)).error_code
        if first:
            return first, -1
        door.ask(AUTHENTICATE, 2, prove.SaslAuthenticateRequest(auth_bytes=message))
        return first, door.ask(AUTHENTICATE, 2, prove.SaslAuthenticateRequest(auth_bytes=b"\x01")).error_code


def test_a_reader_with_a_token_reads(replica: ReplicaThread) -> None:

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{replica.kafka_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(), time.time() + 300),
            "group.id": "any",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, PARTITION, 0)])
    found = consumer.consume(10, 30)
    consumer.close()
    assert [each.offset() for each in found] == list(range(10))


def test_whoever_has_no_token_that_holds_reads_nothing(replica: ReplicaThread) -> None:
    bad = b"n,,\x01auth=Bearer " + token(audience="somebody else").encode() + b"\x01\x01"
    assert said(replica, "OAUTHBEARER", bad) == (0, FAILED)
    assert said(replica, "SCRAM-SHA-512", b"") == (UNSUPPORTED, -1)
    with (
        RawConnection(replica, timeout_s=10) as door,
        pytest.raises(ConnectionError),
    ):
        door.fetch(TOPIC, 0, partition=PARTITION)


def status(replica: ReplicaThread, path: str, login: str | None) -> int:
    headers = {} if login is None else {"Authorization": login}
    asked = urllib.request.Request(f"http://127.0.0.1:{replica.http_port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_http_takes_tokens_and_no_passwords(replica: ReplicaThread) -> None:
    assert status(replica, "/healthz", None) == 200
    assert status(replica, "/api/v1/topics", None) == 401
    assert status(replica, "/api/v1/topics", "Basic YWxpY2U6eA==") == 401
    assert status(replica, "/api/v1/topics", f"Bearer {token(lifetime_s=-60)}") == 401
    assert status(replica, "/api/v1/topics", f"Bearer {token()}") == 200


@pytest.mark.parametrize(
    ("altered", "what"),
    [
        ({"sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512"}, "no users with passwords"),
        ({"sasl.enabled.mechanisms": ""}, "no users with passwords"),
        ({"sasl.oauthbearer.expected.audience": ""}, "expected.audience"),
    ],
)
def test_it_does_not_start_with_logins_that_nobody_could_make(
    bucket: LocalStore, settings: dict[str, object], tmp_path: Path, altered: dict[str, object], what: str
) -> None:
    with (
        pytest.raises(InvalidConfig, match=what),
        ReplicaThread(tmp_path, bucket, listeners=GUARDED, **(settings | altered)),
    ):
        pass
