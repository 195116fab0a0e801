"""What clients that mean harm, or are broken, can do: to themselves everything, to others nothing."""

import socket
import struct
import threading
import time

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch, patched
from tests.support.hostile_frames import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    MIB,
    bystander,
    frame,
    resident_mib,
)
from tests.support.topics import create
from tiered.formats import record_batch
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.wire import fetch, messages, produce


def compact(number: int) -> bytes:
    """An unsigned variable-length integer."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


# Time


def test_a_request_that_does_not_arrive_in_full_ends_its_connection(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"tiered.request.receive.timeout.ms": 400}).start()
    with RawConnection(process) as stuck, RawConnection(process) as trickling, RawConnection(process) as idle:
        stuck.send_bytes(struct.pack(">i", 1000) + b"\x00" * 100)
        trickling.send_bytes(struct.pack(">i", 1000))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(200):
                trickling.send_bytes(b"\x00")
                time.sleep(0.05)
        assert stuck.is_closed_by_broker()
        assert len(idle.call(API_VERSIONS, 0, b"")) > 10


def test_a_long_poll_does_not_count_against_the_request_behind_it(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"tiered.request.receive.timeout.ms": 600}).start()
    create(process, "polled")
    with RawConnection(process) as connection:
        topics = [fetch.FetchTopic("polled", None, [fetch.FetchPartition(0, -1, 0, -1, -1, MIB)])]
        request = fetch.FetchRequest(-1, -1, 1500, 1, MIB, 0, 0, -1, topics)
        first = connection.send(1, 11, fetch.encode_fetch_request(request, 11))
        second = frame(API_VERSIONS, 0, b"")
        connection.send_bytes(second[:7])
        assert connection.receive(1, 11)[0] == first
        connection.send_bytes(second[7:])
        assert connection.receive(API_VERSIONS, 0)[0] == 7


def test_idle_connections_end_and_so_do_readers_that_do_not_read(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"connections.max.idle.ms": 500}).start()
    create(process, "unread")
    with RawConnection(process, timeout_s=60) as idle, RawConnection(process, timeout_s=60) as deaf:
        with RawConnection(process) as producer:
            for _ in range(20):
                producer.produce("unread", batch([b"x" * 900_000]))
        topics = [fetch.FetchTopic("unread", None, [fetch.FetchPartition(0, -1, 0, -1, -1, 50 * MIB)])]
        request = fetch.FetchRequest(-1, -1, 0, 1, 50 * MIB, 0, 0, -1, topics)
        deaf.send(1, 11, fetch.encode_fetch_request(request, 11))
        # It goes on talking, but it never reads: bytes that come in are no excuse.
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(400):
                deaf.send(API_VERSIONS, 0, b"")
                time.sleep(0.05)
        assert idle.is_closed_by_broker()


def test_a_client_that_closes_its_sending_side_is_taken_to_be_gone(broker: BrokerProcess) -> None:
    create(broker, "half-closed")
    with RawConnection(broker) as connection:
        topics = [fetch.FetchTopic("half-closed", None, [fetch.FetchPartition(0, -1, 0, -1, -1, MIB)])]
        request = fetch.FetchRequest(-1, -1, 60_000, 1, MIB, 0, 0, -1, topics)
        connection.send(1, 11, fetch.encode_fetch_request(request, 11))
        connection._socket.shutdown(socket.SHUT_WR)
        assert connection.is_closed_by_broker()


# Memory


def test_many_unfinished_requests_take_nothing_from_the_large_ones_of_others(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"queued.max.request.bytes": 8 * MIB}).start()
    create(process, "large")
    waiting = [RawConnection(process) for _ in range(300)]
    for each in waiting:
        each.send_bytes(struct.pack(">i", 90_000_000) + b"\x00\x00\x00")
    with bystander(process), RawConnection(process) as connection:
        assert connection.produce("large", batch([b"x" * 900_000])).error_code == 0
        # The limit is one of bytes that came: two clients that send five megabytes of a request exceed it.
        hungry = [RawConnection(process) for _ in range(3)]
        ended = 0
        for each in hungry:
            try:
                each.send_bytes(struct.pack(">ihh", 90_000_000, 0, 9) + bytes(5 * MIB))
            except OSError:
                ended += 1
        time.sleep(0.3)
        assert ended or any(each.is_closed_by_broker() for each in hungry[1:])
        for each in hungry:
            each.close()
        assert connection.produce("large", batch([b"x" * 900_000])).error_code == 0
    for each in waiting:
        each.close()


def test_answers_that_nobody_reads_are_bounded(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    create(process, "described")
    one = frame(
        DESCRIBE_CONFIGS, 3, struct.pack(">i", 50) + b"\x02\x00\x09described\xff\xff\xff\xff" * 50 + b"\x01\x01"
    )
    before = resident_mib(process)
    deaf = [RawConnection(process) for _ in range(20)]
    for each in deaf:
        each._socket.settimeout(0.2)
        try:
            each.send_bytes(one * 200)
        except TimeoutError:
            pass
    with bystander(process):
        time.sleep(1.5)
    assert resident_mib(process) - before < 200, "each answer waits for the ones before it to be read"
    for each in deaf:
        each.close()


def test_a_pause_in_reading_loses_no_answer_and_no_order(broker: BrokerProcess) -> None:
    create(broker, "paused")
    with RawConnection(broker, timeout_s=30) as connection:
        body = struct.pack(">i", 20) + b"\x02\x00\x06paused\xff\xff\xff\xff" * 20 + b"\x01\x01"
        sent: list[int] = []
        sender = threading.Thread(
            target=lambda: sent.extend(connection.send(DESCRIBE_CONFIGS, 3, body) for _ in range(150))
        )
        sender.start()
        time.sleep(1)
        received = [connection.receive(DESCRIBE_CONFIGS, 3)[0] for _ in range(150)]
        sender.join()
        assert received == sent


def test_thousands_of_tiny_requests_sent_ahead_are_all_answered_beside_others(broker: BrokerProcess) -> None:
    count = 20_000
    with bystander(broker), RawConnection(broker, timeout_s=30) as connection:
        data = frame(API_VERSIONS, 0, b"") * count
        sender = threading.Thread(target=connection.send_bytes, args=(data,))
        sender.start()
        sizes = {len(connection.receive_frame()) for _ in range(count)}
        sender.join()
        assert len(sizes) == 1


@pytest.mark.parametrize("step", [977, 60_001, 130_000, 300_000])
def test_large_frames_arrive_whole_in_whatever_pieces(broker: BrokerProcess, step: int) -> None:
    topic = create(broker, f"pieces-{step}")
    with RawConnection(broker) as connection:
        for size in (70_000, 130_000, 262_000, 977_901, 1_040_000):
            body = produce.encode_produce_request(
                [produce.TopicBatches(topic, None, [(0, batch([b"x" * size]))])], 9, acks=1, timeout_ms=1000
            )
            data = frame(0, 9, b"\x00" + body) + frame(API_VERSIONS, 0, b"")
            for at in range(0, len(data), step):
                connection.send_bytes(data[at : at + step])
            answer = connection.receive(0, 9)[1]
            result = produce.decode_produce_response(answer, 0, len(answer), 9)
            assert result.topics[0].partitions[0].error_code == 0
            assert connection.receive(API_VERSIONS, 0)[0] == 7


# Counts


def test_only_produce_may_be_larger_than_the_limit_of_requests(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"tiered.request.max.bytes": 100_000}).start()
    create(process, "limit")
    with RawConnection(process) as connection:
        assert connection.produce("limit", batch([b"x" * 500_000])).error_code == 0
        connection.send_bytes(struct.pack(">ihh", 100_001, METADATA, 9))
        assert connection.is_closed_by_broker()


def test_a_million_names_in_one_request_are_answered_in_turns(broker: BrokerProcess) -> None:
    count = 300_000
    with bystander(broker), RawConnection(broker, timeout_s=60) as connection:
        empty = connection.call(METADATA, 9, compact(count + 1) + b"\x01\x00" * count + b"\x00\x00\x00\x00")
        assert len(empty) < 1000, "the same name is answered once"
        names = b"".join(b"\x07n%05x\x00" % number for number in range(100_000))
        answer = connection.call(METADATA, 9, compact(100_001) + names + b"\x00\x00\x00\x00")
        assert len(answer) > 1_000_000


def test_one_metadata_request_creates_a_hundred_topics_at_most(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"tiered.max.partitions": 130}).start()
    namespace = messages.request(METADATA, 9)

    def codes(prefix: str) -> list[int]:
        asked = [namespace.MetadataRequestTopic(name=f"{prefix}-{number}") for number in range(120)]
        request = namespace.MetadataRequest(
            topics=asked,
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return [int(each.error_code) for each in connection.ask(METADATA, 9, request).topics]

    with bystander(process), RawConnection(process, timeout_s=60) as connection:
        assert [codes("first").count(code) for code in (0,)] == [100]
        assert codes("first").count(0) == 120  # Who asks again gets the rest.
        second = codes("second")
        assert (second.count(0), second.count(44)) == (10, 110)
        create_namespace = messages.request(19, 5)
        topic = create_namespace.CreatableTopic(
            name="one-more", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        answer = connection.ask(
            19, 5, create_namespace.CreateTopicsRequest(topics=[topic], timeout=1000, validate_only=False)
        )
        assert int(answer.topics[0].error_code) == 44


@pytest.mark.parametrize(("api_key", "count"), [(0, 30_000), (1, 60_000)])
def test_more_partitions_than_can_be_end_the_connection(broker: BrokerProcess, api_key: int, count: int) -> None:
    create(broker, f"crowded-{api_key}")
    with bystander(broker), RawConnection(broker, timeout_s=30) as connection:
        if api_key == 0:
            body = struct.pack(">hhiih", -1, 1, 1000, 1, 1) + b"a" + struct.pack(">i", count)
            connection.send(0, 3, body + struct.pack(">ii", 0, -1) * count)
        else:
            body = struct.pack(">iiiibiiih", -1, 100, 1, MIB, 0, 0, -1, 1, 1) + b"a" + struct.pack(">i", count)
            connection.send(1, 11, body + struct.pack(">iiqqi", 0, -1, 0, -1, 100) * count + struct.pack(">ih", 0, 0))
        assert connection.is_closed_by_broker()


def test_settings_of_one_topic_asked_for_ten_thousand_times_are_bounded(broker: BrokerProcess) -> None:
    create(broker, "asked")
    count = 10_000
    with bystander(broker), RawConnection(broker, timeout_s=60) as connection:
        body = struct.pack(">i", count) + b"\x02\x00\x05asked\xff\xff\xff\xff" * count + b"\x00\x00"
        answer = messages.response_decoder(DESCRIBE_CONFIGS, 3)(connection.call(DESCRIBE_CONFIGS, 3, body), 0)
        codes = [int(each.error_code) for each in answer.results]
        assert codes[0] == 0
        assert codes[-1] == 44


def test_long_and_foreign_client_ids_are_taken_and_broken_ones_refused(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        for client_id in ("", "é😀" * 4000, "a\nb\x00c", None):
            sent = connection.send(API_VERSIONS, 0, b"", client_id=client_id)
            assert connection.receive(API_VERSIONS, 0)[0] == sent
    with RawConnection(broker) as connection:
        head = struct.pack(">hhih", API_VERSIONS, 0, 1, 2) + b"\xff\xfe"
        connection.send_bytes(struct.pack(">i", len(head)) + head)
        assert connection.is_closed_by_broker()


# Records


def test_compression_bombs_cost_little_where_the_topic_has_a_codec(broker: BrokerProcess) -> None:
    topic = create(broker, "bombed", compression_type="gzip")
    large = encode_batch(
        [Record(offset=0, timestamp_ms=0, key=None, value=bytes(60 * MIB))], compression=Compression.ZSTD
    )
    too_large = encode_batch(
        [Record(offset=0, timestamp_ms=0, key=None, value=bytes(70 * MIB))], compression=Compression.ZSTD
    )
    many = encode_batch(
        [Record(offset=at, timestamp_ms=0, key=None, value=b"") for at in range(200_000)], compression=Compression.ZSTD
    )
    with RawConnection(broker, timeout_s=30) as connection:
        with bystander(broker):
            assert connection.produce(topic, large).error_code == 0
            assert connection.produce(topic, too_large).error_code == 87
            assert connection.produce(topic, many).error_code == 0
        data = bytes(connection.fetch(topic, 1).records or b"")  # type: ignore[arg-type]
        header = record_batch.read_header(data)
        assert (header.compression, header.record_count) == (Compression.GZIP, 200_000)
        record_batch.verify_crc(data, 0, header.size_bytes)


def test_a_batch_that_lies_about_its_times_holds_up_only_who_asks(broker: BrokerProcess) -> None:
    topic = create(broker, "liar")
    many = encode_batch(
        [Record(offset=at, timestamp_ms=1000, key=None, value=b"") for at in range(60_000)],
        compression=Compression.ZSTD,
    )
    with bystander(broker), RawConnection(broker, timeout_s=30) as connection:
        assert connection.produce(topic, patched(many, 35, struct.pack(">q", 2000))).error_code == 0
        namespace = messages.request(LIST_OFFSETS, 4)
        asked = [
            namespace.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=1500) for _ in range(4)
        ]
        wanted = namespace.ListOffsetsTopic(name=topic, partitions=asked)
        answer = connection.ask(
            LIST_OFFSETS, 4, namespace.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[wanted])
        )
        assert {(int(each.error_code), each.offset) for each in answer.topics[0].partitions} == {(0, -1)}


def test_with_acks_0_good_batches_are_stored_beside_a_bad_one(broker: BrokerProcess) -> None:
    topic = create(broker, "acks-0-mixed", partitions=3)
    with RawConnection(broker) as connection, RawConnection(broker) as reader:
        broken = batch()[:-1] + b"\xff"
        body = produce.encode_produce_request(
            [produce.TopicBatches(topic, None, [(0, batch()), (1, broken), (2, batch())])], 9, acks=0, timeout_ms=1000
        )
        connection.send(0, 9, body)
        assert connection.is_closed_by_broker()
        ends = [reader.fetch(topic, 0, partition=partition).high_watermark for partition in range(3)]
        assert ends == [1, 0, 1]


def test_a_log_file_that_was_cut_short_fails_its_partition_alone(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    create(process, "cut", partitions=1)
    create(process, "whole", partitions=1)
    with RawConnection(process) as connection:
        for topic in ("cut", "whole"):
            connection.produce(topic, batch([b"x" * 5000]))
            connection.produce(topic, batch([b"x" * 5000]))
        (path,) = [
            file
            for file in (process.data / "log").rglob("*.log")
            if file.stat().st_size and file.parent.parent.name == topic_id(connection, "cut")
        ]
        with path.open("r+b") as file:
            file.truncate(6000)
        answer = connection.fetch_many([("cut", 0, 0, -1, MIB), ("whole", 0, 0, -1, MIB)])
        assert [each.partitions[0].error_code for each in answer.topics] == [56, 0]
        assert len(bytes(answer.topics[1].partitions[0].records or b"")) > 10_000  # type: ignore[arg-type]
    assert "unforeseen" not in process.log()


def topic_id(connection: RawConnection, topic: str) -> str:
    namespace = messages.request(METADATA, 12)
    asked = namespace.MetadataRequestTopic(topic_id=None, name=topic)
    request = namespace.MetadataRequest(topics=[asked], include_topic_authorized_operations=False)
    return str(connection.ask(METADATA, 12, request).topics[0].topic_id)
