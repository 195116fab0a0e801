"""Topics over HTTP: listed, created, configured and deleted, with the same checks as on the wire."""

import time
from collections.abc import Callable

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.http_api import ask
from tests.components.tiers import create, fill, read

COLD = {"remote_copy_lag_ms": 0, "segment_bytes": 4000, "local_retention_bytes": 1}


def test_cluster_names_its_broker_and_counts_what_it_holds(broker: BrokerProcess) -> None:
    create(broker, "cluster-topic", 3)
    fill(broker, "cluster-topic", 2)
    found = ask(broker, "GET", "/cluster").body
    (only,) = found["brokers"]
    assert (only["port"], only["http_port"]) == (broker.kafka_port, broker.http_port)
    assert only["broker_id"] == found["controller_id"] == 1
    assert only["serving"]
    assert only["is_controller"]
    assert found["health"]["serving"]
    assert found["totals"]["partitions"] >= 3
    assert found["totals"]["local_bytes"] >= 3800
    assert found["totals"]["produced_bytes"] >= 3800


def test_created_topic_has_the_partitions_and_configs_that_were_asked_for(broker: BrokerProcess) -> None:
    wanted = {"name": "made", "partitions": 3, "configs": {"retention.ms": 86_400_000, "preallocate": True}}
    made = ask(broker, "POST", "/topics", wanted)
    assert made.status == 201
    found = ask(broker, "GET", "/topics/made")
    assert found.status == 200
    assert found.body == made.body
    assert [each["partition"] for each in found.body["partitions"]] == [0, 1, 2]
    assert all(each["leader"] == 1 and each["isr"] == each["replicas"] == [1] for each in found.body["partitions"])
    configs = {each["name"]: each for each in found.body["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("86400000", "DYNAMIC_TOPIC")
    assert configs["preallocate"]["value"] == "true"
    assert [configs[each]["has_effect"] for each in ("preallocate", "retention.ms")] == [False, True]
    assert configs["cleanup.policy"]["allowed"] == ["delete", "compact"]
    assert configs["segment.bytes"]["is_default"]
    assert configs["segment.bytes"]["documentation"]
    assert "made" in [each["topic"] for each in ask(broker, "GET", "/topics").body["topics"]]


def test_validate_only_creates_nothing(broker: BrokerProcess) -> None:
    assert ask(broker, "POST", "/topics", {"name": "imagined", "validate_only": True}).status == 200
    assert ask(broker, "GET", "/topics/imagined").status == 404


@pytest.mark.parametrize(
    ("body", "status", "names"),
    [
        ({"name": "a/b"}, 400, "a-z"),
        ({"name": ""}, 400, "name"),
        ({}, 400, "name"),
        ([], 400, "object"),
        ({"name": "bad", "partitions": 0}, 400, "partitions"),
        ({"name": "bad", "partitions": 10_001}, 400, "partitions"),
        ({"name": "bad", "partitions": "3"}, 400, "partitions"),
        ({"name": "bad", "partitions": True}, 400, "partitions"),
        ({"name": "bad", "replication_factor": 3}, 400, "replication factor"),
        ({"name": "bad", "configs": {"retention.ms": "soon"}}, 400, "retention.ms"),
        ({"name": "bad", "configs": {"retention.mss": "5"}}, 400, "retention.ms"),
        ({"name": "bad", "configs": {"retention.ms": None}}, 400, "retention.ms"),
        ({"name": "bad", "configs": {"follower.replication.throttled.replicas": "\ud800"}}, 400, "surrogate"),
        ({"name": "bad", "configs": {"follower.replication.throttled.replicas": "a\0b"}}, 400, "printed"),
        ({"name": "bad", "color": "red"}, 400, "color"),
        ({"name": "bad", "validate_only": "yes"}, 400, "validate_only"),
        ({"name": "__consumer_offsets"}, 409, "exists"),
    ],
)
def test_refused_topic_is_not_created_and_told_why(
    broker: BrokerProcess, body: object, status: int, names: str
) -> None:
    answer = ask(broker, "POST", "/topics", body)
    assert answer.status == status
    assert names in answer.message
    assert ask(broker, "GET", "/topics/bad").status == 404


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b'{"name": NaN}', b"[" * 100_000, b'{"name":"a","name":"b"}'])
def test_body_that_is_no_json_is_refused(broker: BrokerProcess, raw: bytes) -> None:
    answer = ask(broker, "POST", "/topics", raw=raw)
    assert answer.status == 400
    assert answer.message


