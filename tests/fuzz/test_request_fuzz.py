"""Hostile requests for a live broker: valid ones of every API and version, mutated where it hurts.

The broker must go on serving a bystander, stay within its memory, keep what was stored, and meet nothing
that nobody foresaw. A failure names its seed.
"""

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.fuzz.probe import probing
from tests.support.topics import create
from tiered.formats.record_batch import Compression
from tiered.server.kafka.apis import served_apis
from tiered.wire import fetch, frames, messages, produce
from tiered.wire.schema import MessagePlan

MEMORY_LIMIT_MIB = 900
EDGES = [b"\x00", b"\xff", b"\x7f\xff", b"\x80\x00", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"]
EDGES += [b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\x01", b"\x00\x0f\x42\x40"]
# Names that tests look at ("kept", "probed") must survive whatever deletes topics.
TOPICS = ["fuzzed", "fuzzed-gzip", "fuzzed-append-time", "", "missing", "a b", "x" * 300, "é", "__consumer_offsets"]
# No quotas among them, which would hold the bystander up.
WORDS = ["retention.ms", "1", "max.message.bytes", "group", "group", "consumer", "uniform", "127.0.0.1"]
LYING_WORDS = ["\0", "zero\0byte", "a\nline", "n" * 32_750, "(", "1e400", "-1"]
LYING_DOUBLES = [-1.0, 0.0, 5e-324, 1e308, float("nan"), float("inf")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"tiered.max.partitions": 300, "log.segment.bytes": 100_000, "tiered.request.receive.timeout.ms": 5000}
    process = BrokerProcess(tmp_path_factory.mktemp("fuzz") / "data", settings=settings).start()
    create(process, "fuzzed", partitions=2)
    create(process, "fuzzed-gzip", compression_type="gzip")
    create(process, "fuzzed-append-time", message_timestamp_type="LogAppendTime")
    # Records of tests are years old.
    create(process, "kept", retention_ms="-1")
    yield process
    process.ensure_stopped()


class RequestFuzz:
    """Draws requests from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.apis = served_apis()

    def request(self) -> tuple[int, int, bytes]:
        """(API key, version, frame without its length)"""
        api = self.chance.choice(self.apis)
        version = self.chance.randint(max(api.versions[0], api.refuse_below), api.versions[1])
        body = self._body(api.key, version)
        head = frames.request_header(api.key, version, self.chance.randrange(1 << 31), self.chance.choice(["f", None]))
        data = bytearray(head + body)
        for _ in range(self.chance.choice([0, 0, 1, 1, 2, 5])):
            self._mutate(data, 8 if self.chance.random() < 0.9 else 0)
        return api.key, version, bytes(data)

    def _body(self, api_key: int, version: int) -> bytes:
        if api_key == produce.API_KEY and version < produce.FIRST_WITH_TOPIC_IDS:
            acks = self.chance.choice([0, 1, -1, 7])
            topics = [
                produce.TopicBatches(
                    self.chance.choice(TOPICS[:3] * 3 + TOPICS), None, [(self._number(), self._batch())]
                )
                for _ in range(self.chance.randrange(3))
            ]
            return produce.encode_produce_request(topics, version, acks=acks, timeout_ms=100)
        if api_key == fetch.API_KEY and version < 13:
            partitions = [
                fetch.FetchPartition(self._number(), -1, self._number(), -1, -1, self.chance.choice([-1, 1, 1 << 20]))
                for _ in range(self.chance.randrange(4))
            ]
            topics_asked = [fetch.FetchTopic(self.chance.choice(TOPICS), None, partitions)]
            limits = self.chance.choice([1, 1 << 30])
            asked = fetch.FetchRequest(-1, -1, self.chance.choice([0, 50]), limits, limits, 0, 0, -1, topics_asked)
            return fetch.encode_fetch_request(asked, version)
        plan = messages.message_class(api_key, version, "request").plan
        return bytes(messages.encode(self._message(plan)))

    def _message(self, plan: MessagePlan) -> Any:
        made = object.__new__(plan.message_class)
        for field in plan.fields:
            if field.is_array:
                count = self.chance.choice([0, 0, 1, 1, 2, 40])
                value: Any = tuple(self._value(field) for _ in range(count))
                if field.is_nullable and self.chance.random() < 0.2:
                    value = None
            else:
                value = self._value(field)
                if field.is_nullable and self.chance.random() < 0.2:
                    value = None
            setattr(made, field.name, value)
        return made

    def _value(self, field: Any) -> Any:
        if field.message is not None:
            return self._message(field.message)
        if field.format == "?":
            return self.chance.random() < 0.5
        if field.format == "d":
            return self.chance.choice([self.chance.random(), 1.0, 100.0, *LYING_DOUBLES])
        if field.format is not None:
            bits = {"b": 7, "B": 8, "h": 15, "H": 16, "i": 31, "I": 32, "q": 63, "Q": 64}[field.format]
            largest = (1 << bits) - 1
            below = [-1, -1, -2, -7, -largest - 1] if field.format.islower() else []
            likely = [0, 0, 1, 2, 3, 7, 100]
            return min(largest, self.chance.choice([*likely, largest, self.chance.randrange(largest), *below]))
        if field.kafka_type == "uuid":
            return None
        if field.kafka_type == "string":
            return self.chance.choice([*TOPICS, *WORDS, *LYING_WORDS])
        return self._batch()

    def _number(self) -> int:
        return self.chance.choice([0, 0, 0, 1, 1, 2, -1, 1000, (1 << 31) - 1])

    def _batch(self) -> bytes:
        found = bytearray(
            batch(
                [self.chance.randbytes(self.chance.randrange(60)) for _ in range(self.chance.randint(1, 5))],
                compression=self.chance.choice(list(Compression)),
                producer_id=self.chance.choice([-1, -1, 5]),
                producer_epoch=self.chance.choice([0, 1]),
                base_sequence=self.chance.randrange(5),
            )
        )
        if self.chance.random() < 0.3:
            self._mutate(found, 0)
            if len(found) > 61 and self.chance.random() < 0.7:
                from fastcrc import crc32

                struct.pack_into(">I", found, 17, crc32.iscsi(bytes(found[21:])))
        return bytes(found)

    def _mutate(self, data: bytearray, first: int) -> None:
        if len(data) <= first:
            return
        at = self.chance.randrange(first, len(data))
        match self.chance.randrange(6):
            case 0:
                data[at] ^= 1 << self.chance.randrange(8)
            case 1:
                edge = self.chance.choice(EDGES)
                data[at : at + len(edge)] = edge
            case 2:
                data[at:at] = self.chance.choice(EDGES)
            case 3:
                del data[at : at + self.chance.randint(1, 8)]
            case 4:
                del data[at:]
            case 5:
                data[at:at] = data[first:at][-200:]


def run(broker: BrokerProcess, *, seconds: float, seed: int, rest: Callable[[], float] = lambda: 0.0) -> int:
    """How many requests went out, with pauses of `rest()` seconds. Connections are used until the broker ends them."""
    fuzz = RequestFuzz(seed)
    deadline = time.monotonic() + seconds
    sent = 0
    expected = 0
    with RawConnection(broker, timeout_s=20) as bystander:
        known = bystander.fetch("kept", 0).high_watermark
        while time.monotonic() < deadline:
            time.sleep(rest())
            with RawConnection(broker, timeout_s=2) as connection:
                for _ in range(30):
                    *_, data = fuzz.request()
                    sent += 1
                    try:
                        connection.send_bytes(struct.pack(">i", len(data)) + data)
                        connection._socket.settimeout(0.02 if fuzz.chance.random() < 0.9 else 0.2)
                        if not connection._socket.recv(1 << 16):
                            break
                    except TimeoutError:
                        continue
                    except OSError:
                        break
            if sent % 5 == 0:
                answer = bystander.produce("kept", batch([b"kept"]))
                assert (answer.error_code, answer.base_offset) == (0, known + expected), f"seed {seed}"
                expected += 1
        assert bystander.fetch("kept", 0).high_watermark == known + expected, f"seed {seed}"
    assert "unforeseen" not in broker.log(), f"seed {seed}:\n{broker.log()[-4000:]}"
    status = Path(f"/proc/{broker.pid}/status").read_text()
    peak_mib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024
    assert peak_mib < MEMORY_LIMIT_MIB, f"seed {seed}: the broker took {peak_mib:.0f} MiB"
    return sent


def test_every_api_and_version_can_be_drawn_and_every_drawn_message_decodes() -> None:
    fuzz = RequestFuzz(1)
    for api in fuzz.apis:
        for version in range(max(api.versions[0], api.refuse_below), api.versions[1] + 1):
            if api.key in (produce.API_KEY, fetch.API_KEY):
                fuzz._body(api.key, version)
            else:
                messages.request_decoder(api.key, version)(fuzz._body(api.key, version), 0)


def test_mutated_requests_hurt_nobody_else(broker: BrokerProcess) -> None:
    assert run(broker, seconds=5, seed=1) > 100


@pytest.mark.fuzz
def test_mutated_requests_for_long(broker: BrokerProcess) -> None:
    seconds = 60 * float(os.environ.get("TIERED_FUZZ_MINUTES", "10"))
    seed = int.from_bytes(os.urandom(4), "big")
    create(broker, "probed", retention_ms="-1")
    with probing(broker, "probed") as probe:
        sent = run(broker, seconds=seconds, seed=seed, rest=probe.seconds_of_rest)
    probe.check(f"seed {seed}: {sent} requests")
