"""KIP-890: a leader appends the first batch of a transaction only with the coordinator's word, and in its order."""

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.broker_process import BrokerProcess
from tests.clients import clients
from tests.clients.raw import RawConnection
from tests.components.transactions.raw_transactions import RawProducer
from tests.support.topics import create
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.wire import messages, produce

WRITE_TXN_MARKERS = 27
INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 47, 48, 49
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTION_ABORTABLE = 53, 120
VERIFY_ONLY, ADDS = 11, 12
"""Versions of Produce."""


def end_offset(connection: RawConnection, topic: str, partition: int = 0) -> int:
    return connection.fetch(topic, 0, partition=partition).high_watermark


@pytest.mark.parametrize(
    ("version", "code"), [(3, INVALID_TXN_STATE), (10, INVALID_TXN_STATE), (11, TRANSACTION_ABORTABLE)]
)
def test_a_batch_for_a_partition_that_is_not_in_the_transaction_is_refused(
    broker: BrokerProcess, version: int, code: int
) -> None:
    topic = create(broker, f"not-added-{version}", 2)
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        assert producer.produce(connection, topic, {0: producer.batch()}, version=version)[0].error_code == code
        producer.add(topic, 1)
        assert producer.produce(connection, topic, {0: producer.batch()}, version=version)[0].error_code == code
        assert end_offset(connection, topic) == 0


@pytest.mark.parametrize("version", [3, 9, 11])
def test_a_batch_for_a_partition_in_the_transaction_is_appended(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"added-{version}")
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        producer.add(topic, 0)
        for sequence in range(3):
            answer = producer.produce(connection, topic, {0: producer.batch(sequence)}, version=version)[0]
            assert (answer.error_code, answer.base_offset) == (0, sequence)


def test_from_version_12_on_a_batch_puts_its_partition_into_the_transaction(broker: BrokerProcess) -> None:
    topic = create(broker, "adds", 3)
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        data = {0: producer.batch(), 2: producer.batch()}
        assert {each.error_code for each in producer.produce(connection, topic, data, version=ADDS).values()} == {0}
        assert producer.partitions() == {topic: {0, 2}}


