"""A producer that sends a group's offsets with transactions, request by request."""

import time
from typing import Any

from tests.clients.raw import RawConnection
from tests.support.wire_offsets import codes_of, fetch_answer, group_id
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch
from tiered.wire import messages

INIT, ADD_OFFSETS, END, SEND = 22, 25, 26, 28
UNSTABLE, CONCURRENT_TRANSACTIONS = 88, 51
COMPLETED_S = 30.0


class TransactionalProducer:
    """A client that speaks the transaction's APIs by hand, in the protocol of `version` of TxnOffsetCommit."""

    def __init__(self, connection: RawConnection, version: int, name: str | None = None) -> None:
        self._connection, self._version = connection, version
        self.name = name or group_id()
        self.is_second = version >= 5
        made = messages.request(INIT, 4).InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = connection.ask(INIT, 4, made)
        assert int(answer.error_code) == 0
        self.who = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def begin(self, group: str) -> None:
        """With the group's offsets in it, where that is the producer's business, once the last one is complete."""
        if self.is_second:
            return
        asked = messages.request(ADD_OFFSETS, 3).AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.producer_epoch,
            group_id=group,
        )
        deadline = time.monotonic() + COMPLETED_S
        while (code := int(self._connection.ask(ADD_OFFSETS, 3, asked).error_code)) == CONCURRENT_TRANSACTIONS:
            assert time.monotonic() < deadline, "the last transaction is still not complete"
            time.sleep(0.01)
        assert code == 0

    def send(
        self,
        group: str,
        topic: str,
        offsets: dict[int, int],
        note: str = "note",
        *,
        via: RawConnection | None = None,
        **member: Any,
    ) -> dict[int, int]:
        """The error codes by partition, once the last transaction is complete.

        `via` leads to the group's coordinator, where that is another broker.
        """
        make = messages.request(SEND, self._version)
        asked = make.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.producer_epoch,
            topics=[
                make.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        make.TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata=note,
                        )
                        for index, offset in offsets.items()
                    ],
                )
            ],
            **{"generation_id": -1, "member_id": "", "group_instance_id": None, **member},
        )
        deadline = time.monotonic() + COMPLETED_S
        while True:
            answer = codes_of((via or self._connection).ask(SEND, self._version, asked))
            codes = {partition: code for (_, partition), code in answer.items()}
            if CONCURRENT_TRANSACTIONS not in codes.values():
                return codes
            assert time.monotonic() < deadline, "the last transaction is still not complete"
            time.sleep(0.01)

    def end(self, *, commits: bool) -> None:
        version = 5 if self.is_second else 3
        asked = messages.request(END, version).EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.producer_epoch,
            committed=commits,
        )
        answer = self._connection.ask(END, version, asked)
        assert int(answer.error_code) == 0
        if self.is_second:
            self.who = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def stored(connection: RawConnection, group: str, topic: str, *partitions: int) -> dict[int, tuple[int, int]]:
    """(error code, offset) of the partitions, as a stable fetch is told."""
    (answer,) = fetch_answer(connection, {group: {topic: partitions}}, version=8, require_stable=True).groups
    return {each.partition_index: (int(each.error_code), each.committed_offset) for each in answer.topics[0].partitions}
