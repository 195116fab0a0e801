"""`df.write.format("tiered")` and `writeStream`: rows become records, in tasks, through the project's own client.

Owns how much a task holds: what it gathers, and one round on its way, whatever the number of rows, topics and
partitions. Each task attempt is one idempotent producer, so a request that is sent again is stored once; an attempt
that Spark repeats writes its rows again, as with Spark's Kafka sink, unless the write has transactions
(`transactional_write`). Must never end a task before all its records are acknowledged.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_tiered.brokers import BrokerThread
from pyspark_tiered.transactional_write import (
    OpenTransaction,
    WrittenRecords,
    abort,
    abort_write,
    commit,
    name_in_batch,
)
from pyspark_tiered.write_options import WriteOptions
from tiered.errors import InvalidConfig, InvalidRequest
from tiered.formats.record_batch import Compression, Record
from tiered.peer import ACKS_ALL, BrokerError, Cluster, broker_error
from tiered.peer.producer import BatchState, Gathering, Sender, TransactionalName
from tiered.runtime import SystemClock, new_uuid
from tiered.wire.error_codes import INVALID_TRANSACTION_TIMEOUT

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

MAX_GATHERED_BYTES = 16 << 20
"""More than this is sent, whether its batches are full or not."""
_MAX_BATCH_RECORDS = 10_000
_SLICE_ROWS, _SLICE_BYTES = 1024, 4 << 20
_UNKNOWN_TOPIC, _LEADER_NOT_AVAILABLE, _MESSAGE_TOO_LARGE = 3, 5, 10
_TRIES_OF_NEW_TOPICS = 20
_PAUSE_S = 0.25


class BatchWriter(DataSourceArrowWriter):
    """Spark writes a DataFrame with this. Pickled to the tasks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._write = str(new_uuid())
        """Made once on the driver: tasks and the commit are told of it."""

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WrittenRecords:
        told = self._options.transactions
        return write_rows(self._options, iterator, None if told is None else name_in_batch(told, self._write))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self._options, messages, self._write)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        take_back(self._options, messages, self._write)


def write_rows(
    options: WriteOptions,
    batches: "Iterator[pa.RecordBatch]",
    name: TransactionalName | None = None,
    *,
    query: str | None = None,
) -> WrittenRecords:
    """How many records were written, once all are acknowledged; with a `name` in a transaction, which stays open.

    Raises `InvalidRequest` for a row that can be no record, and what brokers raise; records of earlier rows may be
    written even then, but in no transaction that can be committed.
    """
    client = options.client
    with BrokerThread(
        options.bootstrap_servers, client_id=client.client_id, timeout_ms=client.timeout_ms, security=client.security
    ) as thread:
        acks = ACKS_ALL if client.acks_all else 1
        compression = Compression[client.compression.upper()]
        sender = Sender(thread.cluster, acks=acks, compression=compression, name=name)
        outlet = _Outlet(thread, sender, options)
        is_whole = False
        try:
            for batch in batches:
                for piece in _pieces(batch):
                    for topic, partition, record in _records(piece, options):
                        outlet.add(topic, partition, record)
                    outlet.send(everything=False)
            outlet.send(everything=True)
            outlet.wait()
            is_whole = True
        finally:
            found = WrittenRecords(
                records=sender.records,
                query=query,
                transaction=_transaction_of(sender, name),
            )
            if not is_whole:
                abort(options, [found])
        return found


def _transaction_of(sender: Sender, name: TransactionalName | None) -> OpenTransaction | None:
    """None where nothing was begun: it would be nothing to commit."""
    if name is None or sender.producer_id < 0:
        return None
    return OpenTransaction(
        transactional_id=name.transactional_id,
        producer_id=sender.producer_id,
        producer_epoch=sender.producer_epoch,
    )


