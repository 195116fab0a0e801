"""Records on their way to partitions: gathered into batches, sent to leaders, sent again without being stored twice.

The command line and Spark's tasks share it. Owns the choice of partitions, sequence numbers and what was acknowledged.
Must never count a record as sent before its batch was, nor hold more than it was told to.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tiered.errors import UnsupportedVersion
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.peer.answers import require_success
from tiered.peer.cluster import ACKS_ALL, Cluster
from tiered.peer.coordinator import Coordinator
from tiered.rules.partition.partitioner import next_partition, partition_for_key
from tiered.wire.error_codes import CONCURRENT_TRANSACTIONS

RECORD_OVERHEAD_BYTES = 24
"""About what a record takes besides its key, value and headers."""
_INIT_PRODUCER_ID = 22
_MAX_SEQUENCE = 0x7FFFFFFF


@dataclass(slots=True)
class BatchState:
    """Records of one batch to be. Their offsets count from 0."""

    partition: int
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0


class Gathering:
    """Sorts one topic's records into batches, one open batch for each partition.

    `sticky` says where the first records without a key go: choose it at random, for many short runs would fill one
    partition alone.
    """

    def __init__(self, partition_count: int, *, max_records: int, max_bytes: int, sticky: int = 0) -> None:
        self._partition_count = partition_count
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._open: dict[int, BatchState] = {}
        self._full: list[BatchState] = []
        self._sticky = sticky % partition_count
        self.records = 0
        """Records that wait."""
        self.size_bytes = 0
        """About how many bytes they are."""

    def add(self, record: Record, partition: int | None = None) -> None:
        """Puts the record into the open batch of `partition`, or of the one that its key says.

        Its offset becomes its place there.
        """
        if partition is None:
            partition = self._sticky if record.key is None else partition_for_key(record.key, self._partition_count)
        size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
        batch = self._open.get(partition)
        if batch is not None and batch.size_bytes + size_bytes > self._max_bytes:
            self._close(batch)
            batch = None
        if batch is None:
            batch = self._open[partition] = BatchState(partition)
        batch.records.append(
            Record(
                offset=len(batch.records),
                timestamp_ms=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
        )
        batch.size_bytes += size_bytes
        self.records += 1
        self.size_bytes += size_bytes
        if len(batch.records) >= self._max_records:
            self._close(batch)

    def take(self, *, everything: bool) -> list[BatchState]:
        """The batches that are full, oldest first; with `everything` the others as well."""
        if everything:
            for batch in list(self._open.values()):
                self._close(batch)
        taken, self._full = self._full, []
        self.records -= sum(len(batch.records) for batch in taken)
        self.size_bytes -= sum(batch.size_bytes for batch in taken)
        return taken

    def _close(self, batch: BatchState) -> None:
        del self._open[batch.partition]
        self._full.append(batch)
        if batch.partition == self._sticky:
            self._sticky = next_partition(self._sticky, self._partition_count)


@dataclass(slots=True)
class DoneState:
    """The acknowledgement for one partition. Offsets are None where the broker did not tell them."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalName:
    """The transactional id that a sender writes under, and for how long its transaction may be open."""

    transactional_id: str
    timeout_ms: int


class Sender:
    """Sends batches to their leaders and waits for the acknowledgements, one batch of a partition at a time.

    With acks=all it is idempotent: a batch that is sent again, because its answer was lost, is stored once. With a
    `name` everything is in one transaction, which stays open: whoever gets `producer_id` and `producer_epoch` ends it.
    """

    def __init__(
        self, cluster: Cluster, *, acks: int, compression: Compression, name: TransactionalName | None = None
    ) -> None:
        assert name is None or acks == ACKS_ALL, "transactions are for acks=all"
        self._cluster = cluster
        self._name = name
        self._acks = acks
        self._compression = compression
        self.producer_id = self.producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self.done: dict[tuple[str, int], DoneState] = {}

    @property
    def records(self) -> int:
        """Records acknowledged so far."""
        return sum(each.records for each in self.done.values())

    async def start(self) -> None:
        """Gets a producer id, by which a batch that is sent again is recognised. Raises BrokerError and Retriable.

        What another sender of this name has left open is aborted, and it is fenced.
        """
        if self._acks != ACKS_ALL:
            return
        if self._name is not None:
            await self._start_as(self._name)
            return
        try:
            answer = await self._cluster.request(
                _INIT_PRODUCER_ID,
                lambda make: make.InitProducerIdRequest(transactional_id=None, transaction_timeout=60_000),
            )
        except UnsupportedVersion:
            return  # An old broker: it does without, and what may have been written is not sent again.
        require_success(answer, "the broker gave no producer id")
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    async def _start_as(self, name: TransactionalName) -> None:
        async with Coordinator(
            self._cluster, name.transactional_id, of_transactions=True, timeout_ms=self._cluster.timeout_ms
        ) as coordinator:
            answer = await coordinator.ask(
                _INIT_PRODUCER_ID,
                lambda make: make.InitProducerIdRequest(
                    transactional_id=name.transactional_id, transaction_timeout=name.timeout_ms
                ),
                lambda answer: (answer.error_code,),
                later=frozenset({CONCURRENT_TRANSACTIONS}),
            )
        require_success(answer, f"transactional id {name.transactional_id} got no producer id")
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    async def send(self, topic: str, batches: Sequence[BatchState]) -> None:
        """Returns when all are acknowledged. Raises what `Cluster.produce` does when one is not.

        Others may be even then; nothing may be sent after that, for sequences would have a hole.
        """
        by_partition: dict[int, list[BatchState]] = {}
        for batch in batches:
            by_partition.setdefault(batch.partition, []).append(batch)
        outcomes = await asyncio.gather(
            *(self._send_in_turn(topic, each) for each in by_partition.values()), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _send_in_turn(self, topic: str, batches: Sequence[BatchState]) -> None:
        for batch in batches:
            produced = await self._cluster.produce(
                topic,
                batch.partition,
                self._encoded(topic, batch),
                acks=self._acks,
                repeatable=self.producer_id >= 0,
                transactional_id=None if self._name is None else self._name.transactional_id,
            )
            self._acknowledged(topic, batch, produced.base_offset)

    def _encoded(self, topic: str, batch: BatchState) -> bytes:
        sequence = -1
        if self.producer_id >= 0:
            sequence = self._sequences.get((topic, batch.partition), 0)
            self._sequences[topic, batch.partition] = (sequence + len(batch.records)) & _MAX_SEQUENCE
        return encode_batch(
            batch.records,
            compression=self._compression,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=self._name is not None,
        )

    def _acknowledged(self, topic: str, batch: BatchState, base_offset: int) -> None:
        done = self.done.setdefault((topic, batch.partition), DoneState())
        done.records += len(batch.records)
        if base_offset >= 0:
            if done.first_offset is None:
                done.first_offset = base_offset
            done.last_offset = base_offset + len(batch.records) - 1
