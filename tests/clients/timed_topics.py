"""Topics whose records have all kinds of times, written by five client libraries; and what a model says of them.

Owns the times, the writers and the model. The model knows records alone, as they are stored: never a batch's header.
"""

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import kafka

from tests.clients.clients import DEADLINE_S
from tests.clients.foreign_tools import go_program, go_programs, tool
from tests.clients.java_client import compiled
from tests.clients.raw import RawConnection
from tiered.formats import record_batch
from tiered.formats.record_batch import Record
from tiered.wire import messages

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS = 24 * 3_600_000
MINUTE_MS = 60_000
LIST_OFFSETS, GREATEST_TIME = 2, -3
Place = tuple[str, int]
Found = tuple[int, int, int]
"""Error code, offset, time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedTopic:
    """One partition. The times of its records in milliseconds, batch by batch; None where a client is given none."""

    name: str
    client: str
    codec: str
    batches: tuple[tuple[int | None, ...], ...]

    @property
    def times(self) -> list[int | None]:
        return [ms for batch in self.batches for ms in batch]

    def line(self) -> str:
        """For the programs that read topics from their input."""
        return json.dumps({"topic": self.name, "codec": self.codec, "batches": self.batches}) + "\n"


def some_topics(clients: Sequence[str], seeds: range, now_ms: int) -> list[TimedTopic]:
    """One for each seed; clients and codecs take turns. Nothing is between two days and an hour old."""
    return [
        TimedTopic(
            name=f"timed-{seed}",
            client=clients[seed % len(clients)],
            codec=CODECS[seed // len(clients) % len(CODECS)],
            batches=_batches(random.Random(seed), clients[seed % len(clients)], now_ms),
        )
        for seed in seeds
    ]


def _batches(chance: random.Random, client: str, now_ms: int) -> tuple[tuple[int | None, ...], ...]:
    at_once = now_ms - chance.randrange(9) * DAY_MS
    kinds: dict[str, Callable[[int], int | None]] = {
        "missing": lambda number: None,
        "equal": lambda number: at_once if at_once < now_ms - 2 * DAY_MS else now_ms - MINUTE_MS,
        "old": lambda number: now_ms - chance.randrange(2 * DAY_MS, 9 * DAY_MS),
        "old and rising": lambda number: now_ms - 9 * DAY_MS + number * MINUTE_MS,
        "of now": lambda number: now_ms - chance.randrange(60 * MINUTE_MS),
        "ahead": lambda number: now_ms + chance.randrange(50 * MINUTE_MS),
        "first": lambda number: 1 + number,
        "now and then missing": lambda number: chance.choice((None, now_ms - 5 * DAY_MS, now_ms)),
    }
    if client == "librdkafka":
        # The others refuse to send such.
        kinds["none"] = lambda number: -1
        kinds["now and then none"] = lambda number: chance.choice((-1, now_ms - 5 * DAY_MS - number, now_ms))
        kinds["negative"] = lambda number: -2 - chance.randrange(1000)
    chosen = chance.sample(sorted(kinds), chance.randrange(1, 4))
    batches, number = [], 0
    for _ in range(chance.randrange(1, 12)):
        kind = kinds[chance.choice(chosen)]
        count = chance.randrange(1, 9)
        batches.append(tuple(kind(number + at) for at in range(count)))
        number += count
    return tuple(batches)


# Writers. A record's key and value are its number.


@dataclass(slots=True)
class Writers:
    """By the client's name. Programs are made ready in `folder` when they are needed first."""

    bootstrap: str
    folder: Path
    _ready: dict[str, list[str]] = field(default_factory=dict)

    def write(self, topics: Sequence[TimedTopic]) -> None:
        for client in sorted({topic.client for topic in topics}):
            of_client = [topic for topic in topics if topic.client == client]
            if client == "librdkafka":
                self._librdkafka(of_client)
            elif client == "kafka-python":
                self._kafka_python(of_client)
            else:
                lines = "".join(topic.line() for topic in of_client)
                done = subprocess.run(
                    [*self._program(client), self.bootstrap], input=lines, text=True, capture_output=True,
                    timeout=600, check=False,
                )  # fmt: skip
                assert done.returncode == 0, (client, done.stderr[-2000:])

    def _program(self, client: str) -> list[str]:
        if client not in self._ready:
            folder = self.folder / client
            match client:
                case "sarama 1.45.0":
                    command = [str(go_program("go_sarama_1_45", folder))]
                case "franz-go":
                    command = [str(go_programs(folder) / "timed")]
                case _:
                    command = [
                        tool("java"),
                        "-Xmx256m",
                        "-cp",
                        f"{(classes := compiled('TimedTopics', folder))}/*:{classes}",
                    ]
                    command += ["TimedTopics"]
            self._ready[client] = command
        return self._ready[client]

    def _librdkafka(self, topics: Sequence[TimedTopic]) -> None:
        failures: list[object] = []
        for codec in CODECS:
            producer = confluent_kafka.Producer(
                {"bootstrap.servers": self.bootstrap, "compression.type": codec, "linger.ms": 20, "log_level": 0}
            )
            for topic in (topic for topic in topics if topic.codec == codec):
                number = 0
                for batch in topic.batches:
                    for ms in batch:
                        text = str(number).encode()
                        producer.produce(
                            topic.name, key=text, value=text, partition=0, timestamp=ms or 0,
                            on_delivery=lambda error, message: failures.append(error) if error else None,
                        )  # fmt: skip
                        number += 1
                    assert producer.flush(DEADLINE_S) == 0
        assert not failures, failures[:3]

    def _kafka_python(self, topics: Sequence[TimedTopic]) -> None:
        for codec in CODECS:
            producer = kafka.KafkaProducer(
                bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20
            )
            for topic in (topic for topic in topics if topic.codec == codec):
                number = 0
                for batch in topic.batches:
                    for ms in batch:
                        text = str(number).encode()
                        producer.send(topic.name, key=text, value=text, partition=0, timestamp_ms=ms)
                        number += 1
                    producer.flush(DEADLINE_S)
            producer.close(10)


