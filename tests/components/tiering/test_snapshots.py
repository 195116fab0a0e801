"""A pinned snapshot survives aggressive retention, and its release frees it: a real broker, its SQL and an S3 server.

What retention would do is asked before each step, and it does what was said.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from tests.components.batches import batch
from tiered import testing
from tiered.cli import main
from tiered.formats import record_batch
from tiered.peer import EARLIEST, LATEST, Cluster
from tiered.testing import LocalCluster, cluster

WAIT_S = 60.0
VALUE = b"v" * 500
# Rolled at every batch, and gone from the disk as soon as it is in the store.
SMALL: dict[str, object] = {
    "segment.bytes": 600,
    "local.retention.bytes": 1,
    "tiered.purge.grace.ms": 0,
    "remote.copy.lag.ms": 0,
}
# Everything closed goes at the next look.
AGGRESSIVE: dict[str, object] = {"retention.bytes": "0", "local.retention.bytes": "0"}
QUICK = {"tiered.sweep.interval.ms": 50}


@pytest.fixture(scope="module")
def c() -> Iterator[LocalCluster]:
    with cluster(s3="moto", settings=QUICK) as made:
        yield made


@pytest.fixture
def topic(c: LocalCluster) -> str:
    """A topic with ten records, of which nine are in segments of their own in the store, and a tenth is hot."""
    return with_ten_records(c)


@pytest.fixture(scope="module")
def quiet(c: LocalCluster) -> str:
    """One that no test changes."""
    return with_ten_records(c)


def with_ten_records(c: LocalCluster) -> str:
    name = c.create_topic(configs=SMALL)
    produce(c, name, 10)
    eventually(lambda: at(c, name)[0]["cold_end_offset"] == 9, "nine segments are in the store")
    return name


def eventually(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.02)


def produce(c: LocalCluster, topic: str, count: int) -> None:
    async def send() -> None:
        async with Cluster(c.bootstrap) as peers:
            for number in range(count):
                await peers.produce(topic, 0, batch([b"%d-" % number + VALUE], first_ms=int(time.time() * 1000)))

    testing.topics.run(send())


def values(c: LocalCluster, topic: str) -> dict[int, bytes]:
    """What any reader gets, by offset; the number that each value begins with."""

    async def ask() -> dict[int, bytes]:
        async with Cluster(c.bootstrap) as peers:
            edges = [(await peers.list_offsets(topic, {0: edge}))[0] for edge in (EARLIEST, LATEST)]
            offset, end = edges
            found: dict[int, bytes] = {}
            while offset < end:
                data = bytes((await peers.fetch(topic, 0, offset)).records)
                for record in record_batch.records(data, 0):
                    found[record.offset] = (record.value or b"").partition(b"-")[0]
                offset = max(found) + 1
            return found

    return testing.topics.run(ask())


def at(c: LocalCluster, topic: str) -> Any:
    """The topic's partitions."""
    return http(c, "GET", f"/topics/{topic}")["partitions"]


