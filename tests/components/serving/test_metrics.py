"""/metrics: valid, documented to the last name and label, and true."""

import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import admin
from prometheus_client.parser import text_string_to_metric_families

from tests.broker_process import BrokerProcess
from tests.components.guarded_broker import GuardedBroker
from tests.components.tiers import eventually
from tests.fault_s3.moto_server import aws_environment
from tests.support.http_logins import ask
from tests.support.topics import create
from tests.support.transactional_producers import begun
from tiered.errors import StoreTrouble

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs/metrics.md"
_ROW = re.compile(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \|([^|]*)\|", re.MULTILINE)
OUTCOMES = ("committed", "aborted", "timed_out")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def exposition(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(broker.http + "/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def samples(broker: BrokerProcess) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(exposition(broker)):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: object) -> float:
    return found[name, tuple(sorted((label, str(each)) for label, each in labels.items()))]


def produce(broker: BrokerProcess, topic: str, count: int, *, size_bytes: int = 100) -> None:
    # Batches much smaller than a segment, so that there are several of both.
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 200})
    for number in range(count):
        producer.produce(topic, value=number.to_bytes(4, "big") * (size_bytes // 4), partition=0)
    assert producer.flush(30) == 0


def consume(broker: BrokerProcess, topic: str, count: int, group: str, *, commit: int | None = None) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read = 0
    while read < count:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        read += 1
    if commit is not None:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, commit)], asynchronous=False)
    consumer.close()


def documented() -> Mapping[str, tuple[str, set[str]]]:
    """Name to kind and labels, as the document's tables have them."""
    rows = _ROW.findall(DOCUMENT.read_text())
    found = {name: (kind, set(re.findall(r"`([a-z_]+)`", labels))) for name, kind, labels in rows}
    assert len(found) == len(rows), "a metric stands twice in the document"
    return found


def no_upload_is_under_way(found: Samples) -> bool:
    return value(found, "tiered_uploads_total") == value(found, "tiered_store_seconds_count", operation="put_segment")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker that has done something of everything, so that every metric has a sample."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("busy") / "data",
        settings={"log.segment.bytes": 100_000, "log.local.retention.bytes": 1, "tiered.lag.sample.interval.ms": 100},
    ).start()
    produce(process, "flights", 5000)
    process.wait_cold("flights", end_offset=1000, only=True)
    consume(process, "flights", 2000, "followers", commit=1500)
    with pytest.raises(urllib.error.HTTPError):
        process.get("/api/v1/nothing")
    process.get("/api/v1/topics")
    key = ("tiered_group_lag", (("group", "followers"), ("topic", "flights")))
    eventually(lambda: key in samples(process), "the lag is sampled", process)
    eventually(lambda: no_upload_is_under_way(samples(process)), "what is closed is uploaded", process)
    yield process
    process.ensure_stopped()


def test_every_metric_is_documented_with_its_kind_and_its_labels_and_no_other_is(busy: BrokerProcess) -> None:
    printed: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(exposition(busy)):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels if label != "le"}
        assert family.documentation, name
        assert family.samples, f"{name} has no sample: let the fixture do something that it counts"
        printed[name] = (family.type, labels)
    assert printed == documented()


def test_histograms_are_cumulative_and_their_counts_agree(busy: BrokerProcess) -> None:
    for family in text_string_to_metric_families(exposition(busy)):
        if family.type != "histogram":
            continue
        by_labels: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        counts = {}
        for sample in family.samples:
            labels = tuple(sorted((name, each) for name, each in sample.labels.items() if name != "le"))
            if sample.name.endswith("_bucket"):
                by_labels.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
            elif sample.name.endswith("_count"):
                counts[labels] = sample.value
        for labels, buckets in by_labels.items():
            assert buckets == sorted(buckets), family.name
            assert [count for _, count in buckets] == sorted(count for _, count in buckets), family.name
            assert buckets[-1] == (float("inf"), counts[labels]), family.name


def cold_bytes(broker: BrokerProcess) -> int:
    return sum(each["size_bytes"] for each in broker.segments("flights")["segments"] if each["tier"] != "hot")


def between_uploads(broker: BrokerProcess) -> tuple[Samples, int]:
    """Samples of a moment, and the bytes that were cold in it."""
    for _ in range(20):
        before, found = cold_bytes(broker), samples(broker)
        if cold_bytes(broker) == before:
            return found, before
    raise AssertionError("it never stops uploading")


