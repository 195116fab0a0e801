"""Real clients over TLS, with certificates of their own, in a cluster whose brokers use the same among themselves."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.certificates import Authority, Shown
from tests.clients.java_client import compiled
from tiered.testing import LocalCluster, cluster

pytest_plugins = ["tests.certificates"]

COUNT = 200
LISTENERS = ("SECURE", "MUTUAL")


@pytest.fixture(scope="module")
def alice(authority: Authority) -> Shown:
    return authority.sign("alice")


@pytest.fixture(scope="module")
def three(authority: Authority) -> Iterator[LocalCluster]:
    settings = {
        "ssl.keystore.location": authority.sign("broker").both,
        "ssl.truststore.location": authority.pem,
        "listener.name.mutual.ssl.client.auth": "required",
        "tiered.broker.principals": "User:CN=b*,O=Example",
    }
    listeners = {"SECURE": "SSL", "MUTUAL": "SSL"}
    with cluster(brokers=3, listeners=listeners, inter_broker_listener="MUTUAL", settings=settings) as c:
        yield c


def values(who: str) -> list[bytes]:
    return [f"{who}-{number}".encode() for number in range(COUNT)]


@pytest.mark.parametrize("listener", LISTENERS)
def test_confluent_kafka(three: LocalCluster, authority: Authority, alice: Shown, listener: str) -> None:
    topic = three.create_topic(partitions=3)
    common = {
        "bootstrap.servers": three.bootstrap_at(listener),
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.pem),
    }
    if listener == "MUTUAL":
        common |= {"ssl.certificate.location": str(alice.chain), "ssl.key.location": str(alice.key)}
    producer = Producer({**common, "acks": "all"})
    for value in values("confluent"):
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer({**common, "group.id": f"confluent-{listener}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < COUNT:
        found += [each.value() for each in consumer.consume(COUNT, 1.0)]
    consumer.close()
    assert set(found) == set(values("confluent"))


@pytest.mark.parametrize("listener", LISTENERS)
async def test_aiokafka(three: LocalCluster, authority: Authority, alice: Shown, listener: str) -> None:
    topic = await asyncio.to_thread(three.create_topic, partitions=3)
    shown = {"certfile": str(alice.chain), "keyfile": str(alice.key)} if listener == "MUTUAL" else {}
    common: dict[str, Any] = {
        "bootstrap_servers": three.bootstrap_at(listener),
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(cafile=str(authority.pem), **shown),
    }
    async with AIOKafkaProducer(**common, acks="all") as producer:
        for value in values("aiokafka"):
            await producer.send(topic, value)
    async with AIOKafkaConsumer(
        topic, **common, group_id=f"aiokafka-{listener}", auto_offset_reset="earliest"
    ) as consumer:
        found = [(await consumer.getone()).value for _ in range(COUNT)]
    assert sorted(found) == sorted(values("aiokafka"))


@pytest.mark.parametrize("listener", LISTENERS)
def test_kafka_python(three: LocalCluster, authority: Authority, alice: Shown, listener: str) -> None:
    topic = three.create_topic(partitions=1)
    common: dict[str, Any] = {
        "bootstrap_servers": three.bootstrap_at(listener).split(","),
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.pem),
    }
    if listener == "MUTUAL":
        common |= {"ssl_certfile": str(alice.chain), "ssl_keyfile": str(alice.key)}
    producer = KafkaProducer(**common, acks="all")
    for value in values("kafka-python"):
        producer.send(topic, value)
    producer.close()
    consumer = KafkaConsumer(**common, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    consumer.assign([TopicPartition(topic, 0)])
    found = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    assert found == values("kafka-python")


def test_kcat(three: LocalCluster, authority: Authority, alice: Shown, kcat: str) -> None:
    topic = three.create_topic()
    told = {
        "security.protocol": "ssl",
        "ssl.ca.location": authority.pem,
        "ssl.certificate.location": alice.chain,
        "ssl.key.location": alice.key,
    }
    command = [kcat, "-b", three.bootstrap_at("MUTUAL"), "-t", topic]
    for name, value in told.items():
        command += ["-X", f"{name}={value}"]
    subprocess.run([*command, "-P"], input=b"\n".join(values("kcat")), check=True, timeout=60)
    done = subprocess.run([*command, "-C", "-e", "-q", "-o", "0"], capture_output=True, check=True, timeout=60)
    assert done.stdout.splitlines() == values("kcat")


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_the_java_client(three: LocalCluster, authority: Authority, alice: Shown, tmp_path: Path) -> None:
    built = compiled("RoundTrip", tmp_path)
    topic = three.create_topic()
    told = tmp_path / "client.properties"
    told.write_text(
        f"bootstrap.servers={three.bootstrap_at('MUTUAL')}\nsecurity.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.pem}\nssl.keystore.type=PEM\nssl.keystore.location={alice.both}\n"
    )
    done = subprocess.run(
        ["java", "-cp", f"{built}/*:{built}", "RoundTrip", told, topic, "100"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["read", "100", "java-0", "java-99"], done.stderr[-4000:]


def test_replicas_follow_over_the_listener_of_the_brokers(three: LocalCluster, authority: Authority) -> None:
    topic = three.create_topic(partitions=3, configs={"min.insync.replicas": 3})
    producer = Producer({
        "bootstrap.servers": three.bootstrap_at("SECURE"), "security.protocol": "SSL",
        "ssl.ca.location": str(authority.pem), "acks": "all",
    })  # fmt: skip
    failures: list[Any] = []
    for value in values("replicated"):
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failures == []
