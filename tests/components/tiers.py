"""Logs that cross both tiers, from outside: filled by hand, read back, and compared with SQL and the bucket."""

import time
from collections.abc import Callable
from uuid import UUID

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tiered.cold.bucket import checkpoints
from tiered.cold.object_store import ObjectStore
from tiered.formats import record_batch
from tiered.meta import segments
from tiered.meta.engine import Database
from tiered.wire import messages

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 19, 20, 21
NONE, CORRUPT_MESSAGE, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR = 0, 2, 7, 56
WAIT_S = 60.0
VALUE_BYTES = 1_900

Written = list[tuple[int, bytes]]


def eventually(
    claim: Callable[[], bool], what: str, broker: BrokerProcess | None = None, *, wait_s: float = WAIT_S
) -> None:
    """Returns once `claim` holds."""
    deadline = time.monotonic() + wait_s
    while not claim():
        words = broker.log()[-3000:] if broker is not None else ""
        assert time.monotonic() < deadline, f"not within {wait_s} s: {what}\n{words}"
        time.sleep(0.05)


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **configs: object) -> int:
    """The error code of CreateTopics; `local_retention_bytes=1` is `local.retention.bytes`."""
    namespace = messages.request(CREATE_TOPICS, 5)
    request = namespace.CreateTopicsRequest(
        topics=(
            namespace.CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                assignments=(),
                configs=tuple(
                    namespace.CreatableTopicConfig(name=name.replace("_", "."), value=str(value))
                    for name, value in configs.items()
                ),
            ),
        ),
    )
    with RawConnection(broker, timeout_s=30) as connection:
        return int(connection.ask(CREATE_TOPICS, 5, request).topics[0].error_code)


def fill(
    broker: BrokerProcess, topic: str, batches: int, *, partition: int = 0, first: int = 0, first_ms: int | None = None
) -> Written:
    """Produces that many batches of one record, 2 kB each, of now or of `first_ms`; what was acknowledged."""
    written: Written = []
    with RawConnection(broker, timeout_s=30) as connection:
        for number in range(first, first + batches):
            value = (b"%s-%d-%06d-" % (topic.encode(), partition, number)).ljust(VALUE_BYTES, b"v")
            data = batch([value], first_ms=int(time.time() * 1000) if first_ms is None else first_ms)
            answer = connection.produce(topic, data, partition=partition)
            assert answer.error_code == NONE, answer
            written.append((answer.base_offset, value))
    return written


def read(broker: BrokerProcess, topic: str, *, partition: int = 0, offset: int = 0) -> Written:
    """(offset, value) of every record from `offset` on; raises ReadError on an error code."""
    found: Written = []
    with RawConnection(broker, timeout_s=60) as connection:
        while True:
            answer = connection.fetch(topic, offset, partition=partition, partition_max_bytes=300_000)
            if answer.error_code != NONE:
                raise ReadError(answer.error_code, offset)
            if offset >= answer.high_watermark:
                return found
            data = bytes(answer.records or b"")  # type: ignore[arg-type]
            assert data
            for position, header in record_batch.whole_batches(data, 0, len(data)):
                record_batch.verify_crc(data, position, header.size_bytes)
                for record in record_batch.records(data, position):
                    if record.offset >= offset:
                        found.append((record.offset, record.value or b""))
            offset = found[-1][0] + 1


class ReadError(Exception):
    """What a consumer would hear: `code` at `offset`."""

    def __init__(self, code: int, offset: int) -> None:
        super().__init__(f"error {code} at offset {offset}")
        self.code = code
        self.offset = offset


def read_code(broker: BrokerProcess, topic: str, *, partition: int = 0, offset: int = 0) -> int:
    """0, or the error code that reading everything from `offset` on ends with."""
    try:
        read(broker, topic, partition=partition, offset=offset)
    except ReadError as error:
        return error.code
    return NONE


def topic_id(broker: BrokerProcess, topic: str) -> UUID:
    found = next(each for each in broker.get("/api/v1/topics")["topics"] if each["topic"] == topic)
    return UUID(found["topic_id"])


def keys_in_sql(meta_url: str, topic: UUID, partition: int = 0) -> list[str]:
    """The object keys of the committed rows, oldest first."""
    database = Database.open(meta_url)
    try:
        rows = database.run_sync(lambda conn: segments.list_committed(conn, topic, partition))
        return [row.object_key for row in rows]
    finally:
        database.close_sync()


def keys_in_checkpoint(store: ObjectStore, topic: UUID, partition: int = 0) -> list[str]:
    """The object keys that a reader of the bucket alone finds, oldest first."""
    found = checkpoints.read_partition(store, topic, partition)
    return [] if found is None else [each.object_key for each in found.segments]


def wait_checkpoint(broker: BrokerProcess, meta_url: str, store: ObjectStore, topic: str, partition: int = 0) -> None:
    """Returns once the bucket alone says exactly what SQL says, every object of it being there."""
    where = topic_id(broker, topic)

    def agrees() -> bool:
        return keys_in_checkpoint(store, where, partition) == keys_in_sql(meta_url, where, partition)

    eventually(agrees, "the checkpoint lists what SQL has committed", broker)
    for key in keys_in_checkpoint(store, where, partition):
        assert store.head(key) is not None, key
