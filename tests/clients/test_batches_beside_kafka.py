"""Batches made by hand, sent to Apache Kafka 4.4.0 and to ours: what it refuses is refused, what it takes is taken
unless a reason is named here, what is stored is the same, and so are the offsets found for times, wherever it is.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.apache_kafka import ApacheKafka, apache_kafka
from tests.broker_process import BrokerProcess
from tests.clients.clients import admin
from tests.clients.handmade_batches import CODECS, TOPICS, Case, Maker, cases, record, timed
from tests.clients.raw import RawConnection
from tests.clients.timed_topics import Place, check_times, stored_records
from tiered.formats.record_batch import Record
from tiered.wire.produce import PartitionResult

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, INVALID_RECORD = -1, 2, 87
NOT_YET = (3, 6)
WAIT_S = 120.0
QUICK = {"log.cleaner.backoff.ms": 20, "log.retention.check.interval.ms": 100}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    # What is uploaded before it is compacted stays so in the store.
    "remote.copy.lag.ms": str(10**11),
}
Broker = ApacheKafka | BrokerProcess

STRICTER = {
    "a batch and ten bytes": "Kafka cuts them off; no client sends them",
    "delete horizon": "compaction would believe when tombstones may go",
    "log append time": "the header's time would be that of every record",
    "log append time in gzip": "the header's time would be that of every record",
    "producer without an epoch": "no client has an id without an epoch",
    "wrong content checksum, lz4": "Kafka does not look at it",
    "wrong content size, lz4": "Kafka does not look at it",
    "twice, for six, snappy": "no client writes two of xerial's streams into a batch",
    "in two parts, snappy": "no client writes two of xerial's streams into a batch",
    **dict.fromkeys(
        ("a zero behind it, snappy", "bytes behind it, lz4", "a zero behind it, lz4", "twice, lz4"),
        "bytes behind the compressed ones, which nobody reads",
    ),
    **{
        f"{name}, {codec}": "consumers would meet offsets that are not those acknowledged"
        for name in ("offsets 0, 0, 7", "offsets 2, 1, 0", "offsets from 1 on", "offsets -1, 0, 1")
        for codec in CODECS
    },
    **{f"from {codec}, offsets not dense": "as where they keep their codec" for codec in CODECS},
    **{
        f"{name}, {codec}": "null is -1; other clients stop at anything else"
        for name in ("key of -2 bytes", "value of -2 bytes", "header value of -2 bytes")
        for codec in CODECS
    },
    **{
        f"{name}, {codec}": "Kafka drops the bits beyond; other clients do not"
        for name in ("offset of 33 bits", "time of 65 bits")
        for codec in CODECS
    },
    **{
        f"{name}, {codec}": "Kafka does not look at a record's length behind compression; clients stop at it"
        for name in (
            *("record longer than it is", "record longer than the batch", "record shorter than it is"),
            *("record of 0 bytes", "a byte behind the headers"),
        )
        for codec in CODECS
    },
}
"""What we may refuse though Kafka takes it, and why."""

OTHER_CODES = {
    "a byte less than the length says": (CORRUPT_MESSAGE, "Kafka sees no whole batch in the request"),
    "a header cut off": (CORRUPT_MESSAGE, "Kafka sees no whole batch in the request"),
    "magic 3": (INVALID_RECORD, "for Kafka only the magic numbers of old clients are"),
    "magic -1": (INVALID_RECORD, "for Kafka only the magic numbers of old clients are"),
    "a byte more than the length says": (INVALID_RECORD, "more than one batch; Kafka finds the CRC wrong first"),
    **{
        f"delta leaves 64 bits{way}, {codec}": (INVALID_RECORD, "Kafka's time wraps, and is out of bounds then")
        for way in ("", " downwards")
        for codec in CODECS
    },
}
"""Refused by both, by us with this code, and why."""

REFUSED_WHOLE = {
    "log append time -1": "the bit is the batch's",
    **{f"log append time, says so itself, {codec}": "the bit is the batch's" for codec in CODECS},
    **{f"bounds, log append time a year ahead, {codec}": "the bit is the batch's" for codec in CODECS},
}
"""Kafka names each record."""


@dataclass(slots=True)
class Side:
    """One broker with all cases sent to it, each to a partition of its own, between two batches that are right."""

    broker: Broker
    answers: dict[str, PartitionResult] = field(default_factory=dict)
    stored: dict[str, list[Record]] = field(default_factory=dict)
    """The records of the whole partition, for what both took."""

    def took(self, name: str) -> bool:
        return self.answers[name].error_code == 0


@dataclass(frozen=True, slots=True)
class Run:
    cases: dict[str, Case]
    places: dict[str, Place]
    kafka: Side
    ours: Side

    def taken_by_both(self) -> list[str]:
        return [name for name in self.cases if self.kafka.took(name) and self.ours.took(name)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    ours = BrokerProcess(tmp_path_factory.mktemp("ours") / "data").start()
    try:
        with apache_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
            now_ms = int(time.time() * 1000)
            all_cases = cases(now_ms)
            kinds: dict[str, list[Case]] = {}
            for case in all_cases:
                kinds.setdefault(case.topic, []).append(case)
            places = {case.name: (topic_of(kind), at) for kind, some in kinds.items() for at, case in enumerate(some)}
            made = Run({case.name: case for case in all_cases}, places, Side(kafka), Side(ours))
            for side in (made.kafka, made.ours):
                create(side.broker, {kind: len(some) for kind, some in kinds.items()})
                send(made, side, Maker(now_ms))
            for side in (made.kafka, made.ours):
                with RawConnection(side.broker) as connection:
                    side.stored = {name: stored_records(connection, *places[name]) for name in made.taken_by_both()}
            yield made
    finally:
        ours.ensure_stopped()


def topic_of(kind: str) -> str:
    return kind.replace(" ", "-")


def create(broker: Broker, kinds: dict[str, int]) -> None:
    wanted = [
        NewTopic(topic_of(kind), count, replication_factor=1, config={"retention.ms": "-1", **TOPICS[kind]})
        for kind, count in kinds.items()
    ]
    for future in admin(broker.bootstrap).create_topics(wanted).values():
        future.result(30)


def send(run: Run, side: Side, made: Maker) -> None:
    before, after = (
        made.plain(record(0, ms=ms, key=key), 1) for ms, key in ((-600_000, b"before"), (-1_200_000, b"after"))
    )
    with RawConnection(side.broker) as connection:
        for name, case in run.cases.items():
            topic, partition = run.places[name]
            produce_first(connection, topic, partition, before)
            answer = connection.produce(topic, case.data, partition=partition, version=case.version)
            side.answers[name] = answer
            last = connection.produce(topic, after, partition=partition)
            assert last.error_code == 0, last
            assert answer.error_code == 0 or last.base_offset == 1, f"{name}: refused, and appended"


def produce_first(connection: RawConnection, topic: str, partition: int, batch: bytes) -> None:
    """Kafka answers CreateTopics before all partitions have their leader."""
    deadline = time.monotonic() + WAIT_S
    while (answer := connection.produce(topic, batch, partition=partition)).error_code in NOT_YET:
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    assert (answer.error_code, answer.base_offset) == (0, 0), answer


def check_side(run: Run, side: Side, where: str) -> None:
    with RawConnection(side.broker, timeout_s=120) as connection:
        check_times(connection, {name: (run.places[name], records) for name, records in side.stored.items()}, where)


def test_what_kafka_refuses_is_refused_with_its_code(run: Run) -> None:
    for name, theirs in run.kafka.answers.items():
        ours = run.ours.answers[name]
        if theirs.error_code == 0:
            continue
        if name in OTHER_CODES:
            assert ours.error_code == OTHER_CODES[name][0], (name, theirs, ours)
        elif theirs.error_code == UNKNOWN_SERVER_ERROR:
            assert ours.error_code in (CORRUPT_MESSAGE, INVALID_RECORD, 76), (name, theirs, ours)
        else:
            assert ours.error_code == theirs.error_code, (name, theirs, ours)


def test_what_kafka_takes_is_taken_but_for_what_is_named(run: Run) -> None:
    stricter = {name for name in run.cases if run.kafka.took(name) and not run.ours.took(name)}
    assert stricter <= set(STRICTER), {name: run.ours.answers[name] for name in stricter - set(STRICTER)}
    too_much = {name for name in STRICTER if name in run.taken_by_both()}
    assert not too_much, "they are taken as Kafka does, and named"
    assert len(run.taken_by_both()) >= 120
    assert sum(not run.kafka.took(name) for name in run.cases) >= 120


def test_the_same_records_of_a_batch_are_named(run: Run) -> None:
    for name, theirs in run.kafka.answers.items():
        ours = run.ours.answers[name]
        if theirs.record_errors and name not in OTHER_CODES and name not in REFUSED_WHOLE:
            places = [error.batch_index for error in theirs.record_errors]
            assert [error.batch_index for error in ours.record_errors] == places, (name, theirs, ours)
            assert all(error.message for error in ours.record_errors), name
        else:
            assert not ours.record_errors, (name, ours)


def test_the_same_records_are_stored(run: Run) -> None:
    for name in run.taken_by_both():
        theirs, ours = run.kafka.stored[name], run.ours.stored[name]
        if run.cases[name].topic == "appended":
            theirs, ours = without_times(theirs), without_times(ours)
        assert ours == theirs, name


def without_times(records: list[Record]) -> list[Record]:
    return [replace(record, timestamp_ms=0) for record in records]


def test_kafka_finds_what_the_model_says(run: Run) -> None:
    check_side(run, run.kafka, "Kafka")


def test_times_are_found_as_kafka_finds_them_hot_after_a_restart_and_cold(run: Run) -> None:
    broker = run.ours.broker
    assert isinstance(broker, BrokerProcess)
    check_side(run, run.ours, "hot")
    assert broker.stop() == 0
    broker.start()
    check_side(run, run.ours, "after a restart")
    make_cold(broker, {run.places[name]: records[-1].offset + 1 for name, records in run.ours.stored.items()})
    check_side(run, run.ours, "cold")
    broker.kill()
    broker.start()
    check_side(run, run.ours, "cold, after a kill")


def make_cold(broker: BrokerProcess, ends: dict[Place, int]) -> None:
    change_settings(broker, {topic for topic, _ in ends}, {"segment.ms": "50", "local.retention.ms": "1"})
    for (topic, partition), end_offset in ends.items():
        broker.wait_cold(topic, partition, end_offset=end_offset, only=True, timeout_s=WAIT_S)


def change_settings(broker: BrokerProcess, topics: set[str], settings: dict[str, str]) -> None:
    wanted = []
    for topic in topics:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        for name, value in settings.items():
            resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        wanted.append(resource)
    for future in admin(broker.bootstrap).incremental_alter_configs(wanted).values():
        future.result(30)


def test_times_are_found_after_compaction_in_both_tiers(tmp_path: Path) -> None:
    """By the model, of the newest record of each key: a third batch has one of the keys anew."""
    made = Maker(int(time.time() * 1000))
    before, again, after = (
        made.plain(record(0, ms=ms, key=key), 1)
        for ms, key in ((-600_000, b"k1"), (30_000, b"k0"), (-1_200_000, b"k9"))
    )
    all_cases = [
        replace(case, name=f"{case.name}, {name}")
        for codec, name in enumerate(CODECS)
        for case in timed(made, codec)
        if case.topic == "plain"
    ]
    broker = BrokerProcess(tmp_path / "data", settings=QUICK).start()
    try:
        wanted = NewTopic("t", len(all_cases), 1, config={"retention.ms": "-1", **COMPACT})
        admin(broker.bootstrap).create_topics([wanted])["t"].result(30)
        named: dict[str, tuple[Place, list[Record]]] = {}
        with RawConnection(broker, timeout_s=120) as connection:
            for partition, case in enumerate(all_cases):
                sent = (before, case.data, again, after)
                codes = [connection.produce("t", data, partition=partition).error_code for data in sent]
                assert [codes[0], *codes[2:]] == [0, 0, 0], (case.name, codes)
                if codes[1] == 0:
                    newest = {one.key: one for one in stored_records(connection, "t", partition)}
                    named[case.name] = (("t", partition), sorted(newest.values(), key=lambda one: one.offset))
            assert len(named) >= 75
            change_settings(broker, {"t"}, {"segment.ms": "50"})
            deadline = time.monotonic() + WAIT_S
            for name, (place, records) in named.items():
                while stored_records(connection, *place) != records:
                    assert time.monotonic() < deadline, (name, records, stored_records(connection, *place))
                    time.sleep(0.1)
            check_times(connection, named, "compacted")
            change_settings(broker, {"t"}, {"remote.copy.lag.ms": "0"})
            make_cold(broker, {place: records[-1].offset + 1 for place, records in named.values()})
            check_times(connection, named, "compacted and cold")
    finally:
        broker.ensure_stopped()