def http(c: LocalCluster, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{c.http_url}/api/v1{path}", method=method, data=data)
    with urllib.request.urlopen(request, timeout=30) as answer:
        content = answer.read()
        return json.loads(content) if content else None


def refusal(c: LocalCluster, method: str, path: str, body: Any = None) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as refused:
        http(c, method, path, body)
    return refused.value.code, json.load(refused.value)["message"]


def alter(c: LocalCluster, topic: str, configs: dict[str, object]) -> None:
    http(c, "PATCH", f"/topics/{topic}/configs", {"set": configs})


def explained(c: LocalCluster, topic: str) -> Any:
    return http(c, "GET", f"/topics/{topic}/partitions/0/retention")


def objects(c: LocalCluster, topic: str) -> int:
    """How many segment objects of the topic the bucket holds."""
    client = c.s3_client()
    found = client.list_objects_v2(Bucket=c.s3_bucket).get("Contents", [])
    client.close()
    return sum(f"/{topic}_" in each["Key"] and each["Key"].endswith(".seg") for each in found)


def has_lost(c: LocalCluster, topic: str, *, before: int) -> bool:
    return bool(at(c, topic)[0]["log_start_offset"] == before)


def rounds(c: LocalCluster) -> None:
    """Returns after several rounds of retention and sweeps: a topic made for it has lost its records and objects."""
    name = c.create_topic(configs=SMALL | AGGRESSIVE)
    for end_offset in (3, 5):
        produce(c, name, 3 if end_offset == 3 else 2)
        eventually(partial(has_lost, c, name, before=end_offset - 1), "a round")
        eventually(lambda: objects(c, name) == 0, "a sweep")


def run(c: LocalCluster, *argv: str) -> int:
    return main([*argv, "--http", c.http_url])


def test_a_pinned_snapshot_survives_aggressive_retention_and_its_release_frees_it(
    c: LocalCluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = values(c, topic)
    assert len(before) == 10
    assert run(c, "snapshot", "create", f"training-{topic}", topic, "--owner", "the model") == 0
    assert "holds 10 offsets" in capsys.readouterr().out
    produce(c, topic, 5)
    alter(c, topic, AGGRESSIVE)
    rounds(c)
    assert values(c, topic).items() >= before.items()
    assert objects(c, topic) >= 9
    (pinned, *_) = explained(c, topic)["runs"]
    assert (pinned["reason"], pinned["deletes"], pinned["pin"]) == ("pinned", False, f"snapshot training-{topic}")

    assert run(c, "snapshot", "delete", f"training-{topic}") == 0
    eventually(lambda: at(c, topic)[0]["log_start_offset"] == 14, "everything closed was retired")
    eventually(lambda: objects(c, topic) == 0, "and its objects were deleted")
    assert sorted(values(c, topic)) == [14]


def test_what_is_explained_is_what_the_next_round_does(c: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(settings={"log.retention.check.interval.ms": 3_600_000}) as slow:
        name = slow.create_topic(configs=SMALL | {"retention.bytes": 1400})
        produce(slow, name, 10)
        eventually(lambda: at(slow, name)[0]["cold_end_offset"] == 9, "nine segments are in the store")
        assert run(slow, "explain-retention", name) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["PARTITION", "OFFSETS", "SEGMENTS", "SIZE", "NEWEST", "VERDICT", "WHY"]
        assert lines[1].split()[1] == "0..6"
        assert "delete   the log without it still reaches the retention size" in lines[1]
        assert "keep     within the retention time and the retention size" in lines[2]
        assert any(line.startswith("The next round deletes 7 segments") for line in lines)
        assert run(slow, "explain-retention", name, "--json") == 0
        (said,) = json.loads(capsys.readouterr().out)["partitions"]
        assert (said["log_start_offset"], said["new_log_start_offset"]) == (0, 7)
        assert said["retires"]["segments"] == 7
        assert [run["reason"] for run in said["local_runs"]][-1] == "active"
        assert sorted(values(slow, name)) == list(range(10)), "nothing has changed"
        slow.broker.stop()
        slow.broker.start()
        # Its rounds begin with a look at once.
        eventually(lambda: at(slow, name)[0]["log_start_offset"] == 7, "the round did what was said")


def test_an_explicit_deletion_is_refused_by_a_snapshot_over_every_door(c: LocalCluster, topic: str) -> None:
    http(c, "POST", "/snapshots", {"name": f"audit-{topic}", "topic": topic, "ttl_ms": 3_600_000})
    code, message = refusal(c, "DELETE", f"/topics/{topic}")
    assert code == 409
    assert f"`tiered snapshot delete audit-{topic}`" in message
    admin = AdminClient({"bootstrap.servers": c.bootstrap})
    deleted = admin.delete_records([ConfluentPartition(topic, 0, 3)])
    for future in deleted.values():
        with pytest.raises(Exception, match="POLICY_VIOLATION"):
            future.result(30)
    assert len(values(c, topic)) == 10
    http(c, "DELETE", f"/snapshots/audit-{topic}")
    for future in admin.delete_records([ConfluentPartition(topic, 0, 3)]).values():
        future.result(30)
    http(c, "DELETE", f"/topics/{topic}")


def test_a_pin_keeps_the_objects_of_a_topic_that_was_deleted_until_it_is_given_up(c: LocalCluster, topic: str) -> None:
    asked = [{"partition": 0, "start_offset": 2, "end_offset": 4}]
    pin = http(c, "POST", "/pins", {"topic": topic, "owner": "job-7", "ttl_ms": 60_000, "partitions": asked})
    assert pin["partitions"] == asked
    assert pin["expires_at_ms"] == pin["created_at_ms"] + 60_000
    http(c, "DELETE", f"/topics/{topic}")
    eventually(lambda: objects(c, topic) == 2, "all but what is pinned was purged")
    rounds(c)
    assert objects(c, topic) == 2
    renewed = http(c, "PATCH", f"/pins/{pin['pin_id']}", {"ttl_ms": 600_000})
    assert renewed["expires_at_ms"] > pin["expires_at_ms"]
    http(c, "DELETE", f"/pins/{pin['pin_id']}")
    eventually(lambda: objects(c, topic) == 0, "the rest was purged")
    assert refusal(c, "GET", f"/pins/{pin['pin_id']}")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "names"),
    [
        ("/snapshots", {"name": "a/b"}, 400, "snapshot name"),
        ("/snapshots", {"name": "x", "topic": "none"}, 404, "none"),
        ("/snapshots", {"name": "x", "topic": "__consumer_offsets"}, 400, "internal"),
        ("/snapshots", {"name": "x", "ttl_ms": 0}, 400, "ttl_ms"),
        ("/pins", {"ttl_ms": 10**12}, 400, "tiered.pin.max.ttl.ms"),
        ("/pins", {"owner": "a\0b"}, 400, "printed"),
        ("/pins", {"partitions": []}, 400, "empty"),
        ("/pins", {"partitions": [{"partition": 9}]}, 404, "partition 9"),
        ("/pins", {"partitions": [{"partition": 0}, {"partition": 0}]}, 400, "twice"),
        ("/pins", {"partitions": [{"partition": 0, "end_offset": 11}]}, 416, "ends at 10"),
        ("/pins", {"partitions": [{"partition": 0, "start_offset": 5, "end_offset": 4}]}, 416, "5 to 4"),
    ],
)
def test_what_cannot_be_held_is_refused_with_a_reason(
    c: LocalCluster, quiet: str, path: str, body: dict[str, Any], status: int, names: str
) -> None:
    code, message = refusal(c, "POST", path, {"topic": quiet, **body})
    assert code == status
    assert names in message


def test_snapshots_are_listed_and_deleted_by_name(
    c: LocalCluster, quiet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(c, "snapshot", "create", f"daily-{quiet}", quiet, "--ttl", "30d") == 0
    assert run(c, "snapshot", "create", f"daily-{quiet}", quiet) == 1
    assert "exists already" in capsys.readouterr().err
    assert run(c, "snapshot", "list", quiet) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["SNAPSHOT", "TOPIC", "PARTITIONS", "OFFSETS", "CREATED", "ENDS", "OWNER"]
    assert row.split()[:4] == [f"daily-{quiet}", quiet, "1", "10"]
    assert run(c, "snapshot", "list", quiet, "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["partitions"] == [{"partition": 0, "start_offset": 0, "end_offset": 10}]
    assert listed == http(c, "GET", f"/snapshots/daily-{quiet}")
    assert run(c, "snapshot", "delete", f"daily-{quiet}", "nobody") == 1
    said = capsys.readouterr()
    assert said.out == f"deleted snapshot daily-{quiet}\n"
    assert said.err.startswith("tiered snapshot delete: nobody: there is no snapshot nobody")
    assert run(c, "snapshot", "list", quiet, "-q") == 0
    assert capsys.readouterr().out == ""
