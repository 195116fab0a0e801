"""What a broker tells of transactions that it finds in its log: to consumers, and to who asks for producers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.support.partition_appends import NOW_MS, batch
from tests.support.topics import create
from tests.support.transactions import transactional_batch
from tests.unit.hot.log_files import append, open_log
from tiered.formats.control_record import MarkerType, TransactionMarker, encode_marker
from tiered.formats.record_batch import whole_batches
from tiered.wire import messages

LIST_OFFSETS, PRODUCERS = 2, 61
LATEST = -1
ABORT = TransactionMarker(type=MarkerType.ABORT, coordinator_epoch=5)
QUICK_UPLOADS = {
    "log.retention.check.interval.ms": 100,
    "tiered.sweep.interval.ms": 100,
    "log.local.retention.bytes": -2,
}


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """Has found in partition 0 of `t`: a plain record, one of producers 7 and 8 each, and an abort of producer 7."""
    made = make_broker()
    made.start()
    create(made, "t")
    with RawConnection(made) as connection:
        connection.produce("t", bytes(batch("v")))
    made.stop()
    marker = encode_marker(ABORT, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)
    into_log(made, transactional_batch(7), transactional_batch(8), marker)
    made.start()
    return made


def into_log(broker: BrokerProcess, *batches: bytearray) -> None:
    """Appends to the log of a broker that has stopped, which finds out about it when it starts."""
    log = open_log(log_of(broker))
    for data in batches:
        append(log, data)
    log.discard()


def log_of(broker: BrokerProcess) -> Path:
    (found,) = (broker.data / "log").glob("*/0")
    return found


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_read_committed_fetch_names_what_was_aborted_and_ends_at_what_is_open(
    broker: BrokerProcess, version: int
) -> None:
    with RawConnection(broker) as connection:
        committed = connection.fetch("t", 0, isolation_level=1, version=version)
        assert (committed.last_stable_offset, committed.high_watermark) == (2, 4)
        assert [tuple(each) for each in committed.aborted_transactions or ()] == [(7, 1)]
        assert offsets(committed.records) == [0, 1]
        beyond = connection.fetch("t", 2, isolation_level=1, version=version)
        assert (offsets(beyond.records), beyond.aborted_transactions) == ([], [])
        everything = connection.fetch("t", 0, isolation_level=0, version=version)
        assert (offsets(everything.records), everything.aborted_transactions) == ([0, 1, 2, 3], None)


def offsets(records: object) -> list[int]:
    data = bytes(records or b"")  # type: ignore[call-overload]
    return [header.base_offset for _, header in whole_batches(data, 0, len(data))]


def test_the_end_for_a_read_committed_consumer_is_where_something_is_open(broker: BrokerProcess) -> None:
    make = messages.request(LIST_OFFSETS, 11)
    partition = make.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
    with RawConnection(broker) as connection:
        ends = [
            connection.ask(
                LIST_OFFSETS,
                11,
                make.ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=level,
                    topics=[make.ListOffsetsTopic(name="t", partitions=[partition])],
                    timeout=1000,
                ),
            ).topics[0].partitions[0].offset
            for level in (0, 1)
        ]  # fmt: skip
    assert ends == [4, 2]


def test_producers_are_told_with_what_they_have_open(broker: BrokerProcess) -> None:
    make = messages.request(PRODUCERS, 0)
    request = make.DescribeProducersRequest(topics=[make.TopicRequest(name="t", partition_indexes=(0,))])
    with RawConnection(broker) as connection:
        told = connection.ask(PRODUCERS, 0, request).topics[0].partitions[0].active_producers
    assert {each.producer_id: (each.current_txn_start_offset, each.coordinator_epoch) for each in told} == {
        7: (-1, 5),
        8: (2, -1),
    }


def test_a_transaction_whose_end_was_torn_off_above_the_store_holds_nobody_back(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    """By T1 it has ended: its records are in the store. Nobody is going to end it a second time."""
    broker = make_broker(settings=QUICK_UPLOADS)
    broker.start()
    create(broker, "t")
    broker.stop()
    log = open_log(log_of(broker))
    append(log, transactional_batch(7))
    log.producer_source = log.producers_at_end
    log.roll(NOW_MS)
    append(log, encode_marker(ABORT, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS))
    log.discard()
    broker.start()
    broker.wait_cold("t", end_offset=1)
    broker.kill()
    for path in [*log_of(broker).glob("recovery-point*"), log_of(broker) / f"{1:020}.log"]:
        path.unlink()
    for starts in range(2):
        broker.start()
        with RawConnection(broker) as connection:
            found = connection.fetch("t", 0, isolation_level=1)
            assert found.last_stable_offset == found.high_watermark == 1 + starts
            connection.produce("t", bytes(batch("v")))
        broker.kill()