def test_traffic_sizes_and_lag_are_what_happened(busy: BrokerProcess) -> None:
    found = samples(busy)
    assert value(found, "tiered_topic_produced_records_total", topic="flights") == 5000
    assert value(found, "tiered_topic_produced_bytes_total", topic="flights") == value(
        found, "tiered_produced_bytes_total"
    )
    assert 0 < value(found, "tiered_topic_produced_batches_total", topic="flights") <= 5000
    assert value(found, "tiered_topic_fetched_bytes_total", topic="flights") > 0
    assert value(found, "tiered_partition_high_watermark", topic="flights", partition=0) == 5000
    assert value(found, "tiered_partition_log_end_offset", topic="flights", partition=0) == 5000
    assert value(found, "tiered_partition_cold_end_offset", topic="flights", partition=0) >= 1000
    found, cold = between_uploads(busy)
    assert value(found, "tiered_partition_cold_bytes", topic="flights", partition=0) == cold
    assert value(found, "tiered_group_lag", group="followers", topic="flights") == 3500


def test_the_age_of_a_lag_grows_until_the_group_has_committed_all(busy: BrokerProcess) -> None:
    consume(busy, "flights", 10, "late", commit=10)

    def age_s() -> float:
        return samples(busy).get(("tiered_group_lag_seconds", (("group", "late"), ("topic", "flights"))), -1)

    eventually(lambda: age_s() > 0, "what is not committed is there for a while", busy)
    before_s = age_s()
    eventually(lambda: age_s() > before_s, "while nobody consumes it gets older", busy)
    consume(busy, "flights", 5000, "late", commit=5000)
    eventually(lambda: age_s() == 0, "who has committed all has no lag", busy)


def test_uploads_caches_sql_and_the_store_are_counted_where_they_happen(busy: BrokerProcess) -> None:
    found = samples(busy)
    uploads = value(found, "tiered_uploads_total")
    assert uploads > 0
    assert value(found, "tiered_upload_seconds_count") == uploads
    assert value(found, "tiered_store_seconds_count", operation="put_segment") == uploads
    assert value(found, "tiered_store_errors_total", operation="put_segment") == 0
    assert value(found, "tiered_cache_misses_total") > 0
    assert value(found, "tiered_cache_loaded_bytes_total") > 0
    assert value(found, "tiered_store_seconds_count", operation="get_range") > 0
    assert value(found, "tiered_sql_seconds_count", operation="transaction") > uploads
    assert value(found, "tiered_sql_errors_total", operation="transaction") == 0


def test_the_process_and_its_disk_are_what_the_system_says(busy: BrokerProcess) -> None:
    found = samples(busy)
    pages = int(Path(f"/proc/{busy.pid}/statm").read_text().split()[1])
    assert value(found, "process_resident_memory_bytes") == pytest.approx(pages * 4096, rel=0.5)
    assert value(found, "process_open_fds") == pytest.approx(len(list(Path(f"/proc/{busy.pid}/fd").iterdir())), abs=5)
    assert value(found, "process_cpu_seconds_total") > 0
    assert 0 < value(found, "tiered_disk_free_bytes") < value(found, "tiered_disk_total_bytes")
    assert value(found, "tiered_event_loop_stall_seconds_count") > 0


def test_what_open_transactions_hold_back_is_told_and_how_transactions_end(make_broker: Any) -> None:
    broker = make_broker().start()
    create(broker, "paid", partitions=2)
    names = (
        "tiered_open_transactions",
        "tiered_held_back_partitions",
        "tiered_max_held_back_records",
        "tiered_undelivered_markers",
    )

    def told() -> list[float]:
        found = samples(broker)
        return [value(found, each) for each in names]

    assert told() == [0, 0, 0, 0]
    first, second = (begun(broker.bootstrap, name, "paid", "a", "b", "c") for name in ("first", "second"))
    assert told() == [2, 1, 6, 0]
    assert value(samples(broker), "tiered_partition_last_stable_offset", topic="paid", partition=0) == 0
    first.commit_transaction(30)
    eventually(lambda: told() == [1, 1, 4, 0], "the second one is open: its records, and a marker", broker)
    second.abort_transaction(30)
    eventually(lambda: told() == [0, 0, 0, 0], "none is open", broker)
    outcomes = {each: value(samples(broker), "tiered_transactions_total", outcome=each) for each in OUTCOMES}
    assert outcomes == {"committed": 1, "aborted": 1, "timed_out": 0}


def test_http_is_counted_by_route_and_never_by_what_was_asked(busy: BrokerProcess) -> None:
    for number in range(20):
        with pytest.raises(urllib.error.HTTPError):
            busy.get(f"/made/up/{number}")
        with pytest.raises(urllib.error.HTTPError):
            busy.get(f"/api/v1/topics/no-such-topic-{number}")
    request = urllib.request.Request(busy.http + "/healthz", method="INVENTED")
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=30)
    found = samples(busy)
    topic = value(found, "tiered_http_requests_total", method="GET", route="/api/v1/topics/{topic}", status=404)
    assert topic == 20
    assert value(found, "tiered_http_requests_total", method="other", route="other", status=404) >= 20
    assert not [key for key in found if "made" in str(key) or "INVENTED" in str(key) or "no-such-topic" in str(key)]


