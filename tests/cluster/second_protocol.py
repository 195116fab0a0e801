"""A read-process-write loop whose producer speaks the second protocol of transactions (KIP-890), request by request.

Owns the producer's side of it: leaders and coordinators are looked for, requests are repeated as they were, each end of
a transaction gives the next epoch. librdkafka speaks the first protocol alone. The loop reads as the one of its group,
and now and then it drops everything in the middle, as a crash would.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.raw import RawConnection
from tests.cluster.history import (
    HistoryWriter,
    Kind,
    Outcome,
    decode_value,
    encode_value,
    sequence_of,
    transaction_value,
)
from tests.cluster.readers import QUICK
from tests.cluster.senders import now_us
from tests.cluster.transaction_loop import place_of
from tests.components.batches import batch
from tiered.wire import messages, produce

GROUP = "soak-second-protocol"
FIND_COORDINATOR, INIT_PRODUCER_ID, END_TXN, TXN_OFFSET_COMMIT = 10, 22, 26, 28
OF_GROUP, OF_TRANSACTIONAL_ID = 0, 1
PRODUCE_VERSION = 12
RETRIABLE = frozenset({3, 5, 6, 7, 14, 15, 16, 19, 20, 51, 56, 72, 74, 75, 76, 100})
"""Codes after which the same request is sent again, to whoever leads or coordinates by then."""
DUPLICATE_SEQUENCE = 46
LIFE_S = (5.0, 15.0)
CRASHES = 0.05
"""The share of transactions in whose middle everything is dropped."""
ABORTS = 0.15
AT_ONCE = 10
COLLECTING_S = 0.4
CALL_S = 3.0
AGAIN_S = 0.1
TIMEOUT_MS = 8000


class GaveUp(Exception):
    """This instance of the producer is over; another one follows."""


@dataclass(slots=True)
class Address:
    kafka_port: int


class SecondProtocolLoop(threading.Thread):
    """Instances of one transactional id, one after another, in one thread."""

    def __init__(
        self, client: int, bootstrap: str, input_: list[tuple[str, int]], outputs: list[tuple[str, int]], folder: Path
    ) -> None:
        super().__init__(name=f"loop-{client}", daemon=True)
        self.counts: dict[str, int] = {}
        self._client = client
        self._addresses = bootstrap
        self._inputs = input_
        self._outputs = outputs
        self._history = HistoryWriter(folder / f"loop-{client}-0001.history")
        self._chance = random.Random(client)
        self._attempt = 0
        self._id = f"soak-loop-{client}"
        self._halt = threading.Event()
        self._settles = threading.Event()
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._connections: dict[int, RawConnection] = {}
        self._producer = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    def settle(self) -> None:
        """From now on no instance ends but for a reason."""
        self._settles.set()

    def halt(self) -> None:
        """The loop ends after its present transaction, or when that is given up."""
        self._halt.set()

    def finish(self) -> None:
        """Returns when it has ended."""
        self.halt()
        self.join(30)

    def run(self) -> None:
        while not self._halt.is_set():
            try:
                self._live()
            except (GaveUp, KafkaException) as end:
                words = str(end) if isinstance(end, GaveUp) else "reading failed"
                self.counts[words] = self.counts.get(words, 0) + 1
                self._halt.wait(AGAIN_S)
        self._history.close()

    def _live(self) -> None:
        """One instance."""
        self._begin()
        consumer = confluent_kafka.Consumer(
            {
                **QUICK,
                "bootstrap.servers": self._addresses,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            starts = consumer.committed([TopicPartition(*each) for each in self._inputs], timeout=CALL_S)
            if any(each.error is not None for each in starts):
                raise GaveUp("told no offsets")
            positions = {(each.topic, each.partition): max(each.offset, 0) for each in starts}
            consumer.assign([TopicPartition(*place, offset) for place, offset in positions.items()])
            ends = time.monotonic() + self._chance.uniform(*LIFE_S)
            while not self._halt.is_set() and (self._settles.is_set() or time.monotonic() < ends):
                read = [each for each in consumer.consume(AT_ONCE, COLLECTING_S) if each.error() is None]
                if read and not self._transact(read):
                    for message in reversed(read):
                        consumer.seek(TopicPartition(*place_of(message), message.offset() or 0))
        finally:
            consumer.close()

    # One transaction

    def _transact(self, read: list[confluent_kafka.Message]) -> bool:
        """Whether it was committed."""
        self._attempt += 1
        started_us, commits = now_us(), self._chance.random() >= ABORTS
        crashes_after = self._chance.randrange(3) if self._chance.random() < CRASHES else -1
        kind = Kind.COMMIT_TRANSACTION if commits else Kind.ABORT_TRANSACTION
        outcome = Outcome.UNKNOWN
        numbers = [sequence_of(decode_value(message.value() or b"")) for message in read]
        values = [
            encode_value(transaction_value(self._client, self._attempt, each), padding_bytes=64) for each in numbers
        ]
        offsets: dict[tuple[str, int], int] = {}
        for message in read:
            offsets[place_of(message)] = (message.offset() or 0) + 1
        steps: list[Callable[[], None]] = [partial(self._produce, place, values) for place in self._outputs]
        steps.append(partial(self._commit_offsets, offsets))
        self._chance.shuffle(steps)
        try:
            for number, step in enumerate(steps):
                if number == crashes_after:
                    raise GaveUp("dropped on purpose")
                step()
            self._end(commits=commits)
            outcome = Outcome.OK
        finally:
            self._history.add(
                kind,
                client=self._client,
                partition=0,
                started_us=started_us,
                ended_us=now_us(),
                outcome=outcome,
                offset=len(read),
                value=transaction_value(self._client, self._attempt, 0),
            )
            self._history.flush()
        return commits

    def _begin(self) -> None:
        request = messages.request(INIT_PRODUCER_ID, 5).InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout=TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = self._ask_coordinator(
            OF_TRANSACTIONAL_ID, self._id, INIT_PRODUCER_ID, 5, request, lambda told: told.error_code
        )
        self._take((answer.producer_id, answer.producer_epoch))

    def _take(self, producer: tuple[int, int]) -> None:
        self._producer = producer
        self._sequences = dict.fromkeys(self._outputs, 0)

    def _produce(self, place: tuple[str, int], values: list[bytes]) -> None:
        topic, partition = place
        producer_id, producer_epoch = self._producer
        data = batch(
            values,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._sequences[place],
            first_ms=int(time.time() * 1000),
            transactional=True,
        )
        body = produce.encode_produce_request(
            [produce.TopicBatches(topic, None, [(partition, data)])],
            PRODUCE_VERSION,
            acks=-1,
            timeout_ms=2000,
            transactional_id=self._id,
        )

        def ask() -> int:
            answer = self._connection(self._leader(place)).call(produce.API_KEY, PRODUCE_VERSION, body)
            (told,) = produce.decode_produce_response(answer, 0, len(answer), PRODUCE_VERSION).topics
            code = told.partitions[0].error_code
            return 0 if code == DUPLICATE_SEQUENCE else code

        self._until_answered("Produce", ask)
        self._sequences[place] += len(values)

    def _commit_offsets(self, offsets: dict[tuple[str, int], int]) -> None:
        make = messages.request(TXN_OFFSET_COMMIT, 5)
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, []).append(
                make.TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=None
                )
            )
        producer_id, producer_epoch = self._producer
        request = make.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=GROUP,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[
                make.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )
        self._ask_coordinator(
            OF_GROUP,
            GROUP,
            TXN_OFFSET_COMMIT,
            5,
            request,
            lambda told: max(each.error_code for topic in told.topics for each in topic.partitions),
        )

    def _end(self, *, commits: bool) -> None:
        producer_id, producer_epoch = self._producer
        request = messages.request(END_TXN, 5).EndTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=producer_epoch, committed=commits
        )
        answer = self._ask_coordinator(OF_TRANSACTIONAL_ID, self._id, END_TXN, 5, request, lambda told: told.error_code)
        self._take((answer.producer_id, answer.producer_epoch))

    # Whom to ask

    def _ask_coordinator(
        self, key_type: int, key: str, api_key: int, version: int, request: Any, code_of: Callable[[Any], int]
    ) -> Any:
        answers: list[Any] = []

        def ask() -> int:
            answers.append(self._connection(self._coordinator(key_type, key)).ask(api_key, version, request))
            return code_of(answers[-1])

        self._until_answered(type(request).__name__.removesuffix("Request"), ask)
        return answers[-1]

    def _until_answered(self, what: str, ask: Callable[[], int]) -> None:
        """Repeats the question until its answer is final. Raises GaveUp when that is an error."""
        while not self._halt.is_set() or self._settles.is_set():
            try:
                code = ask()
            except (OSError, AssertionError, KafkaException, StopIteration):
                self._forget_connections()
                code = 7
            if code == 0:
                return
            if code not in RETRIABLE:
                raise GaveUp(f"{what}: error {code}")
            time.sleep(AGAIN_S)
        raise GaveUp("stopped")

    def _leader(self, place: tuple[str, int]) -> int:
        topic, partition = place
        found = self._admin.list_topics(topic, timeout=CALL_S)
        leader = found.topics[topic].partitions[partition].leader
        if leader not in found.brokers:
            raise ConnectionError(f"{topic}-{partition} has no leader")
        return int(found.brokers[leader].port)

    def _coordinator(self, key_type: int, key: str) -> int:
        request = messages.request(FIND_COORDINATOR, 4).FindCoordinatorRequest(
            key_type=key_type, coordinator_keys=[key]
        )
        ports = [int(address.rpartition(":")[2]) for address in self._addresses.split(",")]
        self._chance.shuffle(ports)
        for port in ports:
            try:
                (found,) = self._connection(port).ask(FIND_COORDINATOR, 4, request).coordinators
            except (OSError, AssertionError):
                self._forget_connections()
                continue
            if found.error_code == 0:
                return int(found.port)
        raise ConnectionError(f"nobody knows who coordinates {key}")

    def _connection(self, port: int) -> RawConnection:
        if port not in self._connections:
            self._connections[port] = RawConnection(Address(port), timeout_s=CALL_S)
        return self._connections[port]

    def _forget_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
