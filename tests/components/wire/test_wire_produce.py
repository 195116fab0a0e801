"""wire.md 16 to 21 and 40 to 42: what producers rely on."""

import os
import struct
import time

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import FIRST_MS, batch, patched, records_of, with_records
from tests.components.wire.list_offsets import offset_at
from tests.support.topics import create
from tiered.formats import record_batch
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.wire import messages, produce

API_VERSIONS = 18


def stored(connection: RawConnection, topic: str, offset: int = 0) -> bytes:
    answer = connection.fetch(topic, offset)
    assert answer.error_code == 0
    return bytes(answer.records or b"")  # type: ignore[arg-type]


def producer_id(connection: RawConnection) -> int:
    namespace = messages.request(22, 1)
    answer = connection.ask(22, 1, namespace.InitProducerIdRequest(transactional_id=None, transaction_timeout=60_000))
    assert int(answer.error_code) == 0
    assert answer.producer_epoch == 0
    return int(answer.producer_id)


def test_acks_0_is_never_answered_and_the_record_is_stored(broker: BrokerProcess) -> None:
    topic = create(broker, "acks-0")
    with RawConnection(broker) as connection:
        body = produce.encode_produce_request(
            [produce.TopicBatches(topic, None, [(0, batch())])], 9, acks=0, timeout_ms=1000
        )
        connection.send(0, 9, body)
        assert connection.answers_nothing()
        # The next answer belongs to the next request.
        assert len(connection.call(API_VERSIONS, 0, b"")) > 10
        assert len(stored(connection, topic)) > 61


def test_an_error_with_acks_0_closes_the_connection(broker: BrokerProcess) -> None:
    topic = create(broker, "acks-0-bad")
    with RawConnection(broker) as connection:
        broken = bytearray(batch())
        broken[-1] ^= 1
        body = produce.encode_produce_request(
            [produce.TopicBatches(topic, None, [(0, bytes(broken))])], 9, acks=0, timeout_ms=1000
        )
        connection.send(0, 9, body)
        assert connection.is_closed_by_broker()


def test_acks_other_than_0_1_all_are_refused(broker: BrokerProcess) -> None:
    topic = create(broker, "acks-2")
    with RawConnection(broker) as connection:
        assert connection.produce(topic, batch(), acks=2).error_code == 21


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_appends_and_answers_the_offset(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"version-{version}")
    with RawConnection(broker) as connection:
        for expected in (0, 3):
            answer = connection.produce(topic, batch([b"a", b"b", b"c"]), version=version)
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)
            assert answer.log_start_offset == (0 if version >= 5 else -1)


def test_version_13_finds_the_topic_by_its_id(broker: BrokerProcess) -> None:
    topic = create(broker, "by-id")
    with RawConnection(broker) as connection:
        namespace = messages.request(3, 12)
        asked = namespace.MetadataRequestTopic(topic_id=None, name=topic)
        topic_id = (
            connection.ask(3, 12, namespace.MetadataRequest(topics=[asked], include_topic_authorized_operations=False))
            .topics[0]
            .topic_id
        )
        body = produce.encode_produce_request(
            [produce.TopicBatches(None, topic_id, [(0, batch())])], 13, acks=1, timeout_ms=1000
        )
        answer = connection.call(0, 13, body)
        result = produce.decode_produce_response(answer, 0, len(answer), 13).topics[0]
        assert (result.topic_id, result.partitions[0].error_code) == (topic_id, 0)


def test_create_time_is_kept_and_log_append_time_is_stamped(broker: BrokerProcess) -> None:
    kept = create(broker, "create-time")
    stamped = create(broker, "append-time", message_timestamp_type="LogAppendTime")
    with RawConnection(broker) as connection:
        assert connection.produce(kept, batch([b"a", b"b"])).log_append_time_ms == -1
        header = record_batch.read_header(stored(connection, kept))
        assert (header.max_timestamp_ms, header.is_log_append_time) == (FIRST_MS + 1000, False)

        before_ms = int(time.time() * 1000)
        answer = connection.produce(stamped, batch([b"a", b"b"]))
        assert before_ms <= answer.log_append_time_ms <= int(time.time() * 1000)
        data = stored(connection, stamped)
        header = record_batch.read_header(data)
        assert (header.max_timestamp_ms, header.is_log_append_time) == (answer.log_append_time_ms, True)
        record_batch.verify_crc(data, 0, header.size_bytes)
        assert {record.timestamp_ms for record in record_batch.records(data)} == {answer.log_append_time_ms}


