"""The part of the workload that is transactions: numbered inputs, loops that process them, readers of the outputs.

Owns its topics' names and its cast, and how all of it comes to its end: every input processed, nothing open, every
committed record read.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.cluster.history import HistoryWriter, encode_value, value_of
from tests.cluster.readers import Reader, ReaderPlan
from tests.cluster.second_protocol import GROUP as SECOND_PROTOCOL_GROUP
from tests.cluster.second_protocol import SecondProtocolLoop
from tests.cluster.senders import PATIENT, Sender, SenderPlan
from tests.cluster.transaction_checks import LAST_WORD
from tests.cluster.transaction_keeper import LoopKeeper
from tests.faults.ledger import watermarks

INPUT, HOT_OUTPUT, COLD_OUTPUT = "soak-inputs", "soak-outputs", "soak-outputs-cold"
INPUTS = [(INPUT, 0), (INPUT, 1)]
OUTPUTS = [(HOT_OUTPUT, 0), (COLD_OUTPUT, 0)]
CONFIGS = {
    INPUT: {"segment.bytes": "100000", "local.retention.ms": "-1", "retention.ms": "-1"},
    HOT_OUTPUT: {"segment.bytes": "30000", "local.retention.ms": "-1", "retention.ms": "-1"},
    COLD_OUTPUT: {"segment.bytes": "20000", "local.retention.bytes": "1", "retention.ms": "-1"},
}
INPUT_SENDER = 40
LOOP_COMMAND = (sys.executable, "-m", "tests.cluster.transaction_loop")
SECOND_PROTOCOL_LOOP = 43
GROUP, LOOPS = "soak-loops", (41, 42)
JAVA_GROUP, JAVA_LOOPS = "soak-java", (44, 45)
GROUPS = {GROUP: frozenset(LOOPS), SECOND_PROTOCOL_GROUP: frozenset({SECOND_PROTOCOL_LOOP})}
GROUPS_WITH_JAVA = {**GROUPS, JAVA_GROUP: frozenset(JAVA_LOOPS)}
"""The loops of each group: each group processes every input."""
READERS = (131, 132)
INPUTS_HISTORY, READS_HISTORY = "inputs.history", "outputs.history"
LOOPS_HISTORIES = "loop-*.history"
ASK_S = 10.0
MOST_S = 900.0
"""Of one wait at the end, however much still moves."""


class TransactionWorkload:
    """Everything about transactions that runs against one cluster."""

    def __init__(
        self, bootstrap: str, folder: Path, *, per_second: float, followers_rack: str, java: Sequence[str]
    ) -> None:
        self._bootstrap = bootstrap
        self._groups = GROUPS_WITH_JAVA if java else GROUPS
        self._inputs = HistoryWriter(folder / INPUTS_HISTORY)
        self._reads = HistoryWriter(folder / READS_HISTORY)
        plan = SenderPlan(
            client=INPUT_SENDER, per_second=per_second, value_bytes=16, config={**PATIENT, "linger.ms": 5}
        )
        self.sender = Sender(plan, bootstrap, INPUTS, self._inputs)
        isolation = {"isolation.level": "read_committed"}
        plans = [
            ReaderPlan(client=READERS[0], config=isolation),
            ReaderPlan(client=READERS[1], config={**isolation, "client.rack": followers_rack}),
        ]
        self.readers = [Reader(each, bootstrap, OUTPUTS, self._reads) for each in plans]
        options = {"bootstrap": bootstrap, "input": INPUT, "outputs": OUTPUTS}
        self._loops: list[LoopKeeper | SecondProtocolLoop] = [
            *(LoopKeeper(client, LOOP_COMMAND, {**options, "group": GROUP}, folder) for client in LOOPS),
            SecondProtocolLoop(SECOND_PROTOCOL_LOOP, bootstrap, INPUTS, OUTPUTS, folder),
        ]
        if java:
            self._loops += [LoopKeeper(client, java, {**options, "group": JAVA_GROUP}, folder) for client in JAVA_LOOPS]

    def start(self) -> None:
        for thread in (self.sender, *self.readers, *self._loops):
            thread.start()

    def lives(self) -> dict[str, int]:
        """How the instances of loops have ended so far."""
        return dict(sum((Counter(loop.counts) for loop in self._loops), Counter()))

    def settle(self) -> None:
        """No instance is replaced any more."""
        for loop in self._loops:
            loop.settle()

    def drain(self, patience_s: float) -> list[str]:
        """Waits until every input is processed, nothing is open and all is read; what is not. The loops end."""

        def unprocessed() -> list[str]:
            return [words for group in self._groups for words in self._unprocessed(group)]

        behind = _until_none(unprocessed, patience_s)
        self._end_loops()
        behind += _until_none(self._held_back, patience_s)
        return behind or _until_none(self._unread(self._last_words()), patience_s)

    def _end_loops(self) -> None:
        for loop in self._loops:
            loop.halt()
        for loop in self._loops:
            loop.finish()

    def _unprocessed(self, group: str) -> list[str]:
        consumer = self._consumer(group)
        try:
            ends = {each: watermarks(consumer, *each)[1] for each in INPUTS}
            found = consumer.committed([TopicPartition(*each) for each in INPUTS], timeout=ASK_S)
            return [
                f"the loops of {group} are at {each.offset} of {ends[each.topic, each.partition]}"
                f" in {each.topic}-{each.partition}"
                for each in found
                if max(each.offset, 0) < ends[each.topic, each.partition]
            ]
        finally:
            consumer.close()

    def _held_back(self) -> list[str]:
        """Where the last stable offset is not the high watermark."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        asked = {TopicPartition(*each): OffsetSpec.latest() for each in OUTPUTS}  # type: ignore[no-untyped-call]
        ends, stable = (
            {
                (place.topic, place.partition): answer.result().offset
                for place, answer in admin.list_offsets(asked, isolation_level=level, request_timeout=ASK_S).items()
            }
            for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
        )
        return [
            f"the last stable offset of {topic}-{partition} is {stable[topic, partition]} of {end}"
            for (topic, partition), end in ends.items()
            if stable[topic, partition] != end
        ]

    def _last_words(self) -> dict[int, int]:
        """Writes one plain record to each output; the offset that follows it."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self._bootstrap, "log_level": 0, **PATIENT})
        ends: dict[int, int] = {}

        def written(error: Any, message: confluent_kafka.Message) -> None:
            if error is None:
                ends[OUTPUTS.index((message.topic() or "", message.partition() or 0))] = (message.offset() or 0) + 1

        for index, (topic, partition) in enumerate(OUTPUTS):
            value = encode_value(value_of(LAST_WORD, index), padding_bytes=0)
            producer.produce(topic, value, partition=partition, on_delivery=written)
        producer.flush(ASK_S)
        return ends

    def _unread(self, ends: dict[int, int]) -> Any:
        def unread() -> list[str]:
            return [
                f"reader {reader.plan.client} is at {reader.positions.get(index)} of {ends.get(index)}"
                f" in {OUTPUTS[index][0]}-{OUTPUTS[index][1]}"
                for reader in self.readers
                for index in range(len(OUTPUTS))
                if index not in ends or reader.positions.get(index, 0) < ends[index]
            ]

        return unread

    def _consumer(self, group: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )

    def stop(self) -> None:
        self._end_loops()
        for reader in self.readers:
            reader.finish()
        self._inputs.close()
        self._reads.close()


def _until_none(look: Callable[[], list[str]], patience_s: float) -> list[str]:
    """What `look` finds when it finds nothing, or has found the same for `patience_s`: busy machines only take longer.
    What cannot be asked now is asked again."""
    began = changed = time.monotonic()
    found: list[str] | None = None
    while True:
        before = found
        try:
            found = look()
        except (KafkaException, AssertionError) as error:
            found = [f"cannot be asked: {error!r}"]
        now = time.monotonic()
        changed = changed if found == before else now
        if not found or now - changed > patience_s or now - began > MOST_S:
            return found
        time.sleep(0.2)
