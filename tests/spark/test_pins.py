"""Options `catalog` and `snapshot`: retention leaves what a query reads, and a snapshot is read exactly.

The broker, its retention and its HTTP door are real and in this process; so are planning and tasks, without a JVM.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_tiered import http_door
from pyspark_tiered.batch import BatchReader, TaskOptions
from pyspark_tiered.brokers import BrokerThread
from pyspark_tiered.job_waves import held_ranges, waves_of
from pyspark_tiered.log_source import open_log_source
from pyspark_tiered.options import parse_options
from pyspark_tiered.stream import StreamReader
from tests.spark.pinned_topics import append, offsets_of
from tiered.errors import InvalidConfig, MetadataUnavailable, ObjectMissing, PinNotFound
from tiered.peer.topic_admin import alter_configs
from tiered.testing import LocalCluster, cluster

TTL_MS = 2000
SETTINGS = {"tiered.pin.max.ttl.ms": TTL_MS, "log.retention.check.interval.ms": 50, "tiered.sweep.interval.ms": 50}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with cluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker: LocalCluster) -> Iterator[str]:
    """Forty records in about twenty objects, and no pin before and after."""
    name = broker.create_topic(
        configs={"segment.bytes": 3000, "local.retention.bytes": 1, "tiered.purge.grace.ms": 1, "retention.ms": -1}
    )
    append(broker, name, 40)
    broker.tier(name, keep_local=False)
    yield name
    for each in live_pins(broker):
        ask(broker, "DELETE", f"/api/v1/pins/{each['pin_id']}")


def ask(broker: LocalCluster, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(broker.http_url + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        answer = response.read()
    return json.loads(answer) if answer else None


def live_pins(broker: LocalCluster) -> list[Any]:
    found: list[Any] = ask(broker, "GET", "/api/v1/pins")["pins"]
    return found


def held(broker: LocalCluster) -> list[tuple[int, int]]:
    return [(each["start_offset"], each["end_offset"]) for row in live_pins(broker) for each in row["partitions"]]


def log_start(broker: LocalCluster, topic: str) -> int:
    segments = ask(broker, "GET", f"/api/v1/topics/{topic}/partitions/0/segments")["segments"]
    return min((int(each["base_offset"]) for each in segments), default=40)


def expire(broker: LocalCluster, topic: str) -> None:
    """From now on retention takes all that nobody holds, and the sweep its objects."""
    with BrokerThread(broker.bootstrap, client_id="test", timeout_ms=30_000) as thread:
        thread.submit(alter_configs(thread.cluster, topic, {"retention.ms": "1"})).result()


def eventually(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not claim():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.05)


def options_of(broker: LocalCluster, topic: str | None, **more: str) -> dict[str, str]:
    selected = {} if topic is None else {"subscribe": topic}
    return {"store": broker.store_url, "kafka.bootstrap.servers": broker.bootstrap, **selected, **more}


def reader(broker: LocalCluster, topic: str | None, **more: str) -> BatchReader:
    return BatchReader(parse_options(options_of(broker, topic, **more), streaming=False), ("offset",))


def test_retention_waits_for_a_job_until_it_ends(broker: LocalCluster, topic: str) -> None:
    given = options_of(broker, topic, catalog=broker.http_url, startingOffsets=f'{{"{topic}":{{"0":9}}}}')
    options = parse_options(given, streaming=False)
    task = TaskOptions(options=options, columns=("offset",))
    found = []
    with open_log_source(options) as source, held_ranges(source, options) as ranges:
        assert held(broker) == [(9, 40)]
        expire(broker, topic)
        eventually(lambda: log_start(broker, topic) >= 7)
        for wave in waves_of(source, options, ranges, wave_bytes=20_000):
            found += [offset for split in wave.splits for offset in offsets_of(task.read(split))]
            time.sleep(TTL_MS / 1000)  # All of them take longer than one life of the pin.
        assert log_start(broker, topic) <= 9
    assert sorted(found) == list(range(9, 40))
    assert held(broker) == []
    eventually(lambda: log_start(broker, topic) >= 30)


def test_retention_waits_for_a_batch_that_holds_a_pin(broker: LocalCluster, topic: str) -> None:
    pinned = reader(
        broker, topic, catalog=broker.http_url, splitBytes="4000", startingOffsets=f'{{"{topic}":{{"0":9}}}}'
    )
    splits = pinned.partitions()
    assert held(broker) == [(9, 40)]
    expire(broker, topic)
    eventually(lambda: log_start(broker, topic) >= 7)
    found = []
    for split in splits:
        found += offsets_of(pinned.read(split))
        time.sleep(TTL_MS / 1000 / len(splits) * 1.5)  # Longer than one life of the pin, were it not renewed.
    assert found == list(range(9, 40))
    assert log_start(broker, topic) <= 9
    # Nobody renews it any more.
    eventually(lambda: held(broker) == [])
    eventually(lambda: log_start(broker, topic) >= 38)


def test_without_a_pin_the_same_batch_loses_its_objects(broker: LocalCluster, topic: str) -> None:
    unpinned = reader(broker, topic, splitBytes="4000")
    splits = unpinned.partitions()
    expire(broker, topic)
    eventually(lambda: log_start(broker, topic) >= 38)
    with pytest.raises(ObjectMissing, match="the object is missing"):
        while True:
            for split in splits:
                offsets_of(unpinned.read(split))


def test_planning_that_fails_holds_nothing_up(broker: LocalCluster, topic: str) -> None:
    failing = reader(broker, topic, catalog=broker.http_url, startingOffsets='{"another":{"0":9}}')
    with pytest.raises(InvalidConfig):
        failing.partitions()
    assert held(broker) == []


def test_a_snapshot_is_read_exactly_whatever_came_later(broker: LocalCluster, topic: str) -> None:
    asked = {
        "name": f"of-{topic}",
        "topic": topic,
        "partitions": [{"partition": 0, "start_offset": 5, "end_offset": 33}],
    }
    ask(broker, "POST", "/api/v1/snapshots", asked)
    append(broker, topic, 10)
    expire(broker, topic)
    for selection in (None, topic):
        of_snapshot = reader(broker, selection, catalog=broker.http_url, snapshot=f"of-{topic}")
        found = [offset for split in of_snapshot.partitions() for offset in offsets_of(of_snapshot.read(split))]
        assert found == list(range(5, 33))
    with pytest.raises(InvalidConfig, match=f"is of topic {topic}"):
        reader(broker, "another", catalog=broker.http_url, snapshot=f"of-{topic}").partitions()
    ask(broker, "DELETE", f"/api/v1/snapshots/of-{topic}")
    with pytest.raises(PinNotFound, match="tiered snapshot list"):
        reader(broker, None, catalog=broker.http_url, snapshot=f"of-{topic}").partitions()


def test_a_stream_holds_what_it_has_not_read_and_gives_it_up_when_it_stops(broker: LocalCluster, topic: str) -> None:
    options = parse_options(options_of(broker, topic, catalog=broker.http_url), streaming=True)
    stream = StreamReader(options, ("offset",))
    stream.latestOffset({topic: {"0": 11}}, ReadAllAvailable())
    assert held(broker) == [(11, 40)]
    expire(broker, topic)
    time.sleep(1.5 * TTL_MS / 1000)  # A micro-batch that takes longer than a pin's life.
    (split, *more) = stream.partitions({topic: {"0": 11}}, {topic: {"0": 40}})
    assert offsets_of(stream.read(split)) == list(range(11, 40))
    assert not more
    # It goes on: the new position is held before the old one is given up.
    append(broker, topic, 10)
    eventually(lambda: stream.latestOffset({topic: {"0": 40}}, ReadAllAvailable())[topic] == {"0": 50})
    eventually(lambda: bool(stream.latestOffset({topic: {"0": 40}}, ReadAllAvailable())) and held(broker) == [(40, 50)])
    eventually(lambda: log_start(broker, topic) >= 38)
    assert log_start(broker, topic) <= 40
    stream.stop()
    assert held(broker) == []


def test_a_catalogue_that_does_not_answer_is_an_error_before_anything_is_read(
    broker: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_door, "_PAUSE_S", 0.0)
    with pytest.raises(MetadataUnavailable, match=r"option catalog: http://127\.0\.0\.1:1 does not answer"):
        reader(broker, topic, catalog="http://127.0.0.1:1").partitions()
    # One that answers is enough.
    assert reader(broker, topic, catalog=f"http://127.0.0.1:1,{broker.http_url}").partitions()
    assert held(broker) == [(0, 40)]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"catalog": "broker:8080"}, "a broker's HTTP address like"),
        ({"catalog": "http://h:8080/api"}, "a broker's HTTP address like"),
        ({"catalog": "http://me:hunter2@h:8080"}, "must not hold a user or a password"),
        ({"snapshot": "s"}, "snapshot needs option catalog"),
        ({"snapshot": "s", "catalog": "http://h:1", "startingOffsets": "earliest"}, "contradicts snapshot"),
    ],
)
def test_a_catalogue_or_snapshot_that_cannot_be_is_refused(more: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says) as caught:
        parse_options({"store": "file:///x", "subscribe": "t", **more}, streaming=False)
    assert "hunter2" not in str(caught.value)