def test_only_base_offset_and_leader_epoch_are_rewritten(broker: BrokerProcess) -> None:
    topic = create(broker, "rewritten")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch())
        for codec in Compression:
            sent = batch([b"x" * 100, b"y" * 100], compression=codec)
            base_offset = connection.produce(topic, sent).base_offset
            data = stored(connection, topic, base_offset)
            header = record_batch.read_header(data)
            assert (header.base_offset, header.compression) == (base_offset, codec)
            assert header.partition_leader_epoch >= 0
            assert data[8:12] + data[16:] == sent[8:12] + sent[16:]


def test_compression_type_of_the_topic_recompresses_and_keeps_records(broker: BrokerProcess) -> None:
    topic = create(broker, "recompressed", compression_type="zstd")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"v" * 1000] * 5, compression=Compression.GZIP))
        data = stored(connection, topic)
        header = record_batch.read_header(data)
        assert header.compression == Compression.ZSTD
        record_batch.verify_crc(data, 0, header.size_bytes)
        assert [record.value for record in record_batch.records(data)] == [b"v" * 1000] * 5


def test_large_batches_that_are_recompressed_keep_their_order_and_their_own_errors(broker: BrokerProcess) -> None:
    """They leave the event loop; a neighbour that is refused, or needs nothing, gets its own answer."""
    topic = create(broker, "recompressed-large", partitions=3, compression_type="zstd")
    plain = create(broker, "recompressed-not")
    large = [os.urandom(30_000) for _ in range(4)]
    with RawConnection(broker) as connection:
        body = produce.encode_produce_request(
            [
                produce.TopicBatches(
                    topic,
                    None,
                    [
                        (0, batch(large)),
                        (1, batch(large)[:-1] + b"\xff"),
                        (2, batch([b"small"], compression=Compression.LZ4)),
                        (0, batch(large[:2], compression=Compression.GZIP)),
                    ],
                ),
                produce.TopicBatches(plain, None, [(0, batch(large))]),
            ],
            9,
            acks=1,
            timeout_ms=5000,
        )
        answer = connection.call(produce.API_KEY, 9, body)
        by_topic = produce.decode_produce_response(answer, 0, len(answer), 9).topics
        codes = [(each.partition_index, each.error_code) for topic in by_topic for each in topic.partitions]
        assert codes == [(0, 0), (1, 2), (2, 0), (0, 0), (0, 0)]
        first = stored(connection, topic)
        assert [record.value for record in record_batch.records(first)] == large
        second = stored(connection, topic, 4)
        assert [record.value for record in record_batch.records(second)] == large[:2]
        assert record_batch.read_header(second).compression == Compression.ZSTD
        untouched = stored(connection, plain)
        assert record_batch.read_header(untouched).compression == Compression.NONE


def claiming(count: int, compression: Compression) -> bytes:
    """A batch of one record that says it has so many."""
    said = patched(batch(compression=compression), 23, struct.pack(">i", count - 1))
    return patched(said, 57, struct.pack(">i", count))


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("magic 1", patched(batch(), 16, b"\x01"), 87),
        ("magic 0", patched(batch(), 16, b"\x00"), 87),
        ("null records", None, 87),
        ("no records", b"", 87),
        ("two batches", batch() + batch(), 87),
        ("control batch", batch(control=True, producer_id=1, producer_epoch=0, base_sequence=0), 87),
        (
            "transactional batch without a transactional id",
            batch(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            53,
        ),
        ("count too large", patched(batch([b"a", b"b"]), 57, struct.pack(">i", 3)), 87),
        ("count zero", patched(batch(), 57, struct.pack(">i", 0)), 87),
        ("a count beyond its bytes", claiming(2**31 - 1, Compression.NONE), 87),
        ("a count beyond what may be unfolded", claiming(2**31 - 1, Compression.GZIP), 87),
        ("negative last offset delta", patched(batch(), 23, struct.pack(">i", -1)), 87),
        ("unknown codec", patched(batch(), 21, struct.pack(">h", 5)), 76),
        ("wrong crc", batch()[:-1] + b"\xff", 2),
        ("cut off", batch()[:-1], 2),
        ("sequence without producer epoch", batch(producer_id=5, base_sequence=0), 87),
    ],
)
def test_bad_batches_get_their_code_and_append_nothing(
    broker: BrokerProcess, name: str, data: bytes | None, code: int
) -> None:
    topic = create(broker, "bad-" + name.replace(" ", "-"))
    with RawConnection(broker) as connection:
        answer = connection.produce(topic, data)
        assert answer.error_code == code, answer
        assert answer.error_message
        assert connection.fetch(topic, 0).high_watermark == 0


