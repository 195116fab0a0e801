"""Too few descriptors: said in words at the start, refused cleanly while it lasts, and no log has failed of it."""

import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.tiers import KAFKA_STORAGE_ERROR, NONE, create, eventually, read

SETTINGS = {"log.segment.bytes": 100_000, "tiered.upload.interval.ms": 100}


def highest_file(broker: BrokerProcess) -> int:
    """The number of the last descriptor that the broker has open. A limit is one of numbers."""
    return max(int(path.name) for path in Path(f"/proc/{broker.pid}/fd").iterdir())


def is_refused(sock: socket.socket) -> bool:
    """Whether the broker closes the connection, rather than to serve it."""
    sock.settimeout(1.0)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False


def limit_files(broker: BrokerProcess, count: int) -> None:
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (count, hard))


def test_without_descriptors_clients_are_refused_in_words_and_all_goes_on_when_there_are_some(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker, topic = make_broker(settings=SETTINGS).start(), "orders"
    assert create(broker, topic, remote_storage_enable="false") == NONE
    written: list[bytes] = []

    def produce() -> int:
        value = (b"%06d-" % len(written)).ljust(30_000, b"f")
        code = int(connection.produce(topic, batch([value], first_ms=int(time.time() * 1000))).error_code)
        if code == NONE:
            written.append(value)
        return code

    with RawConnection(broker, timeout_s=30) as connection:
        assert produce() == NONE
        before, _ = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        limit_files(broker, highest_file(broker) + 1)
        others: list[socket.socket] = []
        while not others or not is_refused(others[-1]):
            assert len(others) < 10, "clients are left to wait"
            others.append(socket.create_connection(("127.0.0.1", broker.kafka_port), timeout=10))
        codes = [produce() for _ in range(10)]
        assert codes[-1] == KAFKA_STORAGE_ERROR, "no next segment can be made"
        limit_files(broker, before)
        assert produce() == NONE
        for sock in others:
            sock.close()
    assert broker.get("/readyz")["failed_partitions"] == []
    eventually(lambda: [value for _, value in read(broker, topic)] == written, "everything is there", broker)
    words = broker.log()
    assert "connection from 127.0.0.1 refused: this process may have " in words
    assert "LimitNOFILE=" in words
    assert "fsync failed" not in words
    assert "Traceback" not in words, words[-4000:]
    assert words.count("files open") < 20, "said, and not on and on"
    broker.kill()
    broker.start()
    assert [value for _, value in read(broker, topic)] == written


def test_a_start_that_has_too_few_for_its_logs_is_refused_before_it_is_ready(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker().start()
    assert create(broker, "many", partitions=100, remote_storage_enable="false") == NONE
    broker.stop()
    broker.prefix = ["prlimit", "--nofile=120:120"]
    with pytest.raises(AssertionError, match=r"120 files open, and this broker needs 150 .*LimitNOFILE="):
        broker.start()
    broker.prefix = ["prlimit", "--nofile=180:180"]
    broker.start()
    assert "leaves 1 for connections beside 100 logs" in broker.log()
    with RawConnection(broker) as connection:
        assert connection.produce("many", batch([b"a"], first_ms=int(time.time() * 1000))).error_code == NONE


def test_logs_that_cannot_be_opened_are_opened_when_the_limit_is_raised(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker().start()
    limit_files(broker, 80)
    assert create(broker, "many", partitions=60, remote_storage_enable="false") == KAFKA_STORAGE_ERROR
    assert [partition for partition in range(60) if produces(broker, "many", partition)] == list(range(30))
    assert "the log of many-30 is not opened: this process may have 80 files open" in broker.log()
    limit_files(broker, 1_000)
    eventually(
        lambda: all(produces(broker, "many", partition) for partition in range(60)),
        "all partitions take records",
        broker,
    )
    assert broker.get("/readyz")["failed_partitions"] == []
    assert "Traceback" not in broker.log(), broker.log()[-4000:]


def produces(broker: BrokerProcess, topic: str, partition: int) -> bool:
    with RawConnection(broker) as connection:
        answer = connection.produce(topic, batch([b"a"], first_ms=int(time.time() * 1000)), partition=partition)
        return answer.error_code == NONE
