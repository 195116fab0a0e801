"""wire.md 22 to 30: what consumers rely on."""

import os
import signal
import threading
import time
from uuid import uuid4

import pytest

from tests.broker_process import BrokerProcess
from tests.clients import clients
from tests.clients.raw import RawConnection
from tests.components.batches import FIRST_MS, batch
from tests.components.wire.list_offsets import offset_at
from tests.support.topics import create
from tiered.formats import record_batch
from tiered.formats.record_batch import Compression
from tiered.wire import fetch, messages

MIB = 1 << 20


def test_a_fetch_is_held_until_max_wait_when_there_is_nothing(broker: BrokerProcess) -> None:
    topic = create(broker, "held")
    with RawConnection(broker) as connection:
        started = time.monotonic()
        answer = connection.fetch(topic, 0, max_wait_ms=300)
        assert time.monotonic() - started >= 0.29
        assert (answer.error_code, answer.records or b"") == (0, b"")


def test_a_held_fetch_is_answered_as_soon_as_data_comes(broker: BrokerProcess) -> None:
    topic = create(broker, "woken", partitions=2)
    with RawConnection(broker) as consumer, RawConnection(broker) as producer:
        timer = threading.Timer(0.2, lambda: producer.produce(topic, batch(), partition=1))
        timer.start()
        started = time.monotonic()
        answer = consumer.fetch_many([(topic, 0, 0, -1, MIB), (topic, 1, 0, -1, MIB)], max_wait_ms=20_000)
        assert time.monotonic() - started < 20
        assert len(bytes(answer.topics[1].partitions[0].records or b"")) > 61  # type: ignore[arg-type]
        timer.join()


def test_data_that_comes_in_the_same_breath_as_a_fetch_is_not_waited_for(broker: BrokerProcess) -> None:
    topic = create(broker, "same-breath")
    with RawConnection(broker) as consumer, RawConnection(broker) as producer:
        for connection in (consumer, producer):
            connection.fetch(topic, 0)
        answers: list[fetch.FetchPartitionResult] = []
        fetching = threading.Thread(target=lambda: answers.append(consumer.fetch(topic, 0, max_wait_ms=20_000)))
        producing = threading.Thread(target=lambda: producer.produce(topic, batch()))
        # Both requests are there when the broker goes on, the Fetch first, and so are read in one turn of its loop.
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            fetching.start()
            time.sleep(0.2)
            producing.start()
            time.sleep(0.2)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        started = time.monotonic()
        fetching.join()
        producing.join()
        assert time.monotonic() - started < 20
        assert len(bytes(answers[0].records or b"")) > 61  # type: ignore[arg-type]


def test_min_bytes_is_waited_for(broker: BrokerProcess) -> None:
    topic = create(broker, "min-bytes")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch())
        started = time.monotonic()
        answer = connection.fetch(topic, 0, min_bytes=100_000, max_wait_ms=300)
        assert time.monotonic() - started >= 0.29
        assert len(bytes(answer.records or b"")) > 61  # type: ignore[arg-type]


def test_an_error_in_any_partition_answers_at_once(broker: BrokerProcess) -> None:
    topic = create(broker, "error-at-once")
    with RawConnection(broker) as connection:
        started = time.monotonic()
        answer = connection.fetch_many([(topic, 0, 0, -1, MIB), ("missing", 0, 0, -1, MIB)], max_wait_ms=20_000)
        assert time.monotonic() - started < 20
        assert [each.partitions[0].error_code for each in answer.topics] == [0, 3]


def test_a_client_that_goes_away_leaves_no_wait_behind(broker: BrokerProcess) -> None:
    topic = create(broker, "gone")
    before = broker.metric("tiered_connections")
    connections = [RawConnection(broker) for _ in range(10)]
    for connection in connections:
        topics = [fetch.FetchTopic(topic, None, [fetch.FetchPartition(0, -1, 0, -1, -1, MIB)])]
        request = fetch.FetchRequest(-1, -1, 60_000, 1, MIB, 0, 0, -1, topics)
        connection.send(1, 11, fetch.encode_fetch_request(request, 11))
    deadline = time.monotonic() + 30
    while broker.metric("tiered_connections") < before + 10:
        assert time.monotonic() < deadline
    for connection in connections:
        connection.close()
    while broker.metric("tiered_connections") > before:
        assert time.monotonic() < deadline, "the broker still holds connections of clients that are gone"
        time.sleep(0.05)


