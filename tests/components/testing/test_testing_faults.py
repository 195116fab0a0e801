"""The faults of a test cluster are real: a stopped, killed and restarted broker, and an S3 that fails or dawdles."""

import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.local_clusters import produce, read
from tiered.testing import LocalCluster, cluster
from tiered.testing.broker_control import BrokerEndedError
from tiered.testing.moto_s3 import moto_s3, s3_client


@pytest.fixture(params=[True, False], ids=["thread", "process"])
def c(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with cluster(in_process=request.param, topics={"orders": 1}) as found:
        yield found


def broker_row(c: LocalCluster) -> tuple[int, bool]:
    """(epoch, whether the broker has said goodbye) as SQL knows it."""
    conn = sqlite3.connect(c.data / "meta.db")
    (row,) = conn.execute("SELECT broker_epoch, fenced FROM broker").fetchall()
    conn.close()
    return row[0], bool(row[1])


def snapshots(c: LocalCluster) -> list[Path]:
    """The producers' state beside a log: written at its end by a controlled shutdown, and by nothing else here."""
    return list(c.data.rglob("*.snapshot"))


def test_a_stop_says_goodbye_and_a_start_goes_on_at_the_same_address(c: LocalCluster) -> None:
    address = c.bootstrap
    produce(c, "orders", b"one")
    epoch, fenced = broker_row(c)
    assert not fenced
    c.broker.stop()
    assert not c.broker.is_running
    assert broker_row(c) == (epoch, True)
    c.broker.start()
    assert c.bootstrap == address
    assert broker_row(c)[0] > epoch
    produce(c, "orders", b"two")
    assert read(c, "orders") == [b"one", b"two"]


def test_a_kill_says_no_goodbye_and_loses_nothing_that_was_acknowledged(c: LocalCluster) -> None:
    produce(c, "orders", b"one")
    before, marks = broker_row(c), snapshots(c)
    c.broker.kill()
    assert broker_row(c) == before, "a killed broker told SQL"
    assert snapshots(c) == marks, "a killed broker wrote down where its log ends"
    c.broker.start()
    assert read(c, "orders") == [b"one"]


def test_clients_live_through_a_kill(c: LocalCluster) -> None:
    producer = Producer({"bootstrap.servers": c.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
    c.broker.kill()
    producer.produce("orders", b"two")
    c.broker.start()
    assert producer.flush(30) == 0
    assert read(c, "orders") == [b"one", b"two"]


def test_a_kill_resets_connections() -> None:
    with cluster() as c:
        host, _, port = c.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            c.create_topic()  # By then the other connection was accepted too.
            c.broker.kill()
            with pytest.raises(ConnectionResetError):
                client.recv(1)


def test_asking_a_stopped_broker_says_what_to_do(c: LocalCluster) -> None:
    c.broker.kill()
    c.broker.kill()
    with pytest.raises(BrokerEndedError, match=r"broker\.start\(\)"):
        c.health()
    host, _, port = c.bootstrap.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=10)
    c.broker.restart()
    assert c.health()["serving"]


def test_a_broker_that_was_replaced_is_said_at_the_end() -> None:
    c = cluster().start()
    conn = sqlite3.connect(c.data / "meta.db")
    conn.execute("UPDATE broker SET broker_epoch = broker_epoch + 1")
    conn.commit()
    conn.close()
    while c.broker.life._thread.is_alive():  # type: ignore[attr-defined]
        threading.Event().wait(0.05)
    with pytest.raises(BrokerEndedError):
        c.stop()


@pytest.fixture(scope="module")
def with_s3() -> Iterator[LocalCluster]:
    with cluster(s3="moto") as found:
        yield found


@pytest.fixture
def s3(with_s3: LocalCluster) -> Iterator[LocalCluster]:
    yield with_s3
    with_s3.s3.heal()


def test_tiering_moves_every_record_and_gives_the_configs_back(s3: LocalCluster) -> None:
    topic = s3.create_topic(configs={"segment.ms": 3_600_000})
    produce(s3, topic, b"one", b"two")
    s3.tier(topic)
    produce(s3, topic, b"three")
    s3.tier(topic, keep_local=False)
    gets = s3.s3.count("GET")
    assert read(s3, topic) == [b"one", b"two", b"three"]
    assert s3.s3.count("GET") > gets, "the records were read from the disk"
    from confluent_kafka.admin import AdminClient, ConfigResource

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": s3.bootstrap})
    found = admin.describe_configs([resource])[resource].result(30)
    own = {name: entry.value for name, entry in found.items() if entry.source == 1}
    assert own == {"segment.ms": "3600000"}


def test_s3_that_fails_holds_tiering_up_until_it_is_healed(s3: LocalCluster) -> None:
    topic = s3.create_topic()
    produce(s3, topic, b"one")
    s3.s3.fail(status=503)
    with pytest.raises(TimeoutError, match="does the store answer"):
        s3.tier(topic, timeout_s=0.5)
    assert read(s3, topic) == [b"one"]
    s3.s3.heal()
    s3.tier(topic, keep_local=False)
    assert read(s3, topic) == [b"one"]


def test_faults_end_after_their_count_or_their_time(s3: LocalCluster) -> None:
    topic = s3.create_topic()
    produce(s3, topic, b"one")
    seen = len(s3.s3.seen)
    s3.s3.fail(status=503, count=2, method="PUT")
    s3.tier(topic)
    assert sum(each.fault is not None for each in s3.s3.seen[seen:]) == 2
    s3.s3.fail(status=500, for_s=0.2)
    produce(s3, topic, b"two")
    s3.tier(topic, keep_local=False)
    assert read(s3, topic) == [b"one", b"two"]
    with pytest.raises(ValueError, match="418"):
        s3.s3.fail(status=418)


def test_a_delay_is_over_when_s3_is_healed(s3: LocalCluster) -> None:
    topic = s3.create_topic()
    produce(s3, topic, b"one")
    s3.s3.delay(60_000)
    seen = len(s3.s3.seen)
    tiering = threading.Thread(target=s3.tier, args=(topic,))
    tiering.start()
    while len(s3.s3.seen) == seen:
        threading.Event().wait(0.01)
    s3.s3.heal()
    tiering.join(30)
    assert not tiering.is_alive()


def test_a_test_may_end_while_s3_fails() -> None:
    with cluster(s3="moto") as c:
        topic = c.create_topic()
        produce(c, topic, b"one")
        c.s3.fail(status=503)
        c.s3.delay(60_000)


def test_the_bucket_is_seen_with_boto3_and_by_a_broker_process() -> None:
    with cluster(s3="moto", in_process=False, topics={"orders": 1}) as c:
        produce(c, "orders", b"one")
        c.tier("orders", keep_local=False)
        assert read(c, "orders") == [b"one"]
        client = c.s3_client()
        keys = [each["Key"] for each in client.list_objects_v2(Bucket=c.s3_bucket)["Contents"]]
        client.close()
        assert any(key.startswith("test/segments/") for key in keys), keys


def test_a_bucket_that_a_test_emptied_moto_of_is_no_failure_at_the_end() -> None:
    with moto_s3("gone-before-the-end") as url:
        client = s3_client(url)
        client.delete_bucket(Bucket="gone-before-the-end")
        client.close()
