"""Verification of what real brokers write: no false alarm, whatever was deleted and while they run; damage is found."""

import threading
import time
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.unit.cold.verified_store import only, verify
from tiered.cold.opening import open_store
from tiered.cold.verify.verification import VerificationState
from tiered.formats.segment_check import FaultKind
from tiered.testing import LocalCluster, cluster

TOPIC = "orders"
RECORDS = 300
WAIT_S = 60.0


def eventually(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def produce(c: LocalCluster, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": c.bootstrap, "linger.ms": 1, "batch.num.messages": 20})
    for number in range(count):
        producer.produce(TOPIC, b"%d " % number * 40, partition=number % 2)
    assert producer.flush(WAIT_S) == 0


def verified(c: LocalCluster, **options: object) -> VerificationState:
    return verify(open_store(c.store_url), **options)


@pytest.fixture
def running() -> Iterator[LocalCluster]:
    settings = {f"tiered.{what}.interval.ms": "50" for what in ("upload", "checkpoint", "sweep")}
    # A few batches a segment, so that there is a chain; and what is retired goes at once.
    configs = {"segment.bytes": "4096", "tiered.chunk.bytes": "4096", "tiered.purge.grace.ms": "0"}
    with cluster(settings=settings) as c:
        c.create_topic(TOPIC, partitions=2, configs=configs)
        produce(c)
        c.tier(TOPIC)
        yield c


def segment_files(c: LocalCluster) -> list[Path]:
    return sorted(Path(path) for path in glob(f"{unquote(urlsplit(c.store_url).path)}/segments/*/*/*/*.seg"))


def delete_before(c: LocalCluster, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": c.bootstrap})
    for future in admin.delete_records([TopicPartition(TOPIC, partition, offset)]).values():
        assert future.result(WAIT_S).low_watermark == offset


def test_what_brokers_upload_is_whole_and_one_flipped_bit_is_found(running: LocalCluster) -> None:
    state = verified(running, with_orphans=True)
    assert (state.problems, state.partitions, state.orphans) == ([], 2, [])
    assert state.checked_segments == state.segments > 10
    path = segment_files(running)[5]
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    found = only(verified(running))
    assert (found.fault.kind, found.topic) == (FaultKind.CHUNK, TOPIC)
    assert path.as_posix().endswith(found.object_key)


def test_deleted_records_are_not_missed(running: LocalCluster) -> None:
    before = verified(running).segments
    delete_before(running, 0, 71)
    delete_before(running, 1, RECORDS // 2)
    produce(running)
    running.tier(TOPIC)
    eventually(lambda: verified(running).segments > before // 2, "the checkpoints tell of the new segments")
    state = verified(running)
    assert (state.problems, state.partitions) == ([], 2)


def test_nothing_is_wrong_while_brokers_upload_and_retire(running: LocalCluster) -> None:
    stop = threading.Event()
    objects = set(segment_files(running))
    states: list[VerificationState] = []

    def change() -> None:
        for turn in range(200):
            if stop.is_set():
                return
            produce(running, 60)
            delete_before(running, turn % 2, 30 * (turn // 2 + 1))

    def has_met_a_change() -> bool:
        states.append(verified(running, parallel=1))
        return len(states) >= 5 and not objects <= set(segment_files(running))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        eventually(has_met_a_change, "retired objects are deleted")
    finally:
        stop.set()
        thread.join()
    assert [problem for state in states for problem in state.problems] == []
    assert max(state.checked_segments for state in states) > 10
