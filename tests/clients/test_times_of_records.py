"""Records with all kinds of times, of every client: after trimming, retention and restarts exactly those are there that
a model says, and lookups and resets by time find what it says.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.broker_process import BrokerProcess
from tests.clients.clients import admin
from tests.clients.raw import RawConnection
from tests.clients.timed_topics import (
    DAY_MS,
    MINUTE_MS,
    TimedTopic,
    Writers,
    after_retention,
    check_times,
    first_since,
    offsets_at,
    some_topics,
    stored_records,
)
from tests.support.command_line import Tiered
from tiered.formats.record_batch import Record

PYTHONS = ("librdkafka", "kafka-python")
EVERY = (*PYTHONS, "sarama 1.45.0", "franz-go", "Java")
WAIT_S = 120.0
SETTINGS = {"log.retention.check.interval.ms": 200, "tiered.upload.interval.ms": 100}
HOT = {"retention.ms": "-1", "segment.bytes": "1000", "remote.copy.lag.ms": "0"}
COLD = {**HOT, "local.retention.ms": "1"}
EARLIEST = -2


class Log:
    """All topics at one broker, and the records that each must have."""

    def __init__(self, broker: BrokerProcess, topics: Sequence[TimedTopic]) -> None:
        self.broker = broker
        self.topics = topics
        self.records: dict[str, list[Record]] = {}

    def create(self) -> None:
        """Every second topic keeps all but its newest segment in the object store alone."""
        for start in range(0, len(self.topics), 100):
            some = [
                NewTopic(topic.name, 1, 1, config=COLD if number % 2 else HOT)
                for number, topic in enumerate(self.topics[start : start + 100])
            ]
            for future in admin(self.broker.bootstrap).create_topics(some).values():
                future.result(60)

    def read(self) -> dict[str, list[Record]]:
        starts = self.starts()
        with RawConnection(self.broker, timeout_s=60) as connection:
            return {name: stored_records(connection, name, 0, start) for name, start in starts.items()}

    def starts(self) -> dict[str, int]:
        with RawConnection(self.broker, timeout_s=60) as connection:
            starts = offsets_at(connection, {(topic.name, 0): [EARLIEST] for topic in self.topics})
        return {name: answers[0][1] for (name, _), answers in starts.items()}

    def check(self, where: str) -> None:
        """The records are those of the model, and so is what is found by time."""
        records = self.read()
        wrong = [topic for topic in self.topics if records[topic.name] != self.records[topic.name]]
        assert not wrong, (where, len(wrong), wrong[0], records[wrong[0].name], self.records[wrong[0].name])
        with RawConnection(self.broker, timeout_s=60) as connection:
            check_times(connection, {name: ((name, 0), records) for name, records in self.records.items()}, where)

    def segments(self, topic: str) -> list[tuple[int, int]]:
        return [(segment["base_offset"], segment["end_offset"]) for segment in self.broker.segments(topic)["segments"]]


@pytest.mark.parametrize(
    ("clients", "count"),
    [
        pytest.param(PYTHONS, 20, id="a few"),
        pytest.param(EVERY, 500, id="many", marks=[pytest.mark.interop, pytest.mark.timeout(1200)]),
    ],
)
def test_exactly_the_records_are_there_that_a_model_says(clients: Sequence[str], count: int, tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS).start()
    try:
        log = Log(broker, some_topics(clients, range(count), now_ms))
        log.create()
        Writers(broker.bootstrap, tmp_path / "programs").write(log.topics)
        log.records = log.read()
        for topic in log.topics:
            told = [record.timestamp_ms for record in log.records[topic.name]]
            assert len(told) == len(topic.times), topic
            assert all(ms is None or ms == stored for ms, stored in zip(topic.times, told, strict=True)), (topic, told)
        log.check("as written")
        reset_by_time(log, now_ms)
        trim_by_time(log, log.topics[0::3])
        retain(log, log.topics[1::3], now_ms - DAY_MS)
        log.check("after trimming and retention")
        broker.kill()
        broker.start()
        log.check("after a kill")
    finally:
        broker.ensure_stopped()


def reset_by_time(log: Log, now_ms: int) -> None:
    """Of all topics at once; where no record is as young, to the end."""
    tiered = Tiered(log.broker)
    named = [word for topic in log.topics for word in ("--topic", topic.name)]
    for ms in (0, 5, now_ms - 6 * DAY_MS, now_ms - 5 * DAY_MS, now_ms - 30 * MINUTE_MS, now_ms + 10 * MINUTE_MS):
        planned = tiered.json("groups", "reset", f"since-{ms}", *named, "--to-timestamp", str(ms))
        after = {one["topic"]: one["after"] for one in planned["offsets"]}
        for name, records in log.records.items():
            first = first_since(records, ms)
            assert after[name] == (len(records) if first is None else first.offset), (name, ms, records)


def trim_by_time(log: Log, topics: Sequence[TimedTopic]) -> None:
    """Up to the time of one of its records, or just behind it."""
    tiered = Tiered(log.broker)
    for number, topic in enumerate(topics):
        records = log.records[topic.name]
        ms = max(records[number % len(records)].timestamp_ms + number % 2, 0)
        first = first_since(records, ms)
        start = len(records) if first is None else first.offset
        if all(record.timestamp_ms < 0 for record in records):
            start = 0  # Nothing is known to be older.
        tiered.json("topics", "delete-records", topic.name, "--before", f"@{ms}", "--execute")
        log.records[topic.name] = records[start:]


def retain(log: Log, topics: Sequence[TimedTopic], since_ms: int) -> None:
    wanted = []
    for topic in topics:
        log.records[topic.name] = after_retention(log.records[topic.name], log.segments(topic.name), since_ms)
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        setting = ConfigEntry("retention.ms", str(DAY_MS), incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(setting)
        wanted.append(resource)
    for future in admin(log.broker.bootstrap).incremental_alter_configs(wanted).values():
        future.result(60)
    lengths = {topic.name: len(topic.times) for topic in topics}
    ends = {name: log.records[name][0].offset if log.records[name] else length for name, length in lengths.items()}
    deadline = time.monotonic() + WAIT_S
    while late := [name for name, start in log.starts().items() if start < ends.get(name, 0)]:
        assert time.monotonic() < deadline, (late[:3], ends[late[0]], log.segments(late[0]), log.records[late[0]])
        time.sleep(0.2)
