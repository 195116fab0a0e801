"""Real clients over SASL_SSL, in a cluster whose brokers log in to each other the same way."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from joserfc import jwt
from joserfc.jwk import ECKey
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from tests.certificates import Authority
from tests.clients.java_client import compiled
from tests.clients.token_endpoint import CLIENT_ID, CLIENT_SECRET, token_endpoint
from tiered.testing import LocalCluster, cluster

pytest_plugins = ["tests.certificates"]

COUNT = 50
KEY = ECKey.generate_key("P-256", {"kid": "one"})
PASSWORDS = {"alice": "secret of alice", "brokers": "swordfish of brokers"}
VALUES = [f"value {number}".encode() for number in range(COUNT)]

TOKEN_AT, ALLOWED = "sasl.oauthbearer.token.endpoint.url", "org.apache.kafka.sasl.oauthbearer.allowed"


@pytest.fixture(scope="module")
def three(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "jwks.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    (folder / "brokers").write_text(PASSWORDS["brokers"])
    settings = {
        "ssl.keystore.location": authority.sign("broker").both,
        "ssl.truststore.location": authority.pem,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/jwks.json",
        "sasl.oauthbearer.expected.audience": "tiered",
        "tiered.sasl.inter.broker.username": "brokers",
        "tiered.sasl.inter.broker.password": f"file:{folder}/brokers",
        "default.replication.factor": 3,
        "min.insync.replicas": 3,
    }
    with cluster(brokers=3, listeners={"GUARDED": "SASL_SSL"}, inter_broker_listener="GUARDED", settings=settings) as c:
        admin = AdminClient({"bootstrap.servers": c.bootstrap, "log_level": 0})
        changes = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), text.encode())
            for name, text in PASSWORDS.items()
        ]
        for answer in admin.alter_user_scram_credentials(list(changes)).values():
            answer.result(10)
        yield c


def token() -> str:
    claims = {"sub": "bob", "aud": "tiered", "exp": time.time() + 300}
    return jwt.encode({"alg": "ES256", "kid": "one"}, claims, KEY)


class TokensOfAiokafka(AiokafkaTokens):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


class TokensOfKafkaPython(KafkaPythonTokens):  # type: ignore[misc]
    def token(self) -> str:
        return token()


def confluent(c: LocalCluster, authority: Authority, topic: str, mechanism: str) -> list[bytes | None]:
    common: dict[str, Any] = {
        "bootstrap.servers": c.bootstrap_at("GUARDED"), "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "ssl.ca.location": str(authority.pem),
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        common["oauth_cb"] = lambda _: (token(), time.time() + 300)
    else:
        common |= {"sasl.username": "alice", "sasl.password": PASSWORDS["alice"]}
    producer = Producer({**common, "acks": "all"})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < COUNT:
        found += [each.value() for each in consumer.consume(COUNT, 1.0)]
    consumer.close()
    return found


def aio(c: LocalCluster, authority: Authority, topic: str, mechanism: str) -> list[bytes | None]:
    common: dict[str, Any] = {
        "bootstrap_servers": c.bootstrap_at("GUARDED"), "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice", "sasl_plain_password": PASSWORDS["alice"],
        "sasl_oauth_token_provider": TokensOfAiokafka(),
    }  # fmt: skip

    async def run() -> list[bytes | None]:
        common["ssl_context"] = create_ssl_context(cafile=str(authority.pem))
        async with AIOKafkaProducer(**common, acks="all") as producer:
            for value in VALUES:
                await producer.send(topic, value)
        async with AIOKafkaConsumer(topic, **common, group_id=topic, auto_offset_reset="earliest") as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]

    return asyncio.run(run())


def kafka_python(c: LocalCluster, authority: Authority, topic: str, mechanism: str) -> list[bytes | None]:
    common: dict[str, Any] = {
        "bootstrap_servers": c.bootstrap_at("GUARDED"), "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice", "sasl_plain_password": PASSWORDS["alice"], "ssl_cafile": str(authority.pem),
        "sasl_oauth_token_provider": TokensOfKafkaPython() if mechanism == "OAUTHBEARER" else None,
    }  # fmt: skip
    producer = KafkaProducer(**common, acks="all")
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(topic, **common, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    try:
        return [next(consumer).value for _ in VALUES]
    finally:
        consumer.close()


Client = Callable[[LocalCluster, Authority, str, str], list[bytes | None]]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("client", [confluent, aio, kafka_python], ids=lambda each: each.__name__)
def test_what_a_client_writes_it_reads(
    three: LocalCluster, authority: Authority, client: Client, mechanism: str
) -> None:
    topic = three.create_topic(partitions=2)
    assert set(client(three, authority, topic, mechanism)) == set(VALUES)


def kcat_round_trip(told: dict[str, object], command: list[str], **environment: str) -> list[bytes]:
    for name, value in told.items():
        command = [*command, "-X", f"{name}={value}"]
    env = {**os.environ, **environment}
    subprocess.run([*command, "-P"], input=b"\n".join(VALUES), check=True, timeout=60, env=env)
    consume = [*command, "-C", "-e", "-q", "-o", "0"]
    return subprocess.run(consume, stdout=subprocess.PIPE, check=True, timeout=60, env=env).stdout.splitlines()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kcat(three: LocalCluster, authority: Authority, kcat: str, mechanism: str) -> None:
    told = {
        "security.protocol": "sasl_ssl", "ssl.ca.location": authority.pem, "sasl.mechanism": mechanism,
        "sasl.username": "alice", "sasl.password": PASSWORDS["alice"],
    }  # fmt: skip
    command = [kcat, "-b", three.bootstrap_at("GUARDED"), "-t", three.create_topic()]
    assert kcat_round_trip(told, command) == VALUES


def test_kcat_with_tokens_of_an_https_address(
    three: LocalCluster, authority: Authority, kcat: str, tmp_path: Path
) -> None:
    # Debian builds librdkafka without OIDC. The one inside confluent-kafka has it, and kcat runs with that as well.
    (built_with_oidc,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*.so.1")
    (tmp_path / "librdkafka.so.1").symlink_to(built_with_oidc)
    with token_endpoint(authority.sign("issuer"), token) as url:
        told = {
            "security.protocol": "sasl_ssl", "ssl.ca.location": authority.pem, "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc", TOKEN_AT: url, "https.ca.location": authority.pem,
            "sasl.oauthbearer.client.id": CLIENT_ID, "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        }  # fmt: skip
        command = [kcat, "-b", three.bootstrap_at("GUARDED"), "-t", three.create_topic()]
        assert kcat_round_trip(told, command, LD_LIBRARY_PATH=str(tmp_path)) == VALUES


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_the_java_client(three: LocalCluster, authority: Authority, tmp_path: Path, mechanism: str) -> None:
    built = compiled("RoundTrip", tmp_path)
    topic = three.create_topic()
    told = tmp_path / "client.properties"
    kept = tmp_path / "token"
    kept.write_text(token())
    module = {
        "PLAIN": "plain.PlainLoginModule",
        "SCRAM-SHA-512": "scram.ScramLoginModule",
        "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
    }[mechanism]
    login = "" if mechanism == "OAUTHBEARER" else f'username="alice" password="{PASSWORDS["alice"]}"'
    told.write_text(
        f"bootstrap.servers={three.bootstrap_at('GUARDED')}\nsecurity.protocol=SASL_SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.pem}\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required {login};\n"
    )
    if mechanism == "OAUTHBEARER":
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        with told.open("a") as file:
            file.write(f"sasl.login.callback.handler.class={handler}\n{TOKEN_AT}={kept.as_uri()}\n")
    # The client reads tokens only from where its process may.
    allowed = [f"-D{ALLOWED}.urls={kept.as_uri()}", f"-D{ALLOWED}.files={kept}"]
    done = subprocess.run(
        ["java", *allowed, "-cp", f"{built}/*:{built}", "RoundTrip", told, topic, "100"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["read", "100", "java-0", "java-99"], done.stderr[-4000:]