class _Outlet:
    """Gathers records, and sends a round while the next is gathered."""

    def __init__(self, thread: BrokerThread, sender: Sender, options: WriteOptions) -> None:
        self._thread = thread
        self._sender = sender
        self._options = options
        self._topics: dict[str, Gathering] = {}
        self._counts: dict[str, int] = {}
        self._on_its_way: Future[None] | None = None
        self._started = False

    def add(self, topic: str, partition: int | None, record: Record) -> None:
        gathering = self._topics.get(topic)
        if gathering is None:
            gathering = self._begin(topic)
        count = self._counts[topic]
        if partition is not None and not 0 <= partition < count:
            raise InvalidRequest(
                f"a row's partition is {partition}, and topic {topic} has partitions 0 to {count - 1}: correct column "
                "partition, or leave it null for the one that the key says"
            )
        gathering.add(record, partition)

    def send(self, *, everything: bool) -> None:
        """Sends full batches, or all that waits; first the round before must have arrived."""
        everything = everything or sum(each.size_bytes for each in self._topics.values()) > MAX_GATHERED_BYTES
        taken = {topic: each.take(everything=everything) for topic, each in self._topics.items()}
        wanted = {topic: batches for topic, batches in taken.items() if batches}
        if wanted:
            self.wait()
            self._on_its_way = self._thread.submit(self._send(wanted))

    def wait(self) -> None:
        """Returns when what was sent is acknowledged."""
        if self._on_its_way is None:
            return
        try:
            self._on_its_way.result()
        except BrokerError as error:
            if error.code != _MESSAGE_TOO_LARGE:
                raise
            raise InvalidRequest(
                f"{error}; raise the topic's max.message.bytes, lower kafka.batch.size (now "
                f"{self._options.client.batch_bytes}), or write smaller records"
            ) from error
        finally:
            self._on_its_way = None

    async def _send(self, wanted: dict[str, list[BatchState]]) -> None:
        await asyncio.gather(*(self._sender.send(topic, batches) for topic, batches in wanted.items()))

    def _begin(self, topic: str) -> Gathering:
        if not self._started:
            self._start()
            self._started = True
        self._counts[topic] = count = self._thread.submit(_partition_count(self._thread.cluster, topic)).result()
        gathering = self._topics[topic] = Gathering(
            count,
            max_records=_MAX_BATCH_RECORDS,
            max_bytes=self._options.client.batch_bytes,
            # Not always the first: many small tasks would fill it alone.
            sticky=new_uuid().int,
        )
        return gathering

    def _start(self) -> None:
        try:
            self._thread.submit(self._sender.start()).result()
        except BrokerError as error:
            if error.code != INVALID_TRANSACTION_TIMEOUT:
                raise
            raise InvalidConfig(
                f"option kafka.transaction.timeout.ms is {self._options.client.transaction_timeout_ms}: that is longer "
                "than transaction.max.timeout.ms of the brokers; lower it, or raise theirs"
            ) from error


async def _partition_count(cluster: Cluster, topic: str) -> int:
    """How many partitions the topic has. Brokers that create topics by themselves are given a moment for it."""
    code = _UNKNOWN_TOPIC
    for attempt in range(_TRIES_OF_NEW_TOPICS):
        if attempt:
            await asyncio.sleep(_PAUSE_S)
        described = (await cluster.metadata([topic], may_create=True)).topics.get(topic)
        if described is not None and not described.error_code and described.partitions:
            return len(described.partitions)
        code = _UNKNOWN_TOPIC if described is None else described.error_code or _LEADER_NOT_AVAILABLE
        if code not in (_UNKNOWN_TOPIC, _LEADER_NOT_AVAILABLE):
            break
    raise broker_error(code, f"topic {topic} cannot be written to; create it, and check option or column topic")


def _pieces(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """The batch in slices of few rows and bytes: as Python's objects they take several times the memory."""
    rows = max(1, min(_SLICE_ROWS, batch.num_rows * _SLICE_BYTES // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _records(batch: "pa.RecordBatch", options: WriteOptions) -> Iterator[tuple[str, int | None, Record]]:
    """Topic, partition where the row names one, and record of each row."""
    columns = {
        name.lower(): column.to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if name.lower() in options.columns
    }
    nothing: Sequence[Any] = [None] * batch.num_rows
    topics = [options.topic] * batch.num_rows if options.topic is not None else columns["topic"]
    now_ms = SystemClock().now_ms()
    rows = zip(
        topics,
        columns.get("partition", nothing),
        columns.get("key", nothing),
        columns["value"],
        columns.get("headers", nothing),
        strict=True,
    )
    for topic, partition, key, value, headers in rows:
        if not topic:
            raise InvalidRequest("a row has no topic: fill column topic, or give option topic for all rows")
        record = Record(offset=0, timestamp_ms=now_ms, key=_bytes(key), value=_bytes(value), headers=_headers(headers))
        yield topic, partition, record


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(found: Sequence[dict[str, Any] | None] | None) -> tuple[tuple[str, bytes | None], ...]:
    headers = []
    for each in found or ():
        if each is None or each["key"] is None:
            raise InvalidRequest("a row has a header without a key: every header needs one, only its value may be null")
        headers.append((each["key"], each["value"]))
    return tuple(headers)


def take_back(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], write: str | None) -> None:
    """Aborts what this write or query wrote. Without transactions a log takes nothing back: it stays.

    Where no task has told which query it is, `write` is None, and whoever writes the micro-batch again takes it back.
    """
    if options.transactions is not None:
        if write is not None:
            abort_write(options, options.transactions, messages, write)
        return
    records = sum(each.records for each in messages if isinstance(each, WrittenRecords))
    if records:
        log.warning("the write failed; %d records of the tasks that had ended by then stay in their topics", records)