def test_configs_are_set_and_reset_together_or_not_at_all(broker: BrokerProcess) -> None:
    ask(broker, "POST", "/topics", {"name": "altered", "configs": {"segment.ms": 60_000}})

    def configs() -> dict[str, str]:
        found = ask(broker, "GET", "/topics/altered").body["configs"]
        return {each["name"]: each["value"] for each in found if not each["is_default"]}

    change = {"set": {"retention.ms": "3600000", "max.message.bytes": 5000}, "reset": ["segment.ms"]}
    answer = ask(broker, "PATCH", "/topics/altered/configs", change)
    assert answer.status == 200
    assert configs() == {"retention.ms": "3600000", "max.message.bytes": "5000"}
    assert configs() == {each["name"]: each["value"] for each in answer.body["configs"] if not each["is_default"]}
    for refused in (
        {"set": {"retention.ms": "1", "segment.bytes": "none"}},
        {"set": {"retention.ms": "1"}, "reset": ["retention.ms"]},
        {"reset": ["no.such.config"]},
        {"set": {"retention.ms": "1"}, "validate_only": 1},
        {},
    ):
        assert ask(broker, "PATCH", "/topics/altered/configs", refused).status == 400
    checked = {"set": {"retention.ms": "1"}, "validate_only": True}
    assert ask(broker, "PATCH", "/topics/altered/configs", checked).status == 200
    assert configs() == {"retention.ms": "3600000", "max.message.bytes": "5000"}


def test_deleted_topic_is_gone_and_the_internal_one_stays(broker: BrokerProcess) -> None:
    ask(broker, "POST", "/topics", {"name": "doomed"})
    assert ask(broker, "DELETE", "/topics/doomed").status == 204
    assert ask(broker, "DELETE", "/topics/doomed").status == 404
    assert ask(broker, "GET", "/topics/doomed").status == 404
    assert ask(broker, "DELETE", "/topics/__consumer_offsets").status == 400
    assert ask(broker, "GET", "/topics/__consumer_offsets").body["internal"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/none/partitions/0/segments", 404),
        ("/topics/seen/partitions/1/segments", 404),
        ("/topics/seen/partitions/-1/segments", 400),
        ("/topics/seen/partitions/x/segments", 400),
        ("/topics/seen/partitions/99999999999/segments", 400),
        ("/topics/seen/partitions/0/segments?start_offset=-1", 400),
        ("/topics/seen/partitions/0/segments?start_offset=x", 400),
        ("/topics/a%20b", 400),
        ("/topics/%FF", 400),
        ("/nothing", 404),
    ],
)
def test_path_that_means_nothing_is_refused_with_a_reason(broker: BrokerProcess, path: str, status: int) -> None:
    create(broker, "seen")
    answer = ask(broker, "GET", path)
    assert answer.status == status
    assert answer.message


def test_cost_follows_the_bytes_and_the_prices(make_broker: Callable[..., BrokerProcess]) -> None:
    prices = {"tiered.price.cold.usd.per.gib.month": 1_000_000, "tiered.price.local.usd.per.gib.month": 0}
    broker = make_broker(settings={"tiered.upload.interval.ms": 50, **prices}).start()
    create(broker, "paid", **COLD)
    fill(broker, "paid", 9)
    cold_end = broker.segments("paid")["segments"][-1]["base_offset"]
    broker.wait_cold("paid", end_offset=cold_end)
    found = ask(broker, "GET", "/cost").body
    assert found["prices"]["cold_usd_per_gib_month"] == 1_000_000
    (paid,) = (each for each in found["topics"] if each["topic"] == "paid")
    assert paid["cold_bytes"] == ask(broker, "GET", "/topics/paid").body["cold_bytes"] > 0
    assert paid["storage_usd_per_month"] == pytest.approx(paid["cold_bytes"] / 2**30 * 1_000_000)
    assert paid["local_usd_per_month"] == 0
    assert paid["total_usd_per_month"] == paid["storage_usd_per_month"]


def test_cost_tells_the_size_on_disk_that_the_topic_tells(broker: BrokerProcess) -> None:
    """Not that of the last report to SQL, which comes every few seconds."""
    create(broker, "weighed")
    fill(broker, "weighed", 9)
    (weighed,) = (each for each in ask(broker, "GET", "/cost").body["topics"] if each["topic"] == "weighed")
    assert weighed["local_bytes"] == ask(broker, "GET", "/topics/weighed").body["local_bytes"] > 0


def test_a_topic_tells_its_rates_its_last_write_and_its_retention(broker: BrokerProcess) -> None:
    create(broker, "flowing", 2, retention_ms=604_800_000, local_retention_ms=-2, retention_bytes=1 << 30)
    empty = ask(broker, "GET", "/topics/flowing").body
    assert (empty["last_write_ms"], empty["records_in_per_s"], empty["bytes_out_per_s"]) == (None, 0, 0)
    before_ms = time.time() * 1000
    fill(broker, "flowing", 9)
    read(broker, "flowing")
    shown = ask(broker, "GET", "/topics/flowing").body
    (listed,) = (topic for topic in ask(broker, "GET", "/topics").body["topics"] if topic["topic"] == "flowing")
    assert shown["records_in_per_s"] > 0
    assert shown["bytes_in_per_s"] > 100 * shown["records_in_per_s"]
    assert shown["bytes_out_per_s"] > 0
    assert before_ms - 1 <= shown["last_write_ms"] <= time.time() * 1000 + 1
    assert listed["last_write_ms"] == shown["last_write_ms"]
    assert listed["records_in_per_s"] > 0
    kept = {name: listed[name] for name in listed if "retention" in name}
    assert kept == {
        "retention_ms": 604_800_000, "retention_bytes": 1 << 30,
        "local_retention_ms": 604_800_000, "local_retention_bytes": 1 << 30,
    }  # fmt: skip
