"""`tiered.testing.cluster()`: a real broker in this process that leaves nothing behind, whatever the test does."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import create_engine, text

from tests.support.local_clusters import produce, read
from tiered import testing
from tiered.errors import AlreadyRunning, InvalidConfig
from tiered.peer import BrokerError
from tiered.testing import cluster

# Threads and descriptors are counted, and other files' clients would come and go beside these tests.
pytestmark = pytest.mark.alone


def test_a_record_goes_round_with_confluent_kafka() -> None:
    with cluster(topics={"orders": 1}) as c:
        producer = Producer({"bootstrap.servers": c.bootstrap, "linger.ms": 0})
        producer.produce("orders", b"one")
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": c.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"one"
        consumer.close()


async def test_a_record_goes_round_with_aiokafka_inside_a_running_loop() -> None:
    async with cluster(topics={"orders": 1}) as c:
        async with AIOKafkaProducer(bootstrap_servers=c.bootstrap) as producer:
            await producer.send_and_wait("orders", b"one")
        async with AIOKafkaConsumer("orders", bootstrap_servers=c.bootstrap, auto_offset_reset="earliest") as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 30)).value == b"one"


async def test_inside_a_running_loop_nothing_needs_to_be_awaited() -> None:
    """As in a notebook: its loop runs, and the cell is plain code."""
    c = cluster().start()
    topic = c.create_topic()
    produce(c, topic, b"one")
    assert read(c, topic) == [b"one"]
    c.stop()
    c.stop()
    assert asyncio.get_running_loop().is_running()


def test_importing_the_plugin_imports_no_broker() -> None:
    code = "import sys, tiered.testing.plugin; print([m for m in ('tiered.broker', 'sqlalchemy', 'asyncio', 'aiohttp', "
    code += "'boto3', 'kio', 'tiered.config') if m in sys.modules])"
    bare = "import sys, pytest; print([m for m in ('asyncio',) if m in sys.modules])"
    loaded, before = (
        subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, check=True).stdout
        for each in (code, bare)
    )
    assert loaded == before == "[]\n"


def test_neither_http_nor_alembic_nor_boto3_is_imported_for_a_round_trip() -> None:
    """What keeps a cluster under a second."""
    code = (
        "import sys; from tiered.testing import cluster\n"
        "with cluster(topics={'orders': 1}) as c: pass\n"
        "print([m for m in ('aiohttp', 'alembic', 'boto3', 'moto', 'unittest.mock') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_http_answers_once_somebody_asks() -> None:
    with cluster(topics={"orders": 2}) as c:
        with urllib.request.urlopen(f"{c.http_url}/api/v1/topics", timeout=30) as answer:
            assert b'"orders"' in answer.read()


def test_sql_shows_the_catalogue() -> None:
    with cluster(topics={"orders": 2}) as c:
        engine = create_engine(c.sql_url)
        with engine.connect() as conn:
            assert conn.execute(text("SELECT name FROM topic")).scalars().all() == ["orders"]
        engine.dispose()


def test_settings_topic_defaults_and_configs_reach_the_broker() -> None:
    with cluster(settings={"num.partitions": 3, "message.max.bytes": 5000}, topic_defaults={"retention.ms": 1234}) as c:
        from confluent_kafka.admin import AdminClient, ConfigResource

        topic = c.create_topic(configs={"segment.ms": 77, "remote.storage.enable": False})
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        admin = AdminClient({"bootstrap.servers": c.bootstrap})
        found = admin.describe_configs([resource])[resource].result(30)
        values = {name: found[name].value for name in found}
        assert values["retention.ms"] == "1234"
        assert values["max.message.bytes"] == "5000"
        assert values["segment.ms"] == "77"
        assert values["remote.storage.enable"] == "false"
        admin.list_topics("made-by-asking", timeout=30)
        assert len(admin.list_topics("made-by-asking", timeout=30).topics["made-by-asking"].partitions) in (0, 3)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"brokers": 0}, ValueError, "1 to 16 are"),
        ({"brokers": 3, "in_process": False}, ValueError, "needs PostgreSQL"),
        ({"s3": "minio"}, ValueError, "moto"),
        ({"s3": "moto", "store": "file:///x"}, ValueError, "leave store away"),
        ({"settings": {"no.such": 1}}, InvalidConfig, "no.such"),
        ({"topic_defaults": {"no.such": 1}}, InvalidConfig, "no.such"),
        ({"topic_defaults": {"remote.log.copy.disable": True}}, InvalidConfig, "create_topic"),
        ({"settings": {"no.such": 1}, "in_process": False}, InvalidConfig, "no.such"),
        ({"settings": {"num.partitions": "many"}}, InvalidConfig, "num.partitions"),
        ({"sql": "sqlite:////nowhere/at/all.db"}, Exception, "nowhere"),
        ({"topics": {"a b": 1}}, BrokerError, "a b"),
    ],
)
def test_what_is_not_possible_is_said_and_leaves_nothing(
    options: dict[str, object], error: type[Exception], words: str
) -> None:
    before = traces()
    with pytest.raises(error, match=words):
        with cluster(**options):  # type: ignore[arg-type]
            pass
    assert left_since(before) == set()


def test_a_cluster_that_cannot_start_does_not_keep_its_folder_locked(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        cluster(data=tmp_path / "data", store="ftp://nowhere").start()
    with cluster(data=tmp_path / "data") as c:
        assert c.health()["serving"]


@pytest.mark.parametrize("in_process", [True, False])
def test_a_folder_may_have_any_name(tmp_path: Path, in_process: bool) -> None:
    data = tmp_path / "a b%20#c?d+ä'\"&=@:"
    with cluster(data=data, topics={"orders": 1}, in_process=in_process) as c:
        produce(c, "orders", b"one")
        c.tier("orders")
    assert list((data / "objects").rglob("*.seg"))
    assert (data / "meta.db").exists()
    assert {each.name for each in tmp_path.iterdir()} <= {data.name, data.name + ".log"}


def test_a_start_that_nobody_waits_for_any_more_leaves_nothing() -> None:
    async def cancel(delay_s: float) -> None:
        starting = asyncio.create_task(cluster(topics={"orders": 1}).__aenter__())
        await asyncio.sleep(delay_s)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    with cluster():
        pass
    before = traces()
    for delay_s in (0.0, 0.02):
        asyncio.run(cancel(delay_s))
    assert left_since(before) == set()


def test_missing_moto_is_said_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['moto'] = None\nfrom tiered.testing import cluster\n"
        "try:\n    cluster(s3='moto').start()\nexcept ImportError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'moto[s3,server]'" in run.stdout


def test_the_errors_of_a_cluster_that_does_not_run_say_so() -> None:
    c = cluster()
    with pytest.raises(RuntimeError, match="not running"):
        _ = c.bootstrap
    with c:
        with pytest.raises(RuntimeError, match="runs already"):
            c.start()
        with pytest.raises(RuntimeError, match='s3="moto"'):
            _ = c.s3


def test_a_kept_folder_has_the_records_next_time_and_is_locked_meanwhile(tmp_path: Path) -> None:
    with cluster(data=tmp_path / "data", topics={"orders": 1}) as c:
        produce(c, "orders", b"one")
        with pytest.raises(AlreadyRunning):
            cluster(data=tmp_path / "data").start()
    with cluster(data=tmp_path / "data") as c:
        assert read(c, "orders") == [b"one"]


def test_clusters_in_one_process_know_nothing_of_each_other() -> None:
    with cluster(topics={"orders": 1}) as one, cluster(topics={"orders": 1}) as two:
        produce(one, "orders", b"one")
        produce(two, "orders", b"two")
        one.broker.kill()
        assert read(two, "orders") == [b"two"]
        one.broker.start()
        assert read(one, "orders") == [b"one"]


def test_signals_collector_and_limits_are_left_as_they_were() -> None:
    def seen() -> list[object]:
        import resource

        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        return [*handlers, gc.get_threshold(), resource.getrlimit(resource.RLIMIT_NOFILE), dict(os.environ)]

    before, frozen_before = seen(), gc.get_freeze_count()
    with cluster(s3="moto"):
        assert seen() == before
        assert gc.get_freeze_count() <= frozen_before, "a cluster froze objects of the process that it lives in"
    assert seen() == before


def traces() -> set[str]:
    """Threads and open descriptors of this process."""
    gc.collect()
    found = {f"thread {thread.name} {thread.ident}" for thread in threading.enumerate()}
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"descriptor {name} {Path('/proc/self/fd', name).readlink()}")
        except OSError:
            continue  # That of the listing itself.
    return found


def left_since(before: set[str], *, patience_s: float = 10.0) -> set[str]:
    """What is there now and was not before. Threads of uploads that a kill left alone are given time to end."""
    ended = threading.Event()
    left = traces() - before
    for _ in range(int(patience_s / 0.05)):
        if not left:
            break
        ended.wait(0.05)
        left = traces() - before
    return left


@pytest.mark.parametrize(
    ("options", "count"),
    [
        # Each third cluster ends in another way. What is left by all of them adds up, so few show it.
        pytest.param({}, 6, id="folder"),
        pytest.param({"s3": "moto"}, 3, id="moto"),
        pytest.param({"brokers": 3}, 3, id="three-brokers"),
        pytest.param({}, 60, id="folder-long", marks=pytest.mark.soak),
        pytest.param({"s3": "moto"}, 20, id="moto-long", marks=pytest.mark.soak),
    ],
)
def test_many_clusters_leave_no_thread_and_no_descriptor(options: dict[str, object], count: int) -> None:
    folders = set()

    def once(number: int) -> None:
        with cluster(**options, topics={"orders": 1}) as c:  # type: ignore[arg-type]
            folders.add(c.data.parent)
            produce(c, "orders", b"one")
            if number % 3 == 0:
                c.broker.kill()
            if number % 3 == 1:
                with urllib.request.urlopen(f"{c.http_url}/healthz", timeout=30):
                    pass
                c.tier("orders", keep_local=False)
                assert read(c, "orders") == [b"one"]

    for number in range(3):
        once(number)  # What is imported and kept for good: moto, the catalogue's bytes.
    before = traces()
    for number in range(count):
        once(number)
    assert left_since(before) == set()
    assert not [folder for folder in folders if folder.exists()]


def test_a_test_that_raises_leaves_nothing() -> None:
    with cluster():
        pass
    before = traces()
    with pytest.raises(ZeroDivisionError):
        with cluster(topics={"orders": 1}) as c:
            produce(c, "orders", b"one")
            _ = 1 / 0
    assert left_since(before) == set()


def test_a_client_that_waits_for_records_does_not_hold_the_end_up() -> None:
    c = cluster(topics={"orders": 1}).start()
    consumer = Consumer(
        {"bootstrap.servers": c.bootstrap, "group.id": "g", "fetch.wait.max.ms": 30_000, "log_level": 0}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.poll(0.3) is None
    ended = threading.Thread(target=c.stop)
    ended.start()
    ended.join(10)
    assert not ended.is_alive(), "stopping waited for a long poll"
    consumer.close()


def test_the_ports_stay_ours_while_no_broker_listens() -> None:
    with cluster() as c:
        port = int(c.bootstrap.rpartition(":")[2])
        c.broker.stop()
        with closing(socket.socket()) as other:
            with pytest.raises(ConnectionRefusedError):
                other.connect(("127.0.0.1", port))
        with closing(socket.socket()) as other:
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
        c.broker.start()
        c.create_topic("orders")


def test_the_quick_settings_are_known_to_the_broker() -> None:
    from tiered.config import BROKER_SETTINGS

    assert set(testing.QUICK_SETTINGS) <= set(BROKER_SETTINGS)