# The model.


def first_since(records: Sequence[Record], ms: int) -> Record | None:
    return next((record for record in records if record.timestamp_ms >= ms), None)


def by_model(records: Sequence[Record], times: Sequence[int]) -> list[Found]:
    """The first record of that time or later; for the greatest time, the first that has it."""
    greatest_ms = max((record.timestamp_ms for record in records), default=-1)
    found: list[Found] = []
    for ms in times:
        first = first_since(records, greatest_ms if ms == GREATEST_TIME else ms)
        found.append((0, -1, -1) if first is None or greatest_ms < 0 else (0, first.offset, first.timestamp_ms))
    return found


def times_around(records: Sequence[Record]) -> list[int]:
    around = {record.timestamp_ms + near for record in records for near in (-1, 0, 1)}
    return [*sorted({0, *(ms for ms in around if ms >= 0)})[:40], GREATEST_TIME]


def after_retention(records: Sequence[Record], segments: Sequence[tuple[int, int]], since_ms: int) -> list[Record]:
    """Whole segments go, the oldest first, up to the first that has a record as young, or none with a time.

    A segment is its first offset and where it ends.
    """
    start = records[0].offset if records else 0
    for base_offset, end_offset in segments:
        inside = [record.timestamp_ms for record in records if base_offset <= record.offset < end_offset]
        if not inside or max(inside) < 0 or max(inside) >= since_ms:
            break
        start = end_offset
    return [record for record in records if record.offset >= start]


# What a broker says.


def stored_records(connection: RawConnection, topic: str, partition: int = 0, start: int = 0) -> list[Record]:
    """All records from `start` on. Kafka answers with those of one segment at a time."""
    found: list[Record] = []
    while True:
        offset = found[-1].offset + 1 if found else start
        answer = connection.fetch(topic, offset, partition=partition, partition_max_bytes=100 << 20)
        assert answer.error_code == 0, (topic, offset, answer)
        if offset >= answer.high_watermark:
            return found
        data = bytes(answer.records or b"")  # type: ignore[arg-type]
        for position, header in record_batch.whole_batches(data, 0, len(data)):
            record_batch.verify_crc(data, position, header.size_bytes)
            found += [record for record in record_batch.records(data, position) if record.offset >= offset]


def offsets_at(connection: RawConnection, times: dict[Place, list[int]]) -> dict[Place, list[Found]]:
    """What ListOffsets answers for each of these times."""
    found: dict[Place, list[Found]] = {place: [] for place in times}
    request = messages.request(LIST_OFFSETS, 10)
    for turn in range(max(map(len, times.values()))):
        topics: dict[str, list[object]] = {}
        for (topic, partition), some in times.items():
            if turn < len(some):
                wanted = request.ListOffsetsPartition(
                    partition_index=partition, current_leader_epoch=-1, timestamp=some[turn]
                )
                topics.setdefault(topic, []).append(wanted)
        wanted_topics = [request.ListOffsetsTopic(name=name, partitions=some) for name, some in topics.items()]
        answer = connection.ask(
            LIST_OFFSETS,
            10,
            request.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=wanted_topics, timeout=60_000),
        )
        for answered in answer.topics:
            for one in answered.partitions:
                found[answered.name, one.partition_index].append((one.error_code, one.offset, one.timestamp))
    return found


def check_times(connection: RawConnection, named: dict[str, tuple[Place, list[Record]]], where: str) -> None:
    """Every lookup by time finds what the model says of the records."""
    times = {place: times_around(records) for place, records in named.values()}
    found = offsets_at(connection, times)
    wrong = {
        name: (times[place], found[place], by_model(records, times[place]))
        for name, (place, records) in named.items()
        if found[place] != by_model(records, times[place])
    }
    assert not wrong, f"{where}: {len(wrong)} of {len(named)} differ: {list(wrong.items())[:3]}"
