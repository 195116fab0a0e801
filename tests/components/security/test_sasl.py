"""Logins by SASL, as real clients do them, and as nobody should."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.sasl_door import (
    AUDIENCE,
    AUTHENTICATE,
    FAILED,
    HANDSHAKE,
    ILLEGAL,
    KEY,
    UNSUPPORTED,
    UNSUPPORTED_VERSION,
    Door,
    alter,
    token,
)
from tiered.rules.security.sasl.scram_client import client_first
from tiered.testing import LocalCluster, cluster
from tiered.wire import messages
from tiered.wire.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_response, encode_fetch_request

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    with cluster(
        listeners={"GUARDED": "SASL_PLAINTEXT", "TOKENS": "SASL_PLAINTEXT"},
        topics={"numbers": 1},
        settings={
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
            "tiered.sasl.plain.without.tls": "true",
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "tiered.authentication.timeout.ms": 1500,
            "connection.failed.authentication.delay.ms": 20,
        },
    ) as c:
        alter(
            c,
            *(
                UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"secret of alice")
                for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
            ),
        )
        yield c


def bootstrap(c: LocalCluster) -> str:
    return c.bootstrap_at("GUARDED")


def confluent(c: LocalCluster, mechanism: str, password: str) -> int:
    properties: dict[str, Any] = {
        "bootstrap.servers": bootstrap(c), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "log_level": 0,
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        properties["oauth_cb"] = lambda _: (token(), time.time() + 300)
    else:
        properties |= {"sasl.username": "alice", "sasl.password": password}
    producer = confluent_kafka.Producer(properties)
    sent: list[int] = []
    producer.produce("numbers", b"x", on_delivery=lambda error, message: sent.append(message.offset() or 0))
    assert producer.flush(20) == 0
    return len(sent)


def aio(c: LocalCluster, mechanism: str, password: str) -> int:
    class Tokens(AiokafkaTokens):  # type: ignore[misc]
        async def token(self) -> str:
            return token()

    async def run() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap(c),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
            sasl_oauth_token_provider=Tokens(),
        )
        async with producer:
            await producer.send_and_wait("numbers", b"x")
        return 1

    return asyncio.run(run())


def kafka_python(c: LocalCluster, mechanism: str, password: str) -> int:
    class Tokens(KafkaPythonTokens):  # type: ignore[misc]
        def token(self) -> str:
            return token()

    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap(c),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=password,
        sasl_oauth_token_provider=Tokens() if mechanism == "OAUTHBEARER" else None,
    )
    try:
        producer.send("numbers", b"x").get(20)
    finally:
        producer.close(5)
    return 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("produce", [confluent, aio, kafka_python], ids=lambda each: each.__name__)
def test_every_client_logs_in_by_every_mechanism_and_produces(
    guarded: LocalCluster, produce: Callable[[LocalCluster, str, str], int], mechanism: str
) -> None:
    assert produce(guarded, mechanism, "secret of alice") == 1


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_is_told_as_such(guarded: LocalCluster, mechanism: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    properties: dict[str, Any] = {
        "bootstrap.servers": bootstrap(guarded), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": "alice", "sasl.password": "hunter2", "error_cb": errors.append, "log_level": 0,
    }  # fmt: skip
    admin = AdminClient(properties)
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=1)
    admin.poll(0.1)
    assert confluent_kafka.KafkaError._AUTHENTICATION in {each.code() for each in errors}
    assert "hunter2" not in str(errors)


def test_an_unknown_user_and_a_wrong_password_are_answered_alike(guarded: LocalCluster) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        asked: dict[str, Any] = {}
        for name in ("alice", "nobody", "nobody"):
            with Door(guarded) as door:
                door.handshake(mechanism)
                answer = door.say(client_first(name, "abc"))
                assert answer.error_code == 0
                parts = answer.auth_bytes.split(b",")
                assert asked.setdefault(name, parts[1:]) == parts[1:], "another salt each time would tell"
                refused = door.say(
                    b"c=biws," + parts[0] + b",p=" + b64encode(bytes(32 if mechanism.endswith("256") else 64))
                )
                assert refused.error_code == FAILED
                asked.setdefault("error", refused.error_message)
                assert refused.error_message == asked["error"]
        assert [len(each) for each in asked["alice"]] == [len(each) for each in asked["nobody"]]
    told = set()
    for name in ("alice", "nobody"):
        with Door(guarded) as door:
            answer = door.login(name, "x")
            assert answer.error_code == FAILED
            told.add(answer.error_message)
            assert door.is_closed()
    assert len(told) == 1


def test_before_a_login_nothing_else_is_answered(guarded: LocalCluster) -> None:
    with Door(guarded) as door:
        door.versions()
        make = messages.request(60, 0)
        door.send(60, 0, messages.encode(make.DescribeClusterRequest(include_cluster_authorized_operations=False)))
        assert door.is_closed()
    with Door(guarded) as door:
        assert door.say(b"x").error_code == ILLEGAL
        assert door.is_closed()
    with Door(guarded) as door:
        answer = door.handshake("GSSAPI")
        assert (answer.error_code, list(answer.mechanisms)) == (UNSUPPORTED, MECHANISMS)
        assert door.is_closed()
    with Door(guarded) as door:
        assert door.handshake("PLAIN").error_code == 0
        assert door.handshake("PLAIN").error_code == ILLEGAL
        assert door.is_closed()
    with Door(guarded) as door:
        make = messages.request(HANDSHAKE, 0)
        assert door.ask(HANDSHAKE, 0, make.SaslHandshakeRequest(mechanism="PLAIN")).error_code == UNSUPPORTED_VERSION
        assert door.is_closed()


def test_garbage_and_what_is_too_large_or_too_much_ends_the_connection(guarded: LocalCluster) -> None:
    for mechanism in MECHANISMS:
        with Door(guarded) as door:
            door.handshake(mechanism)
            assert door.say(b"\xff\x00garbage").error_code == FAILED
            assert door.is_closed()
    with Door(guarded) as door:
        door.send_bytes((65 << 10).to_bytes(4, "big") + b"\x00\x00")
        assert door.is_closed(), "even Produce has no large frames before a login"
    with Door(guarded) as door, pytest.raises(ConnectionError):
        for _ in range(20):
            door.versions()


def test_whoever_does_not_log_in_in_time_is_gone(guarded: LocalCluster) -> None:
    with Door(guarded) as door:
        door.versions()
        since = time.monotonic()
        assert door.is_closed()
        assert 0.5 < time.monotonic() - since < 8


def test_a_bad_token_is_refused_as_rfc_7628_says(guarded: LocalCluster) -> None:
    for bad in (token(audience="somebody else"), token(lifetime_s=-60), "a.b.c"):
        with Door(guarded) as door:
            door.handshake("OAUTHBEARER")
            answer = door.say(b"n,,\x01auth=Bearer " + bad.encode() + b"\x01\x01")
            assert (answer.error_code, json.loads(answer.auth_bytes)) == (0, {"status": "invalid_token"})
            answer = door.say(b"\x01")
            assert answer.error_code == FAILED
            assert bad not in str(answer)
            assert door.is_closed()


def test_a_session_by_a_token_ends_with_it_and_is_prolonged_by_another(guarded: LocalCluster) -> None:
    def say(door: Door, name: str, lifetime_s: float) -> Any:
        assert door.handshake("OAUTHBEARER").error_code == 0
        return door.say(b"n,,\x01auth=Bearer " + token(name, lifetime_s=lifetime_s).encode() + b"\x01\x01")

    with Door(guarded) as door:
        answer = say(door, "bob", 0.9)
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime <= 900
        assert door.cluster_id()
        time.sleep(1)
        assert 250_000 < say(door, "bob", 300).session_lifetime <= 300_000
        assert door.cluster_id()
        assert say(door, "eve", 300).error_code == FAILED, "nobody becomes somebody else"
        assert door.is_closed()
    with Door(guarded) as door:
        say(door, "bob", 0.5)
        time.sleep(0.6)
        with pytest.raises(ConnectionError):
            door.cluster_id()


def test_a_fetch_that_waits_is_told_nothing_from_after_its_session(guarded: LocalCluster) -> None:
    plain = SimpleNamespace(kafka_port=int(guarded.bootstrap.rpartition(":")[2]))
    with Door(guarded) as door, RawConnection(plain) as writer:
        door.handshake("OAUTHBEARER")
        lifetime_ms = door.say(f"n,,\x01auth=Bearer {token(lifetime_s=1.5)}\x01\x01".encode()).session_lifetime
        end = door.fetch("numbers", 0).high_watermark
        asked = FetchRequest(
            replica_id=-1, replica_epoch=-1, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
            session_id=0, session_epoch=-1,
            topics=[FetchTopic("numbers", None, [FetchPartition(0, -1, end, -1, -1, 1 << 20)])],
        )  # fmt: skip
        door.send(1, 11, encode_fetch_request(asked, 11))
        time.sleep(lifetime_ms / 1000 + 0.2)
        assert writer.produce("numbers", batch()).error_code == 0
        _, answer = door.receive(1, 11)
        told = decode_fetch_response(answer, 0, len(answer), 11).topics[0].partitions[0]
        assert (told.error_code, told.records or b"") == (0, b"")
        with pytest.raises(ConnectionError):
            door.cluster_id()


def test_another_mechanism_does_not_prolong_a_session(guarded: LocalCluster) -> None:
    with Door(guarded) as door:
        answer = door.login()
        assert (answer.error_code, answer.session_lifetime) == (0, 0)
        assert door.handshake("SCRAM-SHA-256").error_code == ILLEGAL
        assert door.is_closed()


def test_sasl_on_a_listener_without_it_is_an_illegal_state(guarded: LocalCluster) -> None:
    port = int(guarded.bootstrap.rpartition(":")[2])
    with RawConnection(SimpleNamespace(kafka_port=port)) as connection:
        make = messages.request(HANDSHAKE, 1)
        answer = connection.ask(HANDSHAKE, 1, make.SaslHandshakeRequest(mechanism="PLAIN"))
        assert answer.error_code == ILLEGAL
        make = messages.request(AUTHENTICATE, 2)
        assert connection.ask(AUTHENTICATE, 2, make.SaslAuthenticateRequest(auth_bytes=b"")).error_code == ILLEGAL


def test_users_are_described_changed_and_deleted_each_for_itself(guarded: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap, "log_level": 0})
    described = admin.describe_user_scram_credentials().result(10)  # type: ignore[union-attr]
    assert sorted(described) == ["alice"], "the row of nobody is no user"
    assert [each.iterations for each in described["alice"].scram_credential_infos] == [4096, 4096]
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    wanted = admin.alter_user_scram_credentials(
        [
            UserScramCredentialUpsertion("carol", info, b"first"),
            UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_256),
            UserScramCredentialUpsertion("low", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4095), b"x"),
        ]
    )
    wanted["carol"].result(10)
    for name, code in (("nobody", 91), ("low", 93)):
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            wanted[name].result(10)
        assert refused.value.args[0].code() == code
    with Door(guarded) as door:
        assert door.login("carol", "first").error_code == 0
    alter(guarded, UserScramCredentialUpsertion("carol", info, b"second"))
    with Door(guarded) as door:
        assert door.login("carol", "first").error_code == FAILED
    with Door(guarded) as door:
        assert door.login("carol", "second").error_code == 0
    alter(guarded, UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256))
    with Door(guarded) as door:
        assert door.login("carol", "second").error_code == FAILED
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.describe_user_scram_credentials(["carol"])["carol"].result(10)  # type: ignore[index]
    assert refused.value.args[0].code() == 91


def test_whoever_comes_by_another_listener_than_the_brokers_is_none(guarded: LocalCluster) -> None:
    asked = FetchRequest(
        replica_id=2, replica_epoch=1, max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[],
    )  # fmt: skip
    with Door(guarded) as door:
        assert door.login().error_code == 0
        answer = door.call(1, 17, encode_fetch_request(asked, 17))
    assert decode_fetch_response(answer, 0, len(answer), 17).error_code == 31


def test_a_listener_with_mechanisms_of_its_own_takes_those_alone(guarded: LocalCluster) -> None:
    with Door(guarded, "TOKENS") as door:
        refused = door.handshake("PLAIN")
        assert (refused.error_code, list(refused.mechanisms)) == (33, ["OAUTHBEARER"])
    with Door(guarded, "TOKENS") as door:
        assert door.handshake("OAUTHBEARER").error_code == 0
        assert door.say(f"n,,\x01auth=Bearer {token()}\x01\x01".encode()).error_code == 0
        assert door.cluster_id()
    with Door(guarded) as door:
        assert set(door.handshake("PLAIN").mechanisms) == set(MECHANISMS)
