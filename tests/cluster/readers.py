"""Consumers that never stop: by assignment from leaders and from followers, and in groups that commit.

Owns their threads. Each records every record it was given, where it began, what it committed and what it found
committed.
"""

import threading
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

from tests.cluster.history import NO_OFFSET, HistoryWriter, Kind, Outcome, decode_value
from tests.cluster.senders import now_us

POLL_S = 0.2
AT_ONCE = 500
COMMIT_INTERVAL_S = 0.4
LOOK_INTERVAL_S = 3.0
COMMITTED_TIMEOUT_S = 5.0
COMMITTED_TRIES = 20
STRAY_VALUE = 0
FORBIDDEN = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
"""Nothing that was read may go away, and nothing is ever deleted in a run."""
QUICK: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.wait.max.ms": 200,
    "fetch.error.backoff.ms": 50,
    "socket.timeout.ms": 5000,
    "topic.metadata.refresh.interval.ms": 1000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "enable.partition.eof": False,
    "log_level": 0,
}
_assignments = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderPlan:
    """One consumer: by assignment, or in `group`, whose number in the history is `group_client`."""

    client: int
    group: str | None = None
    group_client: int = 0
    config: dict[str, Any] = field(default_factory=dict)


class Reader(threading.Thread):
    """Reads until it is told to stop. `positions` is what it will be given next, by partition."""

    def __init__(
        self, plan: ReaderPlan, bootstrap: str, partitions: list[tuple[str, int]], history: HistoryWriter
    ) -> None:
        super().__init__(name=f"reader-{plan.client}", daemon=True)
        self.plan = plan
        self.positions: dict[int, int] = {}
        self.errors: list[str] = []
        self._partitions = partitions
        self._index = {partition: index for index, partition in enumerate(partitions)}
        self._history = history
        self._halt = threading.Event()
        self._assignment = 0
        self._committed: dict[int, int] = {}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": plan.group or f"reader-{plan.client}",
                **QUICK,
                **plan.config,
            }
        )

    def run(self) -> None:
        try:
            if self.plan.group is None:
                self._begin([TopicPartition(topic, partition, 0) for topic, partition in self._partitions])
                self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self._partitions])
            else:
                self._consumer.subscribe(
                    sorted({topic for topic, _ in self._partitions}),
                    on_assign=self._assigned,
                    on_revoke=self._revoked,
                    on_lost=self._revoked,
                )
            self._read()
        except Exception as error:
            self.errors.append(f"reader {self.plan.client} ended: {error!r}")
        finally:
            self._consumer.close()

    def finish(self) -> None:
        self._halt.set()
        self.join(60)

    def _read(self) -> None:
        commit_due = look_due = time.monotonic()
        while not self._halt.is_set():
            for message in self._consumer.consume(AT_ONCE, POLL_S):
                self._take(message)
            if self.plan.group is None:
                continue
            if time.monotonic() >= commit_due:
                self._commit()
                commit_due = time.monotonic() + COMMIT_INTERVAL_S
            if time.monotonic() >= look_due:
                self._look([TopicPartition(*self._partitions[index]) for index in self.positions])
                look_due = time.monotonic() + LOOK_INTERVAL_S

    def _take(self, message: confluent_kafka.Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() in FORBIDDEN:
                index = self._index.get((message.topic() or "", message.partition() or 0), 0)
                self._add(Kind.ERROR, index, offset=self.positions.get(index, NO_OFFSET), value=error.code())
                self.errors.append(f"reader {self.plan.client} was told: {error}")
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        index = self._index[topic, partition]
        try:
            value = decode_value(message.value() or b"")
        except ValueError as wrong:
            value = STRAY_VALUE
            self.errors.append(f"reader {self.plan.client} at {offset}: {wrong}")
        self._add(Kind.POLL, index, offset=offset, value=value)
        self.positions[index] = offset + 1

    def _add(self, kind: Kind, index: int, *, offset: int, value: int) -> None:
        at_us = now_us()
        self._history.add(
            kind,
            client=self.plan.client,
            partition=index,
            started_us=at_us,
            ended_us=at_us,
            offset=offset,
            value=value,
        )

    def _begin(self, partitions: list[TopicPartition]) -> None:
        self._assignment = next(_assignments)
        for each in partitions:
            index = self._index[each.topic, each.partition]
            self._add(Kind.SEEK, index, offset=each.offset, value=self._assignment)
            self.positions[index] = each.offset

    # Groups

    def _assigned(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        """Begins where the group has committed: asked for here, so that it stands in the history."""
        committed: list[TopicPartition] | None = None
        for _ in range(COMMITTED_TRIES):
            if self._halt.is_set() or (committed := self._look(partitions)) is not None:
                break
        if committed is None:
            self._begin([TopicPartition(each.topic, each.partition, NO_OFFSET) for each in partitions])
            starts = [TopicPartition(each.topic, each.partition) for each in partitions]
        else:
            starts = [TopicPartition(each.topic, each.partition, max(each.offset, 0)) for each in committed]
            self._begin(starts)
        if consumer.assignment() or self.plan.config.get("group.protocol") == "consumer":
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)

    def _revoked(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            index = self._index[each.topic, each.partition]
            self.positions.pop(index, None)
            self._committed.pop(index, None)

    def _look(self, partitions: list[TopicPartition]) -> list[TopicPartition] | None:
        """What is committed; None when nobody answered."""
        if not partitions:
            return []
        started_us = now_us()
        try:
            found: list[TopicPartition] = self._consumer.committed(partitions, timeout=COMMITTED_TIMEOUT_S)
        except confluent_kafka.KafkaException:
            return None
        if any(each.error is not None for each in found):
            return None
        for each in found:
            self._history.add(
                Kind.FETCHED,
                client=self.plan.group_client,
                partition=self._index[each.topic, each.partition],
                started_us=started_us,
                ended_us=now_us(),
                offset=each.offset if each.offset >= 0 else NO_OFFSET,
            )
        return found

    def _commit(self) -> None:
        news = {
            index: position
            for index, position in self.positions.items()
            if position > 0 and self._committed.get(index) != position
        }
        if not news:
            return
        asked = [TopicPartition(*self._partitions[index], position) for index, position in news.items()]
        assignment, started_us = self._assignment, now_us()
        try:
            answers = self._consumer.commit(offsets=asked, asynchronous=False)
            errors = {self._index[each.topic, each.partition]: each.error for each in answers or []}
        except confluent_kafka.KafkaException as error:
            errors = dict.fromkeys(news, error.args[0])
        for index, position in news.items():
            # The client tries again by itself: an answer of "not a member" may be that to the second attempt.
            outcome = Outcome.OK if index in errors and errors[index] is None else Outcome.UNKNOWN
            if outcome is Outcome.OK:
                self._committed[index] = position
            self._history.add(
                Kind.COMMIT,
                client=self.plan.group_client,
                partition=index,
                started_us=started_us,
                ended_us=now_us(),
                outcome=outcome,
                offset=position,
                value=assignment,
            )
