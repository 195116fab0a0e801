"""Requests to the REST API, version 3."""

import base64
import json
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pytest

from tests.broker_process import BrokerProcess

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `parts` are the JSON values of the body, one after the other."""

    status: int
    parts: Sequence[Any]

    @property
    def body(self) -> Any:
        (only,) = self.parts
        return only


def ask(broker: BrokerProcess, method: str, url: str, body: object = None) -> Answer:
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, parts_of(answer.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, parts_of(error.read()))


def parts_of(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()]


@pytest.fixture(scope="module")
def base(broker: BrokerProcess) -> str:
    """The cluster's URL."""
    return str(broker.get("/v3/clusters")["data"][0]["metadata"]["self"])


@pytest.fixture
def topic(broker: BrokerProcess, base: str, request: pytest.FixtureRequest) -> str:
    """The URL of a new topic of four partitions."""
    name = request.node.name.replace("[", "-").rstrip("]")[:200].replace("_", "-")
    made = ask(broker, "POST", base + "/topics", {"topic_name": name, "partitions_count": 4})
    assert made.status == 201
    return str(made.body["metadata"]["self"])


def records_in(broker: BrokerProcess, topic_url: str) -> list[confluent_kafka.Message]:
    """Everything in the topic, as a Kafka client reads it."""
    name = topic_url.rpartition("/")[2]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.partition.eof": True}
    )
    partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
    consumer.assign([confluent_kafka.TopicPartition(name, number, 0) for number in partitions])
    found: list[confluent_kafka.Message] = []
    at_end: set[int | None] = set()
    while len(at_end) < len(partitions):
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            at_end.add(message.partition())
    consumer.close()
    return found


def text(data: str | None) -> dict[str, Any]:
    return {"type": "STRING", "data": data}


def binary(data: bytes) -> dict[str, Any]:
    return {"type": "BINARY", "data": base64.b64encode(data).decode()}
