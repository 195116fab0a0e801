"""Confluent's REST v3: the shapes that kafka-rest's clients read, and producing through them."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka

from tests.broker_process import BrokerProcess
from tests.components.http.v3 import ask, base, text, topic

__all__ = ["base", "topic"]


def links_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ("related", "self"):
                yield each
            else:
                yield from links_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from links_of(each)


# Shapes


def test_a_cluster_has_the_kind_the_name_and_the_links_of_kafka_rest(broker: BrokerProcess, base: str) -> None:
    listed = ask(broker, "GET", broker.http + "/v3/clusters").body
    assert listed["kind"] == "KafkaClusterList"
    assert listed["metadata"] == {"self": broker.http + "/v3/clusters", "next": None}
    (cluster,) = listed["data"]
    cluster_id = cluster["cluster_id"]
    assert cluster == {
        "kind": "KafkaCluster",
        "metadata": {"self": base, "resource_name": f"crn:///kafka={cluster_id}"},
        "cluster_id": cluster_id,
        "controller": {"related": f"{base}/brokers/1"},
        "acls": {"related": f"{base}/acls"},
        "brokers": {"related": f"{base}/brokers"},
        "broker_configs": {"related": f"{base}/broker-configs"},
        "consumer_groups": {"related": f"{base}/consumer-groups"},
        "topics": {"related": f"{base}/topics"},
        "partition_reassignments": {"related": f"{base}/topics/-/partitions/-/reassignment"},
    }
    (brokers,) = ask(broker, "GET", f"{base}/brokers").body["data"]
    assert (brokers["kind"], brokers["broker_id"]) == ("KafkaBroker", 1)
    assert (brokers["host"], brokers["port"]) == ("127.0.0.1", broker.kafka_port)


def test_every_link_leads_to_what_it_names(broker: BrokerProcess, base: str, topic: str) -> None:
    """But for ACLs and reassignments, which are not served: their links are part of the shapes."""
    seen: set[str] = set()
    wanted = [broker.http + "/v3/clusters"]
    while wanted:
        url = wanted.pop()
        if url in seen or url.endswith(("/acls", "/reassignment")) or "/configs/" in url:
            continue
        seen.add(url)
        answer = ask(broker, "GET", url)
        assert answer.status == 200, url
        assert answer.body["metadata"]["self"] == url
        wanted += links_of(answer.body)
    assert f"{topic}/partitions/3/replicas/1" in seen
    assert f"{base}/consumer-groups" in seen


def test_a_topic_is_created_grown_and_deleted(broker: BrokerProcess, base: str) -> None:
    new = {
        "topic_name": "life",
        "partitions_count": 2,
        "replication_factor": 1,
        "configs": [{"name": "retention.ms", "value": "123456"}],
    }
    assert ask(broker, "POST", f"{base}/topics", {**new, "validate_only": True}).status == 200
    assert ask(broker, "GET", f"{base}/topics/life").status == 404
    made = ask(broker, "POST", f"{base}/topics", new)
    assert made.status == 201
    assert (made.body["kind"], made.body["topic_name"], made.body["partitions_count"]) == ("KafkaTopic", "life", 2)
    assert made.body["metadata"]["resource_name"].endswith("/topic=life")
    assert ask(broker, "GET", f"{base}/topics/life/configs/retention.ms").body["value"] == "123456"
    again = ask(broker, "POST", f"{base}/topics", new)
    assert (again.status, again.body["error_code"]) == (400, 40002)
    grown = ask(broker, "PATCH", f"{base}/topics/life", {"partitions_count": 3})
    assert grown.body["partitions_count"] == 3
    assert len(ask(broker, "GET", f"{base}/topics/life/partitions").body["data"]) == 3
    assert ask(broker, "PATCH", f"{base}/topics/life", {"partitions_count": 3}).body["error_code"] == 40002
    assert ask(broker, "DELETE", f"{base}/topics/life").status == 204
    gone = ask(broker, "GET", f"{base}/topics/life")
    assert (gone.status, gone.body["error_code"]) == (404, 40403)


def test_configs_are_set_altered_and_reset(broker: BrokerProcess, base: str, topic: str) -> None:
    one = f"{topic}/configs/retention.ms"
    assert ask(broker, "GET", one).body["source"] == "DEFAULT_CONFIG"
    assert ask(broker, "PUT", one, {"value": "5000"}).status == 204
    entry = ask(broker, "GET", one).body
    assert (entry["value"], entry["is_default"], entry["source"]) == ("5000", False, "DYNAMIC_TOPIC_CONFIG")
    assert entry["has_effect"]
    assert not ask(broker, "GET", f"{topic}/configs/preallocate").body["has_effect"]
    assert entry["synonyms"][0]["source"] == "DYNAMIC_TOPIC_CONFIG"
    steps = [{"name": "retention.ms", "operation": "DELETE"}, {"name": "segment.ms", "value": "60000"}]
    assert (
        ask(broker, "POST", f"{topic}/configs:alter", {"data": [*steps, {"name": "no.such", "value": "1"}]}).status
        == 400
    )
    assert ask(broker, "GET", one).body["value"] == "5000", "all or nothing"
    assert ask(broker, "POST", f"{topic}/configs:alter", {"data": steps, "validate_only": True}).status == 204
    assert ask(broker, "GET", one).body["value"] == "5000"
    assert ask(broker, "POST", f"{topic}/configs:alter", {"data": steps}).status == 204
    assert ask(broker, "GET", one).body["is_default"]
    assert ask(broker, "DELETE", f"{topic}/configs/segment.ms").status == 204
    assert ask(broker, "PUT", f"{base}/brokers/1/configs/num.partitions", {"value": "3"}).status == 204
    entry = ask(broker, "GET", f"{base}/brokers/1/configs/num.partitions").body
    assert (entry["value"], entry["source"]) == ("3", "DYNAMIC_BROKER_CONFIG")
    assert ask(broker, "DELETE", f"{base}/brokers/1/configs/num.partitions").status == 204
    assert ask(broker, "PUT", f"{base}/broker-configs/num.partitions", {"value": "4"}).status == 204
    (entry,) = ask(broker, "GET", f"{base}/broker-configs").body["data"]
    assert (entry["kind"], entry["name"], entry["value"]) == ("KafkaClusterConfig", "num.partitions", "4")
    assert ask(broker, "DELETE", f"{base}/broker-configs/num.partitions").status == 204


def test_what_is_not_there_is_404_with_the_codes_of_kafka_rest(broker: BrokerProcess, base: str, topic: str) -> None:
    for url, code in (
        (broker.http + "/v3/clusters/another", 404),
        (f"{base}/brokers/77", 404),
        (f"{base}/topics/nothing", 40403),
        (f"{topic}/partitions/4", 40403),
        (f"{topic}/partitions/0/replicas/2", 404),
        (f"{topic}/configs/no.such.config", 404),
        (f"{base}/consumer-groups/nobody", 404),
    ):
        answer = ask(broker, "GET", url)
        assert (answer.status, answer.body["error_code"]) == (404, code), url
        assert answer.body["message"]


def test_groups_show_their_consumers_and_lags(broker: BrokerProcess, base: str, topic: str) -> None:
    name = topic.rpartition("/")[2]
    for number in range(10):
        assert (
            ask(broker, "POST", f"{topic}/records", {"partition_id": number % 2, "value": text(str(number))}).status
            == 200
        )
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "v3 readers/ä",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([name])
    assert consumer.poll(30) is not None
    consumer.commit(
        offsets=[confluent_kafka.TopicPartition(name, 0, 2), confluent_kafka.TopicPartition(name, 1, 5)],
        asynchronous=False,
    )
    group = next(
        each["metadata"]["self"]
        for each in ask(broker, "GET", f"{base}/consumer-groups").body["data"]
        if each["consumer_group_id"] == "v3 readers/ä"
    )
    shown = ask(broker, "GET", group).body
    assert (shown["kind"], shown["state"], shown["is_simple"]) == ("KafkaConsumerGroup", "STABLE", False)
    assert shown["partition_assignor"] == "range"
    (member,) = ask(broker, "GET", f"{group}/consumers").body["data"]
    assert (member["kind"], member["client_id"]) == ("KafkaConsumer", "reader")
    assigned = ask(broker, "GET", member["assignments"]["related"]).body["data"]
    assert [each["partition_id"] for each in assigned] == [0, 1, 2, 3]
    lags = {each["partition_id"]: each for each in ask(broker, "GET", f"{group}/lags").body["data"]}
    assert (lags[0]["current_offset"], lags[0]["log_end_offset"], lags[0]["lag"]) == (2, 5, 3)
    assert lags[1]["lag"] == 0
    assert lags[0]["consumer_id"] == member["consumer_id"]
    assert ask(broker, "GET", lags[0]["metadata"]["self"]).body == lags[0]
    summary = ask(broker, "GET", f"{group}/lag-summary").body
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (3, 3, 0)
    assert ask(broker, "DELETE", group).status == 409
    consumer.close()
    assert ask(broker, "GET", group).body["state"] == "EMPTY"
    assert ask(broker, "DELETE", group).status == 204
    assert ask(broker, "GET", group).status == 404


# Producing
