"""A full disk: nothing acknowledged is lost, reads go on, and everything heals without a restart."""

import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.tiers import KAFKA_STORAGE_ERROR, NONE, Written, create, eventually, fill, read
from tests.fault_s3.moto_server import aws_environment, moto_s3, store_url
from tests.fault_s3.tiering_broker import uploaded
from tests.support.small_disks import small_disk, take_the_rest
from tiered.formats.record_batch import read_header
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind, faulty_s3

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DISK_BYTES = 32 << 20
SETTINGS = {
    "log.segment.bytes": 1 << 20,
    "log.retention.check.interval.ms": 200,
    "tiered.sweep.interval.ms": 300,
    "tiered.checkpoint.interval.ms": 100,
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The file system of the broker's data folder."""
    with small_disk(tmp_path / "data", DISK_BYTES) as folder:
        yield folder


def fill_until_refused(broker: BrokerProcess, topic: str) -> tuple[Written, int]:
    """What was acknowledged until the first refusal, and its error code."""
    written: Written = []
    number, size = 0, 100_000
    with RawConnection(broker, timeout_s=30) as connection:
        while True:
            number += 1
            value = (b"%06d-" % number).ljust(size, b"f")
            answer = connection.produce(topic, batch([value], first_ms=int(time.time() * 1000)))
            if answer.error_code == NONE:
                written.append((answer.base_offset, value))
            elif size > 100:
                size //= 10  # Smaller ones may still find room.
            else:
                return written, answer.error_code


def produces_again(broker: BrokerProcess, topic: str) -> bool:
    with RawConnection(broker) as connection:
        return connection.produce(topic, batch([b"again"], first_ms=int(time.time() * 1000))).error_code == NONE


def limit_files(broker: BrokerProcess, size_bytes: int) -> None:
    """No file of the broker grows beyond that: EFBIG, as a quota gives it."""
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
def test_what_comes_behind_a_refused_batch_is_refused_as_it_was_and_not_out_of_order(
    make_broker: Callable[..., BrokerProcess], is_known: bool
) -> None:
    """A client that is told of an order would take a new epoch, and send again what other partitions have."""
    broker, topic = make_broker().start(), "behind"
    assert create(broker, topic) == NONE

    def error_of(sequence: int) -> int:
        first_ms = int(time.time() * 1000)
        data = batch([b"%d" % sequence], producer_id=7, producer_epoch=0, base_sequence=sequence, first_ms=first_ms)
        return int(connection.produce(topic, data).error_code)

    first = 1 if is_known else 0
    with RawConnection(broker) as connection:
        assert not is_known or error_of(0) == NONE
        limit_files(broker, 1)
        assert [error_of(first + each) for each in range(3)] == [KAFKA_STORAGE_ERROR] * 3
        limit_files(broker, resource.RLIM_INFINITY)
        assert error_of(first + 1) == KAFKA_STORAGE_ERROR, "the one before it still has to come"
        assert [error_of(first + each) for each in range(3)] == [NONE] * 3
        assert error_of(first + 5) == OUT_OF_ORDER_SEQUENCE_NUMBER
        if is_known:
            limit_files(broker, 1)
            assert error_of(first + 2) == NONE, "it is there already"
            limit_files(broker, resource.RLIM_INFINITY)
    assert [value for _, value in read(broker, topic)] == [b"%d" % each for each in range(first + 3)]


def test_a_producer_with_batches_on_their_way_keeps_its_epoch_through_a_full_disk(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker, topic = make_broker().start(), "epochs"
    assert create(broker, topic) == NONE
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
    values = [b"%06d" % each for each in range(600)]
    for number, value in enumerate(values):
        producer.produce(topic, value)
        producer.poll(0.002)
        if number == 200:
            producer.flush(60)
            limit_files(broker, 1)
        if number == 500:
            limit_files(broker, resource.RLIM_INFINITY)
    assert producer.flush(60) == 0
    assert [value for _, value in read(broker, topic)] == values
    epochs = set()
    for path in (broker.data / "log").rglob("*.log"):
        data, position = path.read_bytes(), 0
        while position < len(data):
            header = read_header(data, position)
            epochs.add(header.producer_epoch)
            position += header.size_bytes
    assert epochs == {0}


def test_full_disk_refuses_produce_and_heals_when_there_is_space(
    disk: Path, make_broker: Callable[..., BrokerProcess]
) -> None:
    broker = make_broker(settings=SETTINGS).start()
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(8 << 20))
    assert create(broker, "local", remote_storage_enable="false") == NONE
    written, code = fill_until_refused(broker, "local")
    assert code == KAFKA_STORAGE_ERROR
    assert len(written) > 50
    take_the_rest(disk / "others")
    assert read(broker, "local") == written
    assert broker.metric("tiered_disk_errors_total") > 0
    time.sleep(1.0)  # Flushes, rolls, reports and heartbeats meet the full disk too.
    assert broker.get("/readyz")["failed_partitions"] == []
    assert broker.log().count("\n") < 200, "a full disk does not flood the log that may lie on it"
    ballast.unlink()
    eventually(lambda: produces_again(broker, "local"), "produce is taken again", broker)
    again = read(broker, "local")
    assert again[: len(written)] == written
    assert [offset for offset, _ in again] == list(range(len(again)))
    broker.kill()
    broker.start()
    assert read(broker, "local") == again
    assert "Traceback" not in broker.log(), broker.log()[-4000:]


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with moto_s3() as url:
        yield url


@pytest.fixture
def faults(s3_url: str) -> Iterator[FaultyS3]:
    with faulty_s3(s3_url) as faults, aws_environment():
        yield faults


def test_disk_that_filled_while_s3_was_away_empties_itself_afterwards(
    disk: Path, faults: FaultyS3, make_broker: Callable[..., BrokerProcess]
) -> None:
    """The catalogue is on the full disk too: uploads need it to make space."""
    settings = {**SETTINGS, "log.local.retention.bytes": 1}
    broker = make_broker("--store", store_url(faults.url, "full"), settings=settings).start()
    assert create(broker, "orders") == NONE
    old = fill(broker, "orders", 600)
    broker.wait_cold("orders", end_offset=500, only=True)
    faults.misbehave(seed=1, probability=1.0, kinds=(S3FaultKind.SERVER_ERROR,))
    written, code = fill_until_refused(broker, "orders")
    assert code == KAFKA_STORAGE_ERROR
    start = broker.segments("orders")["local_log_start_offset"]
    assert read(broker, "orders", offset=start) == (old + written)[start:]
    broker.kill()
    broker.start()
    assert read(broker, "orders", offset=start) == (old + written)[start:]
    before_healing = len(uploaded(faults))
    faults.heal()
    eventually(lambda: read(broker, "orders", offset=0) is not None, "cold reads go on", broker)
    eventually(lambda: produces_again(broker, "orders"), "uploads make space", broker)
    found = read(broker, "orders")
    assert found[: len(old + written)] == old + written
    assert [offset for offset, _ in found] == list(range(len(found)))
    # All that was closed during the outage has to arrive, whatever is produced behind it.
    broker.wait_cold("orders", end_offset=written[len(written) // 2][0], only=True)
    drained = [base_offset for _, _, base_offset in uploaded(faults)[before_healing:]]
    # A commit that finds the disk full is not confirmed: its segment goes again, and the first object is swept.
    assert drained == sorted(drained), "the oldest first"
    rows = broker.segments("orders")["segments"]
    assert [each["base_offset"] for each in rows] == sorted({each["base_offset"] for each in rows}), "each counts once"
    assert [each["base_offset"] for each in rows[1:]] == [each["end_offset"] for each in rows[:-1]]
    assert "Traceback" not in broker.log(), broker.log()[-4000:]


def test_limit_on_the_size_of_files_refuses_and_reads_go_on(make_broker: Callable[..., BrokerProcess]) -> None:
    """EFBIG instead of ENOSPC, as quotas give it: the segment stays below the limit and the next one is taken."""
    broker = make_broker(
        settings={**SETTINGS, "log.segment.bytes": 8 << 20}, prefix=["prlimit", f"--fsize={4 << 20}:unlimited"]
    )
    broker.start()
    assert create(broker, "local", remote_storage_enable="false") == NONE
    written, code = fill_until_refused(broker, "local")
    assert code == KAFKA_STORAGE_ERROR
    assert read(broker, "local") == written
    subprocess.run(["prlimit", f"--pid={broker.pid}", "--fsize=unlimited:unlimited"], check=True)
    assert produces_again(broker, "local")
    broker.kill()
    broker.prefix = []
    broker.start()
    assert read(broker, "local")[: len(written)] == written