def test_the_first_non_empty_partition_gives_a_whole_batch_above_every_limit(broker: BrokerProcess) -> None:
    topic = create(broker, "kip-74", partitions=3)
    with RawConnection(broker) as connection:
        large = batch([b"x" * 5000])
        for partition in (1, 2):
            connection.produce(topic, large, partition=partition)
        wanted = [(topic, partition, 0, -1, 10) for partition in range(3)]
        answer = connection.fetch_many(wanted, max_bytes=10)
        sizes = [len(bytes(each.partitions[0].records or b"")) for each in answer.topics]  # type: ignore[arg-type]
        assert sizes == [0, len(large), 0]


def test_limits_cut_at_whole_batches_in_the_order_of_the_request(broker: BrokerProcess) -> None:
    topic = create(broker, "limits", partitions=2)
    with RawConnection(broker) as connection:
        one = batch([b"x" * 1000])
        for _ in range(5):
            for partition in (0, 1):
                connection.produce(topic, one, partition=partition)
        answer = connection.fetch_many(
            [(topic, 1, 0, -1, 3 * len(one) + 10), (topic, 0, 0, -1, MIB)], max_bytes=4 * len(one) + 10
        )
        sizes = [len(bytes(each.partitions[0].records or b"")) for each in answer.topics]  # type: ignore[arg-type]
        assert sizes == [3 * len(one), len(one)]


def test_an_answer_ends_at_16_mib_of_logs_however_much_is_asked_for(broker: BrokerProcess) -> None:
    topic = create(broker, "large", partitions=2)
    with RawConnection(broker) as connection:
        one = batch([b"x" * 900_000])
        for number in range(24):
            connection.produce(topic, one, partition=number % 2)
        wanted = [(topic, partition, 0, -1, 20 * MIB) for partition in (0, 1)]
        answer = connection.fetch_many(wanted, min_bytes=50 * MIB, max_bytes=50 * MIB, max_wait_ms=60_000)
        sizes = [len(bytes(each.partitions[0].records or b"")) for each in answer.topics]  # type: ignore[arg-type]
        assert sizes == [12 * len(one), 16 * MIB // len(one) * len(one) - 12 * len(one)]


def test_the_first_batch_may_begin_before_the_fetch_offset(broker: BrokerProcess) -> None:
    topic = create(broker, "middle")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"v"] * 10))
        header = record_batch.read_header(bytes(connection.fetch(topic, 7).records or b""))  # type: ignore[arg-type]
        assert (header.base_offset, header.last_offset) == (0, 9)


def test_offsets_at_the_end_are_empty_and_outside_are_out_of_range(broker: BrokerProcess) -> None:
    topic = create(broker, "range", partitions=2)
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"v"] * 5))
        at_end = connection.fetch(topic, 5)
        assert (at_end.error_code, at_end.high_watermark, bytes(at_end.records or b"")) == (0, 5, b"")  # type: ignore[arg-type]
        answer = connection.fetch_many([(topic, 0, 6, -1, MIB), (topic, 0, 0, -1, MIB), (topic, 0, -1, -1, MIB)])
        assert [each.partitions[0].error_code for each in answer.topics] == [1, 0, 1]


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_with_names_returns_the_batch(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"fetch-{version}")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"hello"]))
        answer = connection.fetch(topic, 0, version=version)
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 1, 1)
        found = list(record_batch.records(bytes(answer.records or b"")))  # type: ignore[arg-type]
        assert [record.value for record in found] == [b"hello"]


@pytest.mark.parametrize("version", range(13, 19))
def test_versions_with_topic_ids_find_the_topic_and_name_unknown_ids(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"fetch-{version}")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"hello"]))
        namespace = messages.request(3, 12)
        asked = namespace.MetadataRequestTopic(topic_id=None, name=topic)
        topic_id = (
            connection.ask(3, 12, namespace.MetadataRequest(topics=[asked], include_topic_authorized_operations=False))
            .topics[0]
            .topic_id
        )
        topics = [
            fetch.FetchTopic(None, each, [fetch.FetchPartition(0, -1, 0, -1, -1, MIB)]) for each in (topic_id, uuid4())
        ]
        request = fetch.FetchRequest(-1, -1, 0, 1, MIB, 0, 0, -1, topics)
        data = connection.call(1, version, fetch.encode_fetch_request(request, version))
        answer = fetch.decode_fetch_response(data, 0, len(data), version)
        assert [each.partitions[0].error_code for each in answer.topics] == [0, 100]
        assert answer.topics[0].topic_id == topic_id


