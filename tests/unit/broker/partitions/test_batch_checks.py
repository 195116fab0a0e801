"""A batch is looked at before it is stored: its shape, its times, its keys, and whose codec it has."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.partition_appends import NOW_MS, batch, keyed
from tiered.broker.partitions import batch_checks
from tiered.broker.partitions.batch_checks import (
    LongValidations,
    RecordsOutOfTime,
    RecordsWithoutKey,
    ValidatedBatch,
    limits_of,
)
from tiered.config import TopicConfig
from tiered.config.limits import LimitSettings
from tiered.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    TieredError,
)
from tiered.formats.batch_validation import MAX_REFUSED_RECORDS
from tiered.formats.record_batch import BatchHeader, Compression, Record, encode_batch

ONE = [Record(offset=0, timestamp_ms=NOW_MS, key=None, value=b"v")]


def validated(data: bytes, config: TopicConfig = TopicConfig(), now_ms: int = NOW_MS) -> ValidatedBatch:  # noqa: B008 - frozen
    buffer, limits = memoryview(bytearray(data)), limits_of(config)
    header = batch_checks.valid_header(buffer, 0, len(data), limits, now_ms, "orders-0")
    assert header is not None
    return ValidatedBatch(buffer, 0, len(data), header, limits)


def checked(data: bytes, config: TopicConfig = TopicConfig(), now_ms: int = NOW_MS) -> BatchHeader:  # noqa: B008 - frozen
    return validated(data, config, now_ms).header


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (bytes(batch("v") * 2), InvalidRecord, "exactly one batch"),
        (encode_batch(ONE, last_offset=5), InvalidRecord, "contradicts"),
        (b"\0" * 7 + b"\x05" + encode_batch(ONE)[8:], InvalidRecord, "base offset is 5"),
        (encode_batch(ONE, control=True, transactional=True), InvalidRecord, "control"),
        (encode_batch(ONE, transactional=True), InvalidRecord, "needs a producer id"),
        (encode_batch(ONE, producer_id=7), InvalidRecord, "needs a producer epoch"),
        (bytes(batch("v"))[:-1] + b"\xff", CorruptBatch, "CRC"),
        (bytes(batch("v"))[:16] + b"\x01" + bytes(batch("v"))[17:], InvalidRecord, "magic 2"),
        (bytes(batch("v" * 2_000_000)), MessageTooLarge, "max.message.bytes"),
    ],
    ids=["two", "count", "base-offset", "control", "transactional", "no-epoch", "crc", "magic", "size"],
)
def test_a_batch_that_may_not_be_stored_is_refused_in_words(data: bytes, error: type[TieredError], words: str) -> None:
    with pytest.raises(error, match=words):
        checked(data)


def test_times_are_refused_beyond_the_topics_bounds_unless_the_broker_sets_them() -> None:
    times = [NOW_MS, NOW_MS + 7, -1, NOW_MS - 7]
    data = encode_batch([replace(ONE[0], offset=at, timestamp_ms=time_ms) for at, time_ms in enumerate(times)])
    assert checked(data).max_timestamp_ms == NOW_MS + 7
    with pytest.raises(
        RecordsOutOfTime, match=r"1 of 4 are: .* 7 ms ahead .* message.timestamp.after.max.ms=5"
    ) as raised:
        checked(data, TopicConfig(message_timestamp_after_max_ms=5))
    assert isinstance(raised.value, InvalidTimestamp)
    assert [place for place, _ in raised.value.records] == [1]
    config = TopicConfig(message_timestamp_before_max_ms=5, message_timestamp_after_max_ms=7)
    with pytest.raises(RecordsOutOfTime, match=r"record 3 .* 7 ms behind .* message.timestamp.before.max.ms=5"):
        checked(data, config)
    assert checked(data, replace(config, message_timestamp_type="LogAppendTime")).record_count == 4


def test_records_without_a_key_are_named_by_their_places_but_not_by_the_million() -> None:
    compacted = TopicConfig(cleanup_policy=("compact",))
    assert checked(bytes(keyed("k", "v")), compacted).record_count == 1
    keys = [b"k", None, b"k", *[None] * MAX_REFUSED_RECORDS]
    records = [Record(offset=at, timestamp_ms=0, key=key, value=b"") for at, key in enumerate(keys)]
    for codec in (Compression.NONE, Compression.LZ4):
        data = encode_batch(records, compression=codec)
        assert checked(data).record_count == len(keys)
        with pytest.raises(RecordsWithoutKey, match="record 1 of the batch is refused, and 10001 of 10003") as raised:
            checked(data, compacted)
        assert [place for place, _ in raised.value.records[:2]] == [1, 3]
        assert len(raised.value.records) == MAX_REFUSED_RECORDS


def test_a_batch_gets_the_topics_codec_only_where_it_has_another() -> None:
    config = TopicConfig(compression_type="lz4")
    assert batch_checks.foreign_codec(Compression.LZ4, config) is None
    assert batch_checks.foreign_codec(Compression.ZSTD, TopicConfig()) is None
    code = batch_checks.foreign_codec(Compression.ZSTD, config)
    assert code == Compression.LZ4
    after = batch_checks.recompressed(validated(encode_batch(ONE, compression=Compression.ZSTD)), code)
    assert checked(bytes(after.buffer[after.position : after.end])) == after.header
    assert (after.header.compression, after.header.record_count) == (Compression.LZ4, 1)


def test_requests_that_wait_for_validation_leave_room_for_others_to_arrive() -> None:
    """A receive buffer that waits is at most twice as large as its request."""
    waiting_bytes = 2 * (batch_checks.REQUESTS_BYTES + batch_checks.MAX_WAITING_BYTES)
    assert waiting_bytes < LimitSettings().queued_max_request_bytes


def validation_of(validations: LongValidations, owner: str, name: str) -> Coroutine[Any, Any, ValidatedBatch]:
    replica = cast(Any, SimpleNamespace(limits=limits_of(TopicConfig()), name="t-0"))
    return validations.run(owner, memoryview(name.encode()), 0, 1, replica, 0, None)


async def test_owners_of_batches_that_take_long_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(batch_checks, "validated_in_thread", lambda buffer, *_: seen.append(bytes(buffer).decode()))
    validations = LongValidations()
    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(validation_of(validations, "alice", f"alice-{number}"))
        tasks.create_task(validation_of(validations, "bob", "bob"))
    validations.close()
    assert seen == ["alice-0", "bob", *[f"alice-{number}" for number in range(1, 5)]]


async def test_who_hangs_up_in_the_middle_has_its_next_batch_wait_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    may_end = threading.Event()

    def validate(buffer: memoryview, *_: object) -> None:
        seen.append(bytes(buffer).decode())
        assert may_end.wait(30)

    monkeypatch.setattr(batch_checks, "validated_in_thread", validate)
    validations = LongValidations()
    calls = [asyncio.create_task(validation_of(validations, "alice", f"alice-{number}")) for number in range(5)]
    while not seen:
        await asyncio.sleep(0.01)
    for call in calls:
        call.cancel()
    await asyncio.sleep(0.01)
    assert [call.done() for call in calls] == [False, True, True, True, True], "the thread has the first one's request"
    others = [asyncio.create_task(validation_of(validations, name, name)) for name in ("alice", "bob")]
    await asyncio.sleep(0.01)
    may_end.set()
    await asyncio.gather(*others)
    validations.close()
    assert all(call.cancelled() for call in calls)
    assert seen == ["alice-0", "bob", "alice"], "of those that wait for their turn nothing is left"


async def test_an_owner_whose_requests_wait_leaves_room_for_those_of_others() -> None:
    validations, mib = LongValidations(), 1 << 20
    count = 0
    async with AsyncExitStack() as places:
        while not validations.is_full("alice", mib):
            await places.enter_async_context(validations.place("alice", mib))
            count += 1
        assert count * mib == (batch_checks.REQUESTS_BYTES + batch_checks.MAX_WAITING_BYTES) // 2
        assert validations.has_free("bob", mib)
    assert validations.has_free("alice", 100 * mib), "one large request of who has nothing else"
    validations.close()
