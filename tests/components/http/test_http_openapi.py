"""HTTP is what its own document says: every route is in it, and every answer is as it promises.

Schemathesis makes the requests: some as the document allows, some that break it, all from one fixed seed.
"""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
import jsonschema
import pytest
import schemathesis
from confluent_kafka import admin
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.broker_process import BrokerProcess
from tests.support.transactional_producers import begun
from tiered.server.http.messages.openapi import template_of
from tiered.server.http.messages.route import Route
from tiered.server.http.routes import ROUTES

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
TOPIC, GROUP, TRANSACTIONAL_ID = "orders", "readers", "payments"
# A stream ends when its client goes, and these clients wait for the end: its tests are in test_http_tail.
FUZZED = [route for route in ROUTES if route.has_deadline]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own: settings are changed at random, and topics are created until no more are allowed."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("fuzzed") / "data", settings={"tiered.max.partitions": 60, "num.partitions": 2}
    ).start()
    yield process
    assert process.stop() == 0
    unforeseen = [line for line in process.log().splitlines() if "unforeseen" in line or "Traceback" in line]
    assert not unforeseen, unforeseen


@pytest.fixture(scope="module")
def document(fuzzed: BrokerProcess) -> Any:
    return fuzzed.get("/openapi.json")


@pytest.fixture(scope="module")
def schema(document: Any) -> Any:
    return schemathesis.openapi.from_dict(document)


@pytest.fixture
def names(fuzzed: BrokerProcess) -> Mapping[str, Any]:
    """Path parameters that lead somewhere: the topic and the group are there, whatever the last test deleted."""
    client = admin.AdminClient({"bootstrap.servers": fuzzed.bootstrap})
    if TOPIC not in client.list_topics(timeout=30).topics:
        client.create_topics([admin.NewTopic(TOPIC, 3)])[TOPIC].result(30)
        producer = confluent_kafka.Producer({"bootstrap.servers": fuzzed.bootstrap})
        for number in range(30):
            producer.produce(TOPIC, key=str(number), value=b"\xff\x00 not UTF-8")
        assert producer.flush(30) == 0
    partition = confluent_kafka.TopicPartition(TOPIC, 0, 3)
    client.alter_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(GROUP, [partition])])[
        GROUP
    ].result(30)
    begun(fuzzed.bootstrap, TRANSACTIONAL_ID, TOPIC)
    cluster_id = fuzzed.get("/v3/clusters")["data"][0]["cluster_id"]
    return {
        "cluster_id": cluster_id,
        "topic": TOPIC,
        "topic_name": TOPIC,
        "partition": 0,
        "partition_id": 0,
        "broker_id": 1,
        "group": GROUP,
        "consumer_group_id": GROUP,
        "transactional_id": TRANSACTIONAL_ID,
        "name": "retention.ms",
    }


def test_every_route_that_is_served_is_in_the_document_and_no_other(document: Any) -> None:
    described = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
    assert described == {(route.method, template_of(route.path)) for route in ROUTES}
    assert len(described) == len(ROUTES), "a route stands twice"


def test_every_placeholder_of_a_path_is_a_documented_parameter(document: Any) -> None:
    for path, operations in document["paths"].items():
        wanted = {piece.strip("{}") for piece in path.split("/") if piece.startswith("{")}
        for operation in operations.values():
            found = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
            assert found == wanted, path


def test_the_document_is_valid_openapi_with_ids_of_its_own(document: Any) -> None:
    from openapi_spec_validator import validate

    validate(document)
    ids = [operation["operationId"] for operations in document["paths"].values() for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            body = operation.get("requestBody")
            if body is not None:
                jsonschema.Draft202012Validator.check_schema(body["content"]["application/json"]["schema"]), path


@pytest.mark.parametrize("route", FUZZED, ids=lambda route: f"{route.method} {route.path}")
def test_every_answer_is_as_the_document_promises(
    fuzzed: BrokerProcess, schema: Any, names: Mapping[str, Any], route: Route
) -> None:
    """Also: nothing that breaks the document is taken, and nothing that anybody sends makes the broker fail."""
    operation = schema[template_of(route.path)][route.method]
    given_names = {each.name: names[each.name] for each in route.parameters if each.name in names and each.is_required}

    def run(strategy: Any, checks: list[Any], examples: int) -> None:
        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy)
        def ask(case: Any) -> None:
            case.call_and_validate(base_url=fuzzed.http, checks=checks, timeout=20)

        ask()

    few = settings().max_examples // 5
    takes_input = bool(route.parameters or route.body)
    run(operation.as_strategy(path_parameters=given_names or None), CHECKS, few if takes_input else 1)
    if given_names:
        run(operation.as_strategy(), CHECKS, few // 2)
    if route.body is not None or any(each.where == "query" for each in route.parameters):
        negative = operation.as_strategy(GenerationMode.NEGATIVE, path_parameters=given_names or None)
        run(negative, [*CHECKS, negative_data_rejection], few)


def test_a_body_that_breaks_the_schema_is_refused_and_the_message_says_where(fuzzed: BrokerProcess) -> None:
    asked = urllib.request.Request(
        fuzzed.http + "/api/v1/topics", method="POST", data=json.dumps({"name": "x", "partitions": "three"}).encode()
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=30)
    assert refused.value.code == 400
    assert "partitions" in json.load(refused.value)["message"]
