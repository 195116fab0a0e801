"""What a read replica does not do is refused by every door of it, in words, and in the form that clients expect."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.read_replicas import ReplicaThread
from tests.support.some_requests import codes_in, some_request
from tests.unit.cold.stored_segments import PARTITION, TOPIC
from tests.unit.cold.verified_store import RECORDS, make_store
from tiered.server.http.routes import ROUTES
from tiered.server.kafka.apis import replica_apis, served_apis
from tiered.server.kafka.dispatch import Refused
from tiered.wire import messages

POLICY_VIOLATION, CLUSTER_AUTHORIZATION_FAILED = 44, 31
UNSUPPORTED_VERSION = 35
CREATE_TOPICS, INIT_PRODUCER_ID, FIND_COORDINATOR, OFFSET_FETCH = 19, 22, 10, 9
FETCH, PRODUCE = 1, 0
APIS = {each.key: each for each in replica_apis() if each.key not in (FETCH, PRODUCE)}
"""Which of them may not be answered says `test_rows_of_apis`, by the rights that they need."""
OF_BROKERS = [(each.key, each.versions[1]) for each in served_apis() if each.on_replica is None]


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaThread]:
    root = tmp_path_factory.mktemp("replica")
    (root / "logs").mkdir()
    made = make_store(root / "bucket", root / "logs", segments=2)
    with ReplicaThread(root / "data", made.store) as running:
        yield running


@pytest.mark.parametrize("api_key", APIS, ids=lambda key: APIS[key].name)
def test_every_version_of_every_api_is_answered_and_what_changes_anything_is_refused(
    replica: ReplicaThread, api_key: int
) -> None:
    api = APIS[api_key]
    refused = POLICY_VIOLATION if api_key != INIT_PRODUCER_ID else CLUSTER_AUTHORIZATION_FAILED
    with RawConnection(replica) as connection:
        for version in range(api.versions[0], api.versions[1] + 1):
            codes = []
            for seed in range(5):
                body = some_request(api_key, version, random.Random(1000 * version + seed))
                answer = connection.call(api_key, version, body)
                codes += codes_in(messages.response_decoder(api_key, version)(answer, 0))
            if isinstance(api.on_replica, Refused):
                assert codes, (api.name, version)
                assert set(codes) == {refused}, (api.name, version)


@pytest.mark.parametrize(("api_key", "version"), OF_BROKERS)
def test_what_a_replica_does_not_serve_is_answered_where_the_client_can_read_it(
    replica: ReplicaThread, api_key: int, version: int
) -> None:
    with RawConnection(replica) as connection:
        answer = connection.call(api_key, version, some_request(api_key, version, random.Random(3)))
    assert set(codes_in(messages.response_decoder(api_key, version)(answer, 0))) == {UNSUPPORTED_VERSION}


def test_records_are_refused_with_words_that_say_whom_to_ask(replica: ReplicaThread) -> None:
    with RawConnection(replica) as connection:
        answer = connection.produce(TOPIC, batch([b"x"]), partition=PARTITION)
        assert answer.error_code == POLICY_VIOLATION
        assert "read replica of file://" in (answer.error_message or "")
        assert "Ask the brokers that write this bucket" in (answer.error_message or "")
        assert connection.fetch(TOPIC, 0, partition=PARTITION).high_watermark == 2 * RECORDS


def test_records_that_want_no_answer_end_the_connection(replica: ReplicaThread) -> None:
    with RawConnection(replica) as connection:
        with pytest.raises(ConnectionError):
            connection.produce(TOPIC, batch([b"x"]), partition=PARTITION, acks=0)


def test_a_topic_is_refused_with_words(replica: ReplicaThread) -> None:
    request = messages.request(CREATE_TOPICS, 5)
    new = request.CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=(), configs=())
    with RawConnection(replica) as connection:
        answer = connection.ask(CREATE_TOPICS, 5, request.CreateTopicsRequest(topics=(new,))).topics[0]
    assert answer.error_code == POLICY_VIOLATION
    assert "--read-only" in answer.error_message


def test_the_next_request_of_a_fetch_session_finds_none_and_a_full_one_is_answered(replica: ReplicaThread) -> None:
    wanted = [(TOPIC, PARTITION, 0, -1, 100)]
    with RawConnection(replica) as connection:
        unknown = connection.fetch_many(wanted, session_id=7, session_epoch=1)
        assert (unknown.error_code, unknown.topics) == (70, [])
        for session_id in (0, -1, 7):
            full = connection.fetch_many(wanted, session_id=session_id, session_epoch=-1)
            assert (full.error_code, full.session_id) == (0, 0)
            assert full.topics[0].partitions[0].records


# HTTP


def test_the_http_door_tells_how_old_the_view_is_and_what_is_in_the_bucket(replica: ReplicaThread) -> None:
    status, health = replica.ask("/readyz")
    assert status == 200
    assert (health["serving"], health["read_only"], health["cluster_id"]) == (True, True, "cluster-1")
    assert health["view_age_ms"] >= 0
    assert replica.ask("/healthz") == (200, {"status": "alive"})
    found = replica.ask("/api/v1/topics")[1]["topics"]
    assert [(each["topic"], each["partition_count"], each["record_count"]) for each in found] == [
        (TOPIC, PARTITION + 1, 2 * RECORDS)
    ]
    topic = replica.ask(f"/api/v1/topics/{TOPIC}")[1]
    assert topic["partitions"][PARTITION]["cold_end_offset"] == 2 * RECORDS
    assert "retention.ms" in {each["name"] for each in topic["configs"]}
    segments = replica.ask(f"/api/v1/topics/{TOPIC}/partitions/{PARTITION}/segments?start_offset={RECORDS}")[1]
    assert [(each["base_offset"], each["tier"]) for each in segments["segments"]] == [(RECORDS, "cold")]
    assert segments["high_watermark"] == 2 * RECORDS
    assert replica.ask("/api/v1/topics/none")[0] == 404


def test_records_are_shown_page_by_page(replica: ReplicaThread) -> None:
    def page(query: str) -> tuple[list[int], int, bool]:
        status, found = replica.ask(f"/api/v1/topics/{TOPIC}/records?partition={PARTITION}&{query}")
        assert status == 200, found
        assert all(each["value"]["base64"] for each in found["records"])
        return [each["offset"] for each in found["records"]], found["next_offset"], found["is_end"]

    assert page("offset=230&limit=20") == (list(range(230, 250)), 250, False)
    assert page("offset=-3") == ([477, 478, 479], 480, True)
    assert page("offset=latest") == ([], 480, True)
    assert page("timestamp_ms=1100&limit=1") == ([100], 101, False)
    status, refused = replica.ask(f"/api/v1/topics/{TOPIC}/records?partition={PARTITION}&offset=481")
    assert status == 416
    assert "0 to 480" in refused["message"]


def test_every_other_route_of_a_broker_is_refused_as_read_only(replica: ReplicaThread) -> None:
    served = {
        (method, path) for path, methods in replica.ask("/openapi.json")[1]["paths"].items() for method in methods
    }
    refused = 0
    for route in ROUTES:
        if (route.method.lower(), route.path) in served or ":" in route.path:
            continue
        path = route.path.replace("{partition}", "3")
        for name in ("topic", "group", "snapshot", "pin", "broker", "cluster", "name"):
            path = path.replace(f"{{{name}}}", "orders")
        if "{" in path:
            continue
        status, body = replica.ask(path, method=route.method)
        assert status == 403, (route.method, path, body)
        assert "read replica" in body["message"]
        refused += 1
    assert refused > 20


def test_metrics_say_how_old_the_view_is(replica: ReplicaThread, tmp_path: Path) -> None:
    import urllib.request

    replica.look()
    with urllib.request.urlopen(f"http://127.0.0.1:{replica.http_port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["tiered_read_replica_view_age_seconds"]) < 60
    assert float(values["tiered_read_replica_refreshes_total"]) >= 2
    assert float(values["tiered_cold_bytes"]) > 0