# A record of value `a` or `b`: length, attributes, two deltas, no key, the value, no headers.
BAD_RECORDS = {
    "a count above the records": bytes.fromhex("0e0000000102 6100"),
    "bytes behind the last record": bytes.fromhex("0e0000000102 6100 0e0000020102 6200 00"),
    "a length beyond the batch": bytes.fromhex("0e0000000102 6100 100000020102 6200"),
    "a length short of the record": bytes.fromhex("0e0000000102 6100 0c0000020102 6200"),
    "a negative length": bytes.fromhex("0e0000000102 6100 010000020102 6200"),
    "offsets that are not dense": bytes.fromhex("0e0000000102 6100 0e0000040102 6200"),
    "the same offset twice": bytes.fromhex("0e0000000102 6100 0e0000000102 6200"),
    "a header without a name": bytes.fromhex("0e0000000102 6100 12000002010262 02 01 01"),
    "more headers than bytes": bytes.fromhex("0e0000000102 6100 0e000002010262 7e"),
    "a number of six bytes": bytes.fromhex("0e0000000102 6100 188e808080800000020102 6200"),
    "no bytes at all": b"",
}


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.SNAPPY])
def test_records_that_contradict_their_batch_are_refused_and_nothing_is_appended(
    broker: BrokerProcess, compression: Compression
) -> None:
    topic = create(broker, f"bad-records-{compression.name}")
    good = batch([b"a", b"b"], compression=compression)
    with RawConnection(broker) as connection:
        for name, body in BAD_RECORDS.items():
            answer = connection.produce(topic, with_records(good, body))
            assert (answer.error_code, answer.base_offset) == (87, -1), f"{name}: {answer}"
        assert connection.fetch(topic, 0).high_watermark == 0
        assert connection.produce(topic, with_records(good, records_of(good))).error_code == 0


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_what_does_not_decompress_is_refused_whether_the_event_loop_looks_or_a_thread(
    broker: BrokerProcess, compression: Compression
) -> None:
    topic = create(broker, f"not-{compression.name}")
    with RawConnection(broker) as connection:
        for good in (batch(compression=compression), batch([os.urandom(100_000)], compression=compression)):
            packed = good[record_batch.HEADER_BYTES :]
            for payload in (b"none of that codec", packed[: len(packed) // 2], b""):
                answer = connection.produce(topic, with_records(good, b"", packed=payload))
                assert (answer.error_code, answer.base_offset) == (87, -1), payload[:20]
        assert connection.fetch(topic, 0).high_watermark == 0


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_small_batch_that_unfolds_to_much_is_validated_all_the_same(
    broker: BrokerProcess, compression: Compression
) -> None:
    topic = create(broker, f"unfolds-{compression.name}")
    with RawConnection(broker) as connection:
        much = batch([bytes(1 << 20)] * 20, compression=compression)
        assert len(much) < 200_000
        assert connection.produce(topic, much).error_code == 0
        too_much = batch([bytes(1 << 20)] * 65, compression=compression)
        answer = connection.produce(topic, too_much)
        assert (answer.error_code, connection.fetch(topic, 0).high_watermark) == (87, 20)


@pytest.mark.parametrize("compression", list(Compression))
def test_the_maximum_timestamp_is_that_of_the_records_whatever_the_header_says(
    broker: BrokerProcess, compression: Compression
) -> None:
    """sarama up to 1.45 leaves it at -1."""
    topic = create(broker, f"max-timestamp-{compression.name}")
    right = batch([b"a", b"b", b"c"], compression=compression)
    with RawConnection(broker) as connection:
        for said_ms in (-1, FIRST_MS, FIRST_MS + 9000):
            base_offset = connection.produce(topic, patched(right, 35, struct.pack(">q", said_ms))).base_offset
            data = stored(connection, topic, base_offset)
            record_batch.verify_crc(data, 0, len(right))
            assert record_batch.read_header(data).max_timestamp_ms == FIRST_MS + 2000
        assert [offset_at(connection, topic, FIRST_MS + 1000 * place)[1] for place in range(3)] == [0, 1, 2]


def test_a_record_far_ahead_behind_a_header_of_now_is_named(broker: BrokerProcess) -> None:
    topic = create(broker, "far-ahead")
    now_ms = int(time.time() * 1000)
    times = [now_ms, now_ms + 365 * 86_400_000, now_ms]
    records = [Record(offset=at, timestamp_ms=time_ms, key=None, value=b"v") for at, time_ms in enumerate(times)]
    data = patched(encode_batch(records), 35, struct.pack(">q", now_ms))
    with RawConnection(broker) as connection:
        answer = connection.produce(topic, data, version=8)
        assert (answer.error_code, [error.batch_index for error in answer.record_errors]) == (32, [1])
        assert "message.timestamp.after.max.ms" in (answer.record_errors[0].message or "")


def test_a_record_above_max_decompressed_message_bytes_is_refused_behind_compression_alone(
    broker: BrokerProcess,
) -> None:
    topic = create(broker, "large-records", max_decompressed_message_bytes=1000)
    values = [b"small", bytes(2000)]
    with RawConnection(broker) as connection:
        answer = connection.produce(topic, batch(values, compression=Compression.ZSTD))
        assert (answer.error_code, "max.decompressed.message.bytes=1000" in (answer.error_message or "")) == (87, True)
        assert connection.produce(topic, batch(values)).error_code == 0


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_records_without_a_key_are_named_to_whoever_writes_to_a_compacted_topic(
    broker: BrokerProcess, compression: Compression
) -> None:
    topic = create(broker, f"keyless-{compression.name}", cleanup_policy="compact")
    keys = [b"a", None, b"b", None]
    records = [Record(offset=at, timestamp_ms=FIRST_MS, key=key, value=b"v") for at, key in enumerate(keys)]
    data = encode_batch(records, compression=compression)
    with RawConnection(broker) as connection:
        answer = connection.produce(topic, data, version=8)
        assert (answer.error_code, [each.batch_index for each in answer.record_errors]) == (87, [1, 3])
        assert all("key" in (each.message or "") for each in answer.record_errors)
        assert "2 of 4" in (answer.error_message or "")
        assert connection.produce(topic, data, version=7).error_code == 87
        assert connection.fetch(topic, 0).high_watermark == 0


def test_a_batch_that_is_refused_as_a_whole_blames_no_record(broker: BrokerProcess) -> None:
    topic = create(broker, "record-errors")
    with RawConnection(broker) as connection:
        answer = connection.produce(topic, patched(batch(), 16, b"\x01"), version=8)
        assert (answer.error_code, list(answer.record_errors)) == (87, [])


def test_zstd_needs_produce_version_7(broker: BrokerProcess) -> None:
    topic = create(broker, "zstd-6")
    with RawConnection(broker) as connection:
        assert connection.produce(topic, batch(compression=Compression.ZSTD), version=6).error_code == 76
        assert connection.produce(topic, batch(compression=Compression.ZSTD), version=7).error_code == 0


def test_a_batch_above_max_message_bytes_is_too_large(broker: BrokerProcess) -> None:
    topic = create(broker, "too-large", max_message_bytes=1000)
    with RawConnection(broker) as connection:
        assert connection.produce(topic, batch([b"x" * 2000])).error_code == 10
        assert connection.produce(topic, batch([b"x" * 500])).error_code == 0


def test_timestamps_outside_the_allowed_window_are_refused(broker: BrokerProcess) -> None:
    topic = create(broker, "window", message_timestamp_after_max_ms=60_000, message_timestamp_before_max_ms=60_000)
    now_ms = int(time.time() * 1000)
    with RawConnection(broker) as connection:
        assert connection.produce(topic, batch(first_ms=now_ms + 600_000)).error_code == 32
        assert connection.produce(topic, batch(first_ms=now_ms - 600_000)).error_code == 32
        assert connection.produce(topic, batch(first_ms=now_ms)).error_code == 0


def test_good_partitions_of_a_request_succeed_beside_bad_ones(broker: BrokerProcess) -> None:
    topic = create(broker, "mixed", partitions=2)
    with RawConnection(broker) as connection:
        topics = [
            produce.TopicBatches(topic, None, [(0, batch()), (7, batch()), (1, batch())]),
            produce.TopicBatches("no such topic", None, [(0, batch())]),
            produce.TopicBatches("missing", None, [(0, batch())]),
        ]
        body = produce.encode_produce_request(topics, 9, acks=-1, timeout_ms=1000)
        answer = connection.call(0, 9, body)
        results = produce.decode_produce_response(answer, 0, len(answer), 9).topics
        assert [each.error_code for each in results[0].partitions] == [0, 3, 0]
        assert results[1].partitions[0].error_code == 17
        assert results[2].partitions[0].error_code == 3


def test_min_insync_replicas_above_the_number_of_replicas_counts_as_that(broker: BrokerProcess) -> None:
    topic = create(broker, "min-isr", min_insync_replicas=2)
    with RawConnection(broker) as connection:
        assert connection.produce(topic, batch(), acks=-1).error_code == 0
        assert connection.produce(topic, batch(), acks=1).error_code == 0


def test_log_start_offset_in_the_answer_follows_delete_records(broker: BrokerProcess) -> None:
    topic = create(broker, "log-start")
    with RawConnection(broker) as connection:
        connection.produce(topic, batch([b"v"] * 10))
        namespace = messages.request(21, 1)
        partition = namespace.DeleteRecordsPartition(partition_index=0, offset=4)
        wanted = namespace.DeleteRecordsTopic(name=topic, partitions=[partition])
        answer = connection.ask(21, 1, namespace.DeleteRecordsRequest(topics=[wanted], timeout=1000))
        assert answer.topics[0].partitions[0].low_watermark == 4
        assert connection.produce(topic, batch()).log_start_offset == 4


def test_each_of_the_last_five_batches_answers_with_its_original_offset(broker: BrokerProcess) -> None:
    topic = create(broker, "duplicates")
    with RawConnection(broker) as connection:
        identity = producer_id(connection)
        sent = [
            batch([b"a", b"b"], producer_id=identity, producer_epoch=0, base_sequence=2 * number) for number in range(7)
        ]
        offsets = [connection.produce(topic, each, acks=-1).base_offset for each in sent]
        assert offsets == [0, 2, 4, 6, 8, 10, 12]
        for each, offset in list(zip(sent, offsets, strict=True))[-5:]:
            answer = connection.produce(topic, each, acks=-1)
            assert (answer.error_code, answer.base_offset) == (0, offset)
        assert connection.produce(topic, sent[0], acks=-1).error_code in (45, 46)
        assert connection.fetch(topic, 0).high_watermark == 14


def test_sequence_gaps_and_epochs_are_checked(broker: BrokerProcess) -> None:
    topic = create(broker, "sequences")
    with RawConnection(broker) as connection:
        identity = producer_id(connection)

        def send(epoch: int, sequence: int) -> int:
            data = batch(producer_id=identity, producer_epoch=epoch, base_sequence=sequence)
            return connection.produce(topic, data, acks=-1).error_code

        assert send(0, 17) == 0  # No state: any sequence is accepted.
        assert send(0, 19) == 45
        assert send(0, 18) == 0
        assert send(1, 5) == 45  # A new epoch begins at 0.
        assert send(1, 0) == 0
        assert send(0, 19) == 47  # The older epoch is over.
        assert send(1, 2**31 - 1) == 45


def test_sequences_wrap_from_2_31_minus_1_to_0(broker: BrokerProcess) -> None:
    topic = create(broker, "wrap")
    with RawConnection(broker) as connection:
        identity = producer_id(connection)
        last = batch(producer_id=identity, producer_epoch=0, base_sequence=2**31 - 1)
        assert connection.produce(topic, last).error_code == 0
        assert connection.produce(topic, batch(producer_id=identity, producer_epoch=0, base_sequence=0)).error_code == 0


def test_producer_ids_are_never_handed_out_twice(broker: BrokerProcess) -> None:
    with RawConnection(broker) as connection:
        found = [producer_id(connection) for _ in range(50)]
    assert len(set(found)) == 50


def test_producer_state_survives_kill_9(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    create(process, "survives")
    with RawConnection(process) as connection:
        identity = producer_id(connection)
        sent = [batch(producer_id=identity, producer_epoch=0, base_sequence=number) for number in range(3)]
        for each in sent:
            connection.produce("survives", each, acks=-1)
    process.kill()
    process.start()
    with RawConnection(process) as connection:
        assert connection.produce("survives", sent[2], acks=-1).base_offset == 2
        following = batch(producer_id=identity, producer_epoch=0, base_sequence=3)
        assert connection.produce("survives", following, acks=-1).base_offset == 3
        gap = batch(producer_id=identity, producer_epoch=0, base_sequence=9)
        assert connection.produce("survives", gap, acks=-1).error_code == 45
        assert producer_id(connection) > identity


def test_flush_messages_1_acknowledges_only_what_is_on_disk(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    create(process, "flushed", flush_messages=1)
    with RawConnection(process) as connection:
        for number in range(20):
            assert connection.produce("flushed", batch(), acks=1).base_offset == number
            assert connection.fetch("flushed", 0).high_watermark == number + 1