def test_names_that_people_choose_are_bounded_and_what_is_left_out_is_counted(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    settings = {"tiered.metrics.max.series": 3, "num.partitions": 2, "tiered.lag.sample.interval.ms": 100}
    process = make_broker(settings=settings).start()
    client = admin.AdminClient({"bootstrap.servers": process.bootstrap})
    for future in client.create_topics([admin.NewTopic(f"topic-{n}", 2) for n in range(5)]).values():
        future.result(20)
    produce(process, "topic-4", 10)
    found = samples(process)
    named = {dict(labels)["topic"] for name, labels in found if name == "tiered_topic_produced_bytes_total"}
    assert named == {"topic-0", "topic-1", "topic-4"}, "the busiest ones, and the first names among the idle"
    partitions = [dict(labels) for name, labels in found if name == "tiered_partition_high_watermark"]
    assert [(labels["topic"], labels["partition"]) for labels in partitions] == [
        ("topic-0", "0"),
        ("topic-0", "1"),
        ("topic-4", "0"),
    ]
    assert value(found, "tiered_metrics_omitted", kind="topics") == 2
    assert value(found, "tiered_metrics_omitted", kind="partitions") == 7
    consumer = confluent_kafka.Consumer({"bootstrap.servers": process.bootstrap, "group.id": "wide"})
    committed = [confluent_kafka.TopicPartition(f"topic-{topic}", number, 0) for topic in range(5) for number in (0, 1)]
    consumer.commit(offsets=committed, asynchronous=False)
    consumer.close()
    omitted = ("tiered_metrics_omitted", (("kind", "groups"),))
    eventually(lambda: samples(process)[omitted] == 1, "a group with topics left out is not told whole", process)
    assert [dict(labels)["topic"] for name, labels in samples(process) if name == "tiered_group_lag"] == [
        "topic-0",
        "topic-1",
        "topic-2",
    ]


async def test_a_database_that_answers_too_late_is_counted_as_failed_and_a_refusal_of_ours_is_not(
    tmp_path: Path,
) -> None:
    from tiered.errors import MetadataUnavailable, TopicExists
    from tiered.meta.engine import Database

    database, hurry = Database.open(f"sqlite:///{tmp_path}/meta.db"), threading.Event()

    def refuse(_conn: object) -> None:
        raise TopicExists("it is there")

    try:
        with pytest.raises(TopicExists):
            await database.run(refuse)
        assert database.times.failures() == {"transaction": 0}
        with pytest.raises(MetadataUnavailable):
            await database.run(lambda _conn: hurry.wait(20), deadline_ms=50)
        assert database.times.failures() == {"transaction": 1}
        assert sum(database.times.latency()["transaction"].counts) == 2
    finally:
        hurry.set()
        await database.close()


def test_a_store_that_is_away_is_counted_as_failed_and_a_missing_object_is_not(tmp_path: Path) -> None:
    from tiered.cold.opening import open_store
    from tiered.cold.timed_store import TimedStore
    from tiered.errors import ObjectMissing, StoreUnavailable
    from tiered.runtime import SystemClock

    (tmp_path / "objects").mkdir()
    local = TimedStore(open_store((tmp_path / "objects").as_uri()), SystemClock())
    with pytest.raises(ObjectMissing):
        local.get("nothing", max_bytes=10)
    assert local.times.failures() == {"get": 0}
    with aws_environment():
        # Nobody listens there; the store gives up after its bounded tries.
        url = "s3://bucket/prefix?region=eu-west-1&endpoint_url=http://127.0.0.1:1"
        away = TimedStore(open_store(url, timeout_ms=200), SystemClock())
        with pytest.raises(StoreUnavailable):
            away.head("anything")
        assert away.times.failures() == {"head": 1}
        assert away.retries > 0
        away.close()


def test_metrics_and_readiness_say_the_same_of_the_store(tmp_path: Path) -> None:
    with GuardedBroker(tmp_path / "data", "super.users=User:ANONYMOUS") as guarded:

        def after_a_look(trouble: StoreTrouble | None) -> tuple[str | None, bool]:
            reach = guarded.broker.store_reach
            guarded.run(lambda: setattr(reach, "_look_due_ms", float("inf")))
            guarded.run(lambda: setattr(reach, "_trouble", trouble))
            (_, ready), (_, text) = ask(guarded, "GET", "/readyz"), ask(guarded, "GET", "/metrics")
            return ready["store_trouble"], b'tiered_store_trouble{kind="away"} 1\n' in text

        # No operation has failed yet: the store takes the first one's connection and does not answer.
        assert after_a_look(StoreTrouble.AWAY) == ("away", True)
        assert after_a_look(None) == (None, False)
