"""Topics, configs and brokers of a cluster: every broker sees every change, whoever made it."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from tests.components.brokers import Brokers, three_brokers

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.postgres"]


@pytest.fixture(scope="module")
def brokers(postgres_databases: "PostgresDatabases", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with three_brokers(
        postgres_databases, tmp_path_factory.mktemp("cluster"), {"tiered.upload.interval.ms": 100}
    ) as made:
        yield made


def seen_by_all(brokers: Brokers, claim: Callable[[AdminClient], bool], what: str) -> None:
    for number in brokers.by_id:
        admin = brokers.admin(number)
        brokers.wait(lambda admin=admin: claim(admin), f"{what}, by way of broker {number}")  # type: ignore[misc]


def partition_count(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(timeout=30).topics.get(topic)  # Asked for by name it would be created.
    return 0 if found is None else len(found.partitions)


def retention(admin: AdminClient, topic: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    value: str = admin.describe_configs([resource])[resource].result(30)["retention.ms"].value
    return value


def test_a_topic_is_created_grown_changed_and_deleted_for_everybody(brokers: Brokers) -> None:
    one, two, three = (brokers.admin(number) for number in (1, 2, 3))
    one.create_topics([NewTopic("shared", 2, 3)])["shared"].result(30)
    seen_by_all(brokers, lambda admin: partition_count(admin, "shared") == 2, "the topic is there")
    two.create_partitions([NewPartitions("shared", 5)])["shared"].result(30)
    seen_by_all(brokers, lambda admin: partition_count(admin, "shared") == 5, "it has grown")
    step = ConfigEntry("retention.ms", "77777", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "shared", incremental_configs=[step])
    three.incremental_alter_configs([resource])[resource].result(30)
    seen_by_all(brokers, lambda admin: retention(admin, "shared") == "77777", "its config has changed")
    brokers.wait_whole("shared")
    for number in range(5):
        assert brokers.produce("shared", [b"x"], partition=number) == [b"x"]
    folders = [each.data / "log" / str(brokers.row("shared").topic_id) for each in brokers.by_id.values()]
    assert all(folder.is_dir() for folder in folders)
    three.delete_topics(["shared"])["shared"].result(30)
    seen_by_all(brokers, lambda admin: partition_count(admin, "shared") == 0, "it is gone")
    brokers.wait(lambda: not any(folder.exists() for folder in folders), "nobody keeps files of it")


def test_what_is_placed_on_some_brokers_is_led_and_served_there_alone(brokers: Brokers) -> None:
    brokers.create("narrow", 3, replication_factor=1)
    assert sorted(row.replicas for row in brokers.rows("narrow")) == [(1,), (2,), (3,)]
    for number in range(3):
        written = brokers.produce("narrow", [b"%d" % number] * 10, partition=number)
        assert brokers.read("narrow", partition=number) == written


def test_a_segment_that_a_leader_uploaded_is_cold_for_the_next_leader(brokers: Brokers) -> None:
    brokers.create("tiered", min_insync_replicas=2, segment_bytes=20_000, local_retention_bytes=1)
    values = [b"%06d" % number + bytes(2_000) for number in range(60)]
    written = brokers.produce("tiered", values)
    first = brokers.row("tiered").leader
    brokers.wait(lambda: brokers.row("tiered").cold_end_offset >= 40, "most of it is in the store")
    brokers.by_id[first].stop()
    written += brokers.produce("tiered", values)
    brokers.wait(lambda: brokers.row("tiered").cold_end_offset >= 100, "the next leader goes on uploading")
    assert brokers.row("tiered").leader != first
    brokers.start()
    brokers.wait_whole("tiered")
    assert brokers.read("tiered") == written


def test_a_broker_that_joins_later_is_known_to_all_and_gets_new_partitions(brokers: Brokers) -> None:
    fourth = brokers.add(4)
    fourth.start()
    seen_by_all(brokers, lambda admin: len(admin.list_topics(timeout=30).brokers) == 4, "four brokers are there")
    brokers.create("wider", 4, replication_factor=4)
    assert sorted(row.leader for row in brokers.rows("wider")) == [1, 2, 3, 4]
    began = time.monotonic()
    assert fourth.stop() == 0
    brokers.wait(lambda: all(row.leader != 4 for row in brokers.rows("wider")), "others lead")
    assert time.monotonic() - began < 10


def test_a_broker_that_others_could_not_reach_is_refused(brokers: Brokers) -> None:
    fifth = brokers.add(5)
    fifth.arguments += ["--kafka", "0.0.0.0:0", "--insecure"]
    with pytest.raises(AssertionError, match="--advertise HOST:PORT"):
        fifth.start()
    assert 5 not in brokers.registered()
    del brokers.by_id[5]
