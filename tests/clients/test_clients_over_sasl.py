"""Real clients over SASL_SSL, in a cluster whose brokers log in to each other the same way."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

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
from tiered.testing import LocalCluster, cluster

COUNT = 50
KEY = ECKey.generate_key("P-256", {"kid": "one"})
PASSWORDS = {"alice": "secret of alice", "brokers": "swordfish of brokers"}
VALUES = [f"value {number}".encode() for number in range(COUNT)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


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