def test_each_partition_of_a_request_is_refused_or_appended_for_itself(broker: BrokerProcess) -> None:
    topic = create(broker, "for-itself", 3)
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        producer.add(topic, 0, 2)
        told = producer.produce(connection, topic, dict.fromkeys(range(3), producer.batch()), version=VERIFY_ONLY)
        assert [told[number].error_code for number in range(3)] == [0, TRANSACTION_ABORTABLE, 0]
        assert [end_offset(connection, topic, number) for number in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("version", [9, VERIFY_ONLY, ADDS])
def test_a_fenced_producer_appends_nothing(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"fenced-{version}")
    with RawConnection(broker) as connection:
        fenced = RawProducer.begin(connection, topic)
        producer = RawProducer.begin(connection, topic)
        producer.add(topic, 0)
        answer = fenced.produce(connection, topic, {0: fenced.batch()}, version=version)[0]
        assert answer.error_code == INVALID_PRODUCER_EPOCH
        assert end_offset(connection, topic) == 0


@pytest.mark.parametrize("is_open", [False, True])
def test_a_transactional_batch_needs_a_transactional_id_in_its_request(broker: BrokerProcess, is_open: bool) -> None:
    topic = create(broker, f"no-id-{is_open}")
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        if is_open:
            producer.produce(connection, topic, {0: producer.batch()}, version=ADDS)
        data = {0: producer.batch(int(is_open))}
        answer = producer.produce(connection, topic, data, version=VERIFY_ONLY, transactional_id=None)[0]
        assert answer.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert end_offset(connection, topic) == int(is_open)


@pytest.mark.parametrize("version", [VERIFY_ONLY, ADDS])
def test_another_producers_transactional_id_verifies_nothing(broker: BrokerProcess, version: int) -> None:
    topic = create(broker, f"not-mine-{version}")
    with RawConnection(broker) as connection:
        other = RawProducer.begin(connection, f"{topic}-other")
        other.add(topic, 0)
        mine = RawProducer.begin(connection, topic)
        mine.add(topic, 0)
        answer = mine.produce(
            connection, topic, {0: mine.batch()}, version=version, transactional_id=other.transactional_id
        )[0]
        assert answer.error_code == INVALID_PRODUCER_ID_MAPPING
        assert end_offset(connection, topic) == 0


def test_a_request_with_batches_of_two_producers_is_refused(broker: BrokerProcess) -> None:
    topic = create(broker, "two-producers", 2)
    with RawConnection(broker) as connection:
        first, second = RawProducer.begin(connection, f"{topic}-1"), RawProducer.begin(connection, f"{topic}-2")
        for each in (first, second):
            each.add(topic, 0, 1)
        told = first.produce(connection, topic, {0: first.batch(), 1: second.batch()}, version=VERIFY_ONLY)
        assert {each.error_code for each in told.values()} == {INVALID_PRODUCER_ID_MAPPING}


def test_batches_that_wait_for_the_coordinator_keep_the_order_of_their_connection(broker: BrokerProcess) -> None:
    topic = create(broker, "in-order")
    with RawConnection(broker) as connection, RawConnection(broker) as coordinator:
        producer = RawProducer.begin(coordinator, topic)
        for sequence in range(5):
            body = producer.request(topic, {0: producer.batch(sequence)}, version=ADDS)
            connection.send(produce.API_KEY, ADDS, body)
        offsets = []
        for _ in range(5):
            _, answer = connection.receive(produce.API_KEY, ADDS)
            (told,) = produce.decode_produce_response(answer, 0, len(answer), ADDS).topics
            offsets.append((told.partitions[0].error_code, told.partitions[0].base_offset))
        assert offsets == [(0, number) for number in range(5)]


def test_a_batch_that_waits_gets_the_codec_of_its_topic(broker: BrokerProcess) -> None:
    topic = create(broker, "codec", compression_type="lz4")
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        data = encode_batch(
            [Record(offset=0, timestamp_ms=1, key=None, value=b"v" * 1000)],
            compression=Compression.GZIP,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        told = producer.produce(connection, topic, {0: data}, version=ADDS)
        assert (told[0].error_code, told[0].base_offset) == (0, 0)


def test_more_batches_than_are_appended_at_once_are_verified_in_turns(broker: BrokerProcess) -> None:
    topic = create(broker, "many", 300)
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        told = producer.produce(connection, topic, dict.fromkeys(range(300), producer.batch()), version=ADDS)
        assert {each.error_code for each in told.values()} == {0}
        assert producer.partitions() == {topic: set(range(300))}


def test_the_next_transaction_needs_the_coordinators_word_again(broker: BrokerProcess) -> None:
    topic = create(broker, "again")
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        assert producer.produce(connection, topic, {0: producer.batch()}, version=ADDS)[0].error_code == 0
        later = producer.end(commits=True)
        late = producer.produce(connection, topic, {0: producer.batch(1)}, version=ADDS)[0]
        assert late.error_code == INVALID_PRODUCER_EPOCH
        assert later.produce(connection, topic, {0: later.batch()}, version=ADDS)[0].error_code == 0
        assert later.partitions() == {topic: {0}}


def test_a_marker_with_an_epoch_that_no_coordinator_has_had_keeps_no_later_one_out(broker: BrokerProcess) -> None:
    topic = create(broker, "too-high")
    make = messages.request(WRITE_TXN_MARKERS, 1)
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)

        def mark(coordinator_epoch: int) -> int:
            marker = make.WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[make.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
                coordinator_epoch=coordinator_epoch,
            )
            answer = connection.ask(WRITE_TXN_MARKERS, 1, make.WriteTxnMarkersRequest(markers=[marker]))
            return int(answer.markers[0].topics[0].partitions[0].error_code)

        producer.produce(connection, topic, {0: producer.batch()}, version=ADDS)
        assert mark(2**31 - 1) == INVALID_REQUEST
        assert end_offset(connection, topic) == 1
        assert mark(0) == 0, "as Kafka's tool does where none is on record"
        producer = producer.end(commits=False)
        producer.produce(connection, topic, {0: producer.batch()}, version=ADDS)
        producer.end(commits=True)
        RawProducer.begin(connection, topic)  # Answered when the last transaction is complete.
        assert end_offset(connection, topic) == 5, "each transaction has its markers"


def test_verification_can_be_switched_off_for_producers_that_add_partitions_themselves(
    broker: BrokerProcess,
) -> None:
    topic = create(broker, "switched-off")
    with RawConnection(broker) as connection:
        producer = RawProducer.begin(connection, topic)
        set_verification(broker, "false")
        try:
            told = producer.produce(connection, topic, {0: producer.batch()}, version=VERIFY_ONLY)
            assert told[0].error_code == 0
        finally:
            set_verification(broker, "true")


def set_verification(broker: BrokerProcess, value: str) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    resource.add_incremental_config(
        ConfigEntry("transaction.partition.verification.enable", value, incremental_operation=AlterConfigOpType.SET)
    )
    clients.admin(broker.bootstrap).incremental_alter_configs([resource])[resource].result(30)