@pytest.mark.parametrize("session_epoch", [0, -1])
@pytest.mark.parametrize("session_id", [0, -1, 42])
def test_a_full_request_is_answered_whatever_session_it_names(
    broker: BrokerProcess, session_id: int, session_epoch: int
) -> None:
    topic = create(broker, f"sessions-{session_id}-{session_epoch}")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch())
        wanted = [(topic, 0, 0, -1, MIB)]
        full = connection.fetch_many(wanted, session_id=session_id, session_epoch=session_epoch)
        assert (full.error_code, full.session_id) == (0, 0)
        assert full.topics[0].partitions[0].records


@pytest.mark.parametrize("session_id", [0, 42])
def test_the_next_request_of_a_session_finds_none(broker: BrokerProcess, session_id: int) -> None:
    with RawConnection(broker) as connection:
        answer = connection.fetch_many([], session_id=session_id, session_epoch=3)
        assert (answer.error_code, answer.session_id, answer.topics) == (70, 0, [])


def test_read_committed_lists_no_aborted_transactions_and_read_uncommitted_has_none(broker: BrokerProcess) -> None:
    topic = create(broker, "isolation")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch())
        committed = connection.fetch(topic, 0, isolation_level=1)
        assert (committed.aborted_transactions, committed.last_stable_offset) == ([], 1)
        assert connection.fetch(topic, 0, isolation_level=0).aborted_transactions is None


def test_leader_epochs_fence_and_are_unknown(broker: BrokerProcess) -> None:
    topic = create(broker, "epochs")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch())
        namespace = messages.request(3, 9)
        asked = [namespace.MetadataRequestTopic(name=topic)]
        epoch = (
            connection.ask(
                3,
                9,
                namespace.MetadataRequest(
                    topics=asked, include_cluster_authorized_operations=False, include_topic_authorized_operations=False
                ),
            )
            .topics[0]
            .partitions[0]
            .leader_epoch
        )
        assert epoch >= 0
        assert connection.fetch(topic, 0, leader_epoch=epoch).error_code == 0
        assert connection.fetch(topic, 0, leader_epoch=epoch + 1).error_code == 75
        if epoch:
            assert connection.fetch(topic, 0, leader_epoch=epoch - 1).error_code == 74


def test_a_restart_bumps_the_leader_epoch_and_fences_the_old_one(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    create(process, "restarted")
    with RawConnection(process) as connection:
        connection.produce("restarted", batch([b"a"] * 4))
    process.kill()
    process.start()
    with RawConnection(process) as connection:
        assert connection.fetch("restarted", 0, leader_epoch=0).error_code == 74
        assert connection.fetch("restarted", 0, leader_epoch=1).error_code == 0
        connection.produce("restarted", batch([b"b"]))
        namespace = messages.request(23, 3)
        for epoch, expected in ((0, (0, 4)), (1, (1, 5)), (7, (-1, -1))):
            partition = namespace.OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=epoch)
            topic = namespace.OffsetForLeaderTopic(topic="restarted", partitions=[partition])
            answer = connection.ask(23, 3, namespace.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]))
            found = answer.topics[0].partitions[0]
            assert (found.leader_epoch, found.end_offset) == expected


def test_zstd_needs_fetch_version_10(broker: BrokerProcess) -> None:
    topic = create(broker, "zstd")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"z" * 100], compression=Compression.ZSTD))
        assert connection.fetch(topic, 0, version=9).error_code == 76
        assert connection.fetch(topic, 0, version=10).error_code == 0


def test_a_held_fetch_is_answered_at_once_when_its_topic_goes(broker: BrokerProcess) -> None:
    topic = create(broker, "deleted-meanwhile")
    with RawConnection(broker, timeout_s=30) as connection:
        timer = threading.Timer(0.3, lambda: clients.admin(broker.bootstrap).delete_topics([topic])[topic].result(30))
        timer.start()
        started = time.monotonic()
        assert connection.fetch(topic, 0, max_wait_ms=20_000).error_code in (3, 6)
        assert time.monotonic() - started < 20
        timer.join()


def test_a_held_fetch_is_answered_at_a_controlled_stop_and_holds_nobody_up(make_broker) -> None:  # type: ignore[no-untyped-def]
    broker = make_broker().start()
    topic = create(broker, "stopping")
    with RawConnection(broker, timeout_s=30) as consumer:
        stop = threading.Timer(0.3, broker.stop)
        stop.start()
        answer = consumer.fetch(topic, 0, max_wait_ms=60_000)
        assert answer.error_code in (0, 6)
        assert consumer.is_closed_by_broker()
        stop.join()


