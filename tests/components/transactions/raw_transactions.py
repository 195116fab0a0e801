"""Requests of a transactional producer, one by one, as no client library sends them."""

import time
from dataclasses import dataclass, replace
from typing import Any

from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tiered.wire import messages, produce
from tiered.wire.produce import PartitionResult

INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN, DESCRIBE_TRANSACTIONS = 22, 24, 26, 65
NOT_YET = (14, 15, 16, 51)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS."""
WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RawProducer:
    """Who a producer is, and the connection to its coordinator."""

    coordinator: RawConnection
    transactional_id: str
    producer_id: int
    producer_epoch: int

    @staticmethod
    def begin(coordinator: RawConnection, transactional_id: str) -> "RawProducer":
        """Initializes the transactional id: whoever had it is fenced."""
        request = messages.request(INIT_PRODUCER_ID, 4).InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = _when_ready(lambda: coordinator.ask(INIT_PRODUCER_ID, 4, request))
        assert answer.error_code == 0, answer.error_code
        return RawProducer(
            coordinator=coordinator,
            transactional_id=transactional_id,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
        )

    def add(self, topic: str, *partitions: int) -> None:
        """Puts the partitions into the transaction, as producers of the first protocol do."""
        make = messages.request(ADD_PARTITIONS_TO_TXN, 3)
        request = make.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[make.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = self.coordinator.ask(ADD_PARTITIONS_TO_TXN, 3, request)
        codes = {
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        assert codes == {0}, codes

    def end(self, *, commits: bool) -> "RawProducer":
        """In the second protocol: with the producer's next epoch."""
        request = messages.request(END_TXN, 5).EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commits,
        )
        answer = _when_ready(lambda: self.coordinator.ask(END_TXN, 5, request))
        assert answer.error_code == 0, answer.error_code
        return replace(self, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)

    def partitions(self) -> dict[str, set[int]]:
        """What is in the open transaction, as its coordinator says."""
        request = messages.request(DESCRIBE_TRANSACTIONS, 0).DescribeTransactionsRequest(
            transactional_ids=[self.transactional_id]
        )
        (found,) = self.coordinator.ask(DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        return {each.topic: set(each.partitions) for each in found.topics}

    def batch(self, sequence: int = 0, *, is_transactional: bool = True) -> bytes:
        return batch(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=is_transactional,
        )

    def request(self, topic: str, data: dict[int, bytes], *, version: int, transactional_id: str | None = "") -> bytes:
        """The body of a Produce request; "" stands for the producer's own transactional id."""
        return produce.encode_produce_request(
            [produce.TopicBatches(topic, None, list(data.items()))],
            version,
            acks=-1,
            timeout_ms=5000,
            transactional_id=self.transactional_id if transactional_id == "" else transactional_id,
        )

    def produce(
        self,
        leader: RawConnection,
        topic: str,
        data: dict[int, bytes],
        *,
        version: int,
        transactional_id: str | None = "",
    ) -> dict[int, PartitionResult]:
        body = self.request(topic, data, version=version, transactional_id=transactional_id)
        answer = leader.call(produce.API_KEY, version, body)
        (told,) = produce.decode_produce_response(answer, 0, len(answer), version).topics
        return {each.partition_index: each for each in told.partitions}


def _when_ready(ask: Any) -> Any:
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = ask()
        if answer.error_code not in NOT_YET or time.monotonic() > deadline:
            return answer
        time.sleep(0.02)
