"""Every client, every codec: identical records, read hot and read cold, by every client."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.broker_process import BrokerProcess
from tests.clients.clients import CODECS, PRODUCERS, READERS, Sent, admin

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def small_cold_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Keeps local copies until told otherwise; takes records of more than 1 MB."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("clients") / "data", settings={"message.max.bytes": 4_000_000}
    ).start()
    yield process
    process.ensure_stopped()


def records_for(client: str, codec: str) -> list[Sent]:
    """Null and empty keys and values, headers (null ones too), times out of order, and records of 1 MB.

    kcat sends text in lines with headers that have values, and cannot tell empty from null; kafka-python
    refuses to send a null header.
    """
    chance = random.Random(f"{client} {codec}")
    plain = client == "kcat"
    found: list[Sent] = []
    for number in range(60):
        value: bytes | None = bytes(chance.choices(b"abcdefghij", k=chance.randrange(1, 3000)))
        key: bytes | None = b"key-%d" % (number % 7)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if number % 10 == 3:
            key = None
        if number % 10 == 4:
            value = None
        if number % 10 == 5 and not plain:
            key, value = b"", b""
        if number % 20 == 6:
            headers = (("trace", b"%d" % number), ("kind", b"test"))
        if number % 20 == 8 and not plain:
            headers = (("empty", b""), ("twice", b"1"), ("twice", b"\x00\xff"))
        if number % 20 == 9 and client in ("confluent-kafka", "aiokafka"):
            headers = (("null", None),)
        found.append(Sent(key, value, headers, FIRST_MS + 1000 * number - 5000 * (number % 3)))
    # Incompressible enough that the batch stays near 1 MB whatever the codec.
    found.append(Sent(b"large", chance.randbytes(500_000).hex().encode(), (), FIRST_MS + 99_000))
    return found


def make_cold(broker: BrokerProcess, topic: str, end_offset: int) -> None:
    """Rolls the segment, and drops the local copy once the store has it."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in (("segment.ms", "50"), ("local.retention.ms", "1")):
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for future in admin(broker.bootstrap).incremental_alter_configs([resource]).values():
        future.result(30)
    broker.wait_cold(topic, end_offset=end_offset, only=True)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", PRODUCERS)
def test_records_of_every_client_and_codec_read_back_identical_hot_and_cold(
    client: str, codec: str, small_cold_broker: BrokerProcess, kcat: str
) -> None:
    broker = small_cold_broker
    topic = f"{client}-{codec}"
    admin(broker.bootstrap).create_topics([NewTopic(topic, 1)])[topic].result(30)
    sent = records_for(client, codec)
    PRODUCERS[client](broker.bootstrap, topic, codec, sent)
    end_offset = broker.segments(topic)["high_watermark"]
    assert end_offset == len(sent)

    hot = {name: read(broker.bootstrap, topic, len(sent)) for name, read in READERS.items()}
    for name, found in hot.items():
        told = [as_told(record, reader=name, producer=client) for record in sent]
        assert [as_told(record, reader=name, producer=client) for record in found] == told, f"{name} read other records"

    make_cold(broker, topic, end_offset)
    for name, found in hot.items():
        assert READERS[name](broker.bootstrap, topic, len(sent)) == found, f"{name} read other records cold than hot"


def as_told(record: Sent, *, reader: str, producer: str) -> Sent:
    """What can be compared: kcat stamps the time itself when it produces, and shows only plain header values.

    A null one it shows as NULL.
    """
    headers = record.headers
    if reader == "kcat":
        shown = [(name, b"NULL" if value is None else value) for name, value in headers]
        headers = tuple(shown) if all(value.isalnum() for _, value in shown) else ()
    return Sent(record.key, record.value, headers, 0 if producer == "kcat" else record.timestamp_ms)


def test_what_is_stored_is_what_the_client_sent_byte_for_byte_in_both_tiers(
    small_cold_broker: BrokerProcess, tmp_path: Path
) -> None:
    """The raw batches of a Fetch, hot and cold, are equal: no tier re-encodes anything."""
    import asyncio

    from tests.clients.raw import fetch_all

    broker = small_cold_broker
    topic = "bytes"
    admin(broker.bootstrap).create_topics([NewTopic(topic, 1)])[topic].result(30)
    sent = records_for("confluent-kafka", "zstd")
    PRODUCERS["confluent-kafka"](broker.bootstrap, topic, "zstd", sent)
    hot = asyncio.run(fetch_all(broker, topic))
    make_cold(broker, topic, len(sent))
    assert broker.metric("tiered_fetched_cold_bytes_total") >= 0
    before = broker.metric("tiered_fetched_cold_bytes_total")
    assert asyncio.run(fetch_all(broker, topic)) == hot
    assert broker.metric("tiered_fetched_cold_bytes_total") > before, "the second read did not come from the store"