def test_limits_hold_for_cold_partitions_too(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"log.segment.bytes": 6000, "log.local.retention.bytes": 1}).start()
    for topic in ("cold", "hot"):
        create(process, topic)
    with RawConnection(process) as connection:
        large = batch([b"x" * 5000])
        for _ in range(4):
            connection.produce("cold", large)
        connection.produce("hot", large)
        process.wait_cold("cold", end_offset=3, only=True)

        def sizes(*topics: str, limit: int) -> list[int]:
            wanted = [(topic, 0, 0, -1, limit) for topic in topics]
            answer = connection.fetch_many(wanted, max_bytes=1 << 20)
            return [len(bytes(each.partitions[0].records or b"")) for each in answer.topics]  # type: ignore[arg-type]

        assert sizes("hot", "cold", limit=10) == [len(large), 0]
        assert sizes("cold", "hot", limit=10) == [len(large), 0]
        assert sizes("hot", "cold", limit=6000) == [len(large), len(large)]


# ListOffsets


def test_list_offsets_checks_the_leader_epoch(broker: BrokerProcess) -> None:
    topic = create(broker, "list-epochs")
    with RawConnection(broker) as connection:
        namespace = messages.request(2, 11)
        for epoch, code in ((-1, 0), (0, 0), (1, 75)):
            partition = namespace.ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
            wanted = namespace.ListOffsetsTopic(name=topic, partitions=[partition])
            request = namespace.ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[wanted], timeout=1000)
            found = connection.ask(2, 11, request).topics[0].partitions[0]
            assert int(found.error_code) == code


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_of_list_offsets_answers_the_ends_and_times(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"ends-{version}")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"v"] * 5))
        assert offset_at(connection, topic, -1, version=version)[:2] == (0, 5)
        assert offset_at(connection, topic, -2, version=version)[:2] == (0, 0)
        assert offset_at(connection, topic, FIRST_MS + 1500, version=version) == (0, 2, FIRST_MS + 2000)


def test_a_time_after_every_record_is_no_error_and_no_offset(broker: BrokerProcess) -> None:
    topic = create(broker, "later")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"v"] * 5))
        assert offset_at(connection, topic, FIRST_MS + 99_999) == (0, -1, -1)


def test_max_timestamp_is_the_record_with_the_greatest_time_wherever_it_is(broker: BrokerProcess) -> None:
    topic = create(broker, "max-timestamp")
    with RawConnection(broker) as connection:
        assert offset_at(connection, topic, -3) == (0, -1, -1)
        connection.produce(topic, batch([b"v"] * 2, first_ms=FIRST_MS))
        connection.produce(topic, batch([b"v"] * 2, first_ms=FIRST_MS + 50_000))
        connection.produce(topic, batch([b"v"] * 2, first_ms=FIRST_MS + 10_000))
        assert offset_at(connection, topic, -3) == (0, 3, FIRST_MS + 51_000)
        assert offset_at(connection, topic, FIRST_MS + 10_000) == (0, 2, FIRST_MS + 50_000)


def test_special_timestamps_that_a_version_lacks_are_refused(broker: BrokerProcess) -> None:
    topic = create(broker, "special")
    with RawConnection(broker) as connection:
        for timestamp_ms, first in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
            assert offset_at(connection, topic, timestamp_ms, version=first - 1)[0] == 35
            assert offset_at(connection, topic, timestamp_ms, version=first)[0] == 0
        assert offset_at(connection, topic, -7)[0] == 35


def test_tier_offsets_and_times_are_found_in_the_cold_tier(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"log.segment.bytes": 3000, "log.local.retention.bytes": 3000}).start()
    create(process, "tiers")
    with RawConnection(process) as connection:
        for number in range(40):
            connection.produce("tiers", batch([b"x" * 900], first_ms=FIRST_MS + 1000 * number))
        assert offset_at(connection, "tiers", -2)[1] == 0
        closed = process.segments("tiers")["segments"][-1]["base_offset"]
        process.wait_cold("tiers", end_offset=closed)
        local_start = process.segments("tiers")["local_log_start_offset"]
        assert 0 < local_start <= closed
        assert offset_at(connection, "tiers", -4)[1] == local_start
        assert offset_at(connection, "tiers", -5)[1] == closed - 1
        assert offset_at(connection, "tiers", -6)[1] == closed
        for number in (0, 1, 7, 20, 39):
            assert offset_at(connection, "tiers", FIRST_MS + 1000 * number) == (0, number, FIRST_MS + 1000 * number)
        assert offset_at(connection, "tiers", FIRST_MS + 6001) == (0, 7, FIRST_MS + 7000)
