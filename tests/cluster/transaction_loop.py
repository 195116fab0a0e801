"""One instance of a read-process-write loop, in a process of its own that may be killed at any moment.

Owns its consumer, its transactional producer and its history. It reads inputs in a group, makes a record of each for
every output partition, and sends the group's offsets with the same transaction. It ends by SIGTERM after the
transaction under way, and by itself when its producer is fenced or cannot go on: then another instance follows.
Run as `python -m tests.cluster.transaction_loop OPTIONS`, where the options are JSON.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from tests.cluster.history import (
    HistoryWriter,
    Kind,
    Outcome,
    decode_value,
    encode_value,
    sequence_of,
    transaction_value,
)
from tests.cluster.readers import QUICK as QUICK_CONSUMER
from tests.cluster.senders import QUICK as QUICK_PRODUCER
from tests.cluster.senders import now_us

AT_ONCE = 10
COLLECTING_S = 0.3
POLL_S = 0.05
CALL_S = 5.0
"""How long one call of the client may take before it is made again."""
ABORTS = 0.15
"""The share of transactions that are aborted on purpose."""
THINKING_S = 0.4
TIMEOUT_MS = 8000
PADDING_BYTES = 64


class CannotGoOn(Exception):
    """The producer's end: fenced, or an outcome that stays unknown."""


class TransactionLoop:
    """One instance: `client` is its number in the history, its attempts are counted from `first_attempt`."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._client: int = options["client"]
        self._attempt: int = options["first_attempt"]
        self._input: str = options["input"]
        self._outputs = [(topic, partition) for topic, partition in options["outputs"]]
        self._chance = random.Random(self._attempt * 1000 + self._client)
        self._history = HistoryWriter(Path(options["history"]))
        self._ends = False
        self._parent = os.getppid()
        self._collected: list[confluent_kafka.Message] = []
        self._metadata: object = None
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": options["bootstrap"],
                **QUICK_PRODUCER,
                "transactional.id": f"soak-loop-{self._client}",
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 2,
            }
        )
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": options["bootstrap"],
                **QUICK_CONSUMER,
                "group.id": options["group"],
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 1000,
            }
        )

    def end(self, *_: object) -> None:
        self._ends = True

    def run(self) -> None:
        self._until_answered(lambda: self._producer.init_transactions(CALL_S))
        self._consumer.subscribe(
            [self._input], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        while self._goes_on():
            messages = self._collect()
            if messages:
                self._transact(messages)
        self._consumer.close()

    def _goes_on(self) -> bool:
        return not self._ends and os.getppid() == self._parent

    # Reading

    def _collect(self) -> list[confluent_kafka.Message]:
        """Some inputs, all read in the present assignment."""
        deadline = time.monotonic() + COLLECTING_S
        while len(self._collected) < AT_ONCE and time.monotonic() < deadline:
            message = self._consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self._collected.append(message)
        messages, self._collected = self._collected, []
        return messages

    def _assigned(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        """The generation is kept from here on: asked for later, the client may have lost its membership, and name
        none at all, which any broker takes for a producer that is in no group."""
        self._collected.clear()
        self._metadata = consumer.consumer_group_metadata()
        consumer.assign(partitions)

    def _revoked(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self._collected.clear()

    def _rewind(self, messages: list[confluent_kafka.Message]) -> None:
        """What was read for an aborted transaction is read again."""
        first: dict[tuple[str, int], int] = {}
        for message in messages:
            first.setdefault(place_of(message), message.offset() or 0)
        for (topic, partition), offset in first.items():
            self._consumer.seek(TopicPartition(topic, partition, offset))

    # Writing

    def _transact(self, messages: list[confluent_kafka.Message]) -> None:
        attempt, started_us = self._attempt, now_us()
        self._attempt += 1
        aborts = self._chance.random() < ABORTS
        try:
            self._producer.begin_transaction()
            self._produce(attempt, messages)
            time.sleep(self._chance.uniform(0, THINKING_S))
            ends = {place_of(message): (message.offset() or 0) + 1 for message in messages}
            offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
            self._until_answered(lambda: self._producer.send_offsets_to_transaction(offsets, self._metadata, CALL_S))
            if aborts:
                self._producer.flush(CALL_S)
            else:
                self._until_answered(lambda: self._producer.commit_transaction(CALL_S))
                self._note(Kind.COMMIT_TRANSACTION, Outcome.OK, attempt, len(messages), started_us)
                return
        except KafkaException as error:
            told = error.args[0]
            print(f"loop {self._client}, attempt {attempt}: {told}", file=sys.stderr, flush=True)
            if told.fatal():
                self._note(Kind.COMMIT_TRANSACTION, Outcome.UNKNOWN, attempt, len(messages), started_us)
                raise CannotGoOn(str(told)) from error
        self._abort(attempt, messages, started_us)

    def _produce(self, attempt: int, messages: list[confluent_kafka.Message]) -> None:
        for message in messages:
            number = sequence_of(decode_value(message.value() or b""))
            value = encode_value(transaction_value(self._client, attempt, number), padding_bytes=PADDING_BYTES)
            for topic, partition in self._outputs:
                self._producer.produce(topic, value, partition=partition)
            self._producer.poll(0)

    def _abort(self, attempt: int, messages: list[confluent_kafka.Message], started_us: int) -> None:
        try:
            self._until_answered(lambda: self._producer.abort_transaction(CALL_S))
        except KafkaException as error:
            self._note(Kind.ABORT_TRANSACTION, Outcome.UNKNOWN, attempt, len(messages), started_us)
            raise CannotGoOn(str(error.args[0])) from error
        self._note(Kind.ABORT_TRANSACTION, Outcome.OK, attempt, len(messages), started_us)
        self._rewind(messages)

    def _until_answered(self, call: Callable[[], object]) -> None:
        """Makes the call until it is answered: who tires of this process kills it."""
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or os.getppid() != self._parent:
                    raise

    def _note(self, kind: Kind, outcome: Outcome, attempt: int, inputs: int, started_us: int) -> None:
        self._history.add(
            kind,
            client=self._client,
            partition=0,
            started_us=started_us,
            ended_us=now_us(),
            outcome=outcome,
            offset=inputs,
            value=transaction_value(self._client, attempt, 0),
        )
        self._history.flush()


def place_of(message: confluent_kafka.Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def main(options: dict[str, Any]) -> int:
    loop = TransactionLoop(options)
    signal.signal(signal.SIGTERM, loop.end)
    try:
        loop.run()
    except (CannotGoOn, KafkaException) as error:
        print(f"loop {options['client']} ends: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    code = main(json.loads(sys.argv[1]))
    sys.stderr.flush()
    os._exit(code)  # Never waits for a client's threads: it dies as if it had crashed.
