"""Fetch as followers ask it: the door's side of `broker.replication.answer`.

Owns the bytes of the answer. Only versions that name topics by id and carry the follower's broker epoch are served:
only brokers of this project ask. Must never note anything of a follower itself.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from tiered.broker.replication.answer import FollowerFetchEntry, FollowerFetchLook, FollowerWait
from tiered.errors import OffsetOutOfRange, UnsupportedVersion
from tiered.file_slice import FileSlice
from tiered.server.kafka.dispatch import RawRequest
from tiered.server.kafka.error_mapping import NONE, error_code
from tiered.server.kafka.fetch.answer import COPY_BYTES, NO_SESSION, disk_error
from tiered.server.kafka.transport.outbox import Parts
from tiered.server.kafka.transport.requests import DelayedAnswer
from tiered.wire import fetch
from tiered.wire.fetch import FetchPartitionResult, FetchRequest, FetchTopicResult

# Records that come faster than a follower asks go out at most this often: a round for each record costs all brokers
# more than the record does. A record that comes while the follower waits goes out at once.
GATHER_MS = 3.0
# With so much to send the follower gets it at once.
GATHER_BYTES = 64 << 10


def handle(request: RawRequest, asked: FetchRequest) -> Parts | Coroutine[Any, Any, Parts] | DelayedAnswer:
    """The answer: at once when there is something to say."""
    if request.context.api_version < fetch.FIRST_WITH_DIRECTORY_ID:
        raise UnsupportedVersion(f"followers need Fetch version {fetch.FIRST_WITH_DIRECTORY_ID} or later")
    answers = request.context.broker.replication.answers
    refusal = answers.refusal(asked)
    if refusal is not None:
        code = error_code(refusal)
        return fetch.encode_fetch_response(request.context.api_version, request.correlation_id, code, NO_SESSION, [])
    request.context.connection.is_broker = True
    found = answers.look(asked, is_first=True)
    if not answers.is_enough(found, asked):
        return _Parked(request, answers.wait(asked, found))
    left_ms = request.context.connection.gathers_until_ms - request.context.broker.clock.monotonic_ms()
    if left_ms <= 0 or found.is_urgent or found.total_bytes >= GATHER_BYTES:
        return _answer_found(request, found)
    return _Gathering(request, answers.wait(asked, found), left_ms)


class _Parked(DelayedAnswer):
    """A follower that is told of the next record, or that there was none."""

    __slots__ = ("_request", "_wait")

    def __init__(self, request: RawRequest, wait: FollowerWait) -> None:
        self._request = request
        self._wait = wait

    @property
    def patience_ms(self) -> float:
        return self._wait.patience_ms

    def begin(self, wake: Callable[[], None]) -> None:
        self._wait.begin(wake)

    def answer(self, *, is_last: bool) -> Parts | Coroutine[Any, Any, Parts] | None:
        found = self._wait.found(is_last=is_last)
        return None if found is None else _answer_found(self._request, found)

    def cancel(self) -> None:
        self._wait.cancel()


class _Gathering(_Parked):
    """A follower for which there is something, a moment after its last answer: more is on its way."""

    __slots__ = ("_left_ms",)

    def __init__(self, request: RawRequest, wait: FollowerWait, left_ms: float) -> None:
        super().__init__(request, wait)
        self._left_ms = left_ms

    @property
    def patience_ms(self) -> float:
        return min(self._left_ms, self._wait.patience_ms)

    def begin(self, wake: Callable[[], None]) -> None:
        """Nothing is worth another look before its patience is over."""


def _answer_found(request: RawRequest, found: FollowerFetchLook) -> Parts | Coroutine[Any, Any, Parts]:
    """At once when its records are in memory, as the newest always are."""
    return _answer(request, found) if _all_resident(request, found) else _answer_read(request, found)


def _all_resident(request: RawRequest, found: FollowerFetchLook) -> bool:
    reader = request.context.broker.reader
    return all(entry.records is None or reader.is_resident(entry.records) for entry in found.entries())


async def _answer_read(request: RawRequest, found: FollowerFetchLook) -> Parts:
    broker = request.context.broker
    for entry in found.entries():
        if entry.records is not None:
            try:
                await broker.reader.make_resident(entry.records)
            except OSError as error:
                _unreadable(request, entry, error)
    return _answer(request, found)


def _answer(request: RawRequest, found: FollowerFetchLook) -> Parts:
    results = [
        FetchTopicResult(topic.name, topic.topic_id, [_result(request, entry) for entry in entries])
        for topic, entries in found.topics
    ]
    broker = request.context.broker
    broker.counters.replication_bytes_out += found.total_bytes
    request.context.connection.gathers_until_ms = broker.clock.monotonic_ms() + GATHER_MS
    version = request.context.api_version
    return fetch.encode_fetch_response(version, request.correlation_id, NONE, NO_SESSION, results)


def _unreadable(request: RawRequest, entry: FollowerFetchEntry, error: Exception) -> None:
    entry.records = None
    entry.error = disk_error(request, entry.partition, error)


def _result(request: RawRequest, entry: FollowerFetchEntry) -> FetchPartitionResult:
    partition = entry.partition
    number = entry.asked.partition
    records: FileSlice | bytes | None = entry.records
    if isinstance(records, FileSlice) and records.length <= COPY_BYTES:
        try:
            records = records.read()
        except (OSError, EOFError) as error:
            _unreadable(request, entry, error)
    if entry.error is not None or partition is None:
        log_start_offset = -1
        if isinstance(entry.error, OffsetOutOfRange) and partition is not None:
            log_start_offset = partition.log_start_offset  # Where the follower begins anew.
        code = NONE if entry.error is None else error_code(entry.error)
        return FetchPartitionResult(number, code, log_start_offset=log_start_offset)
    return FetchPartitionResult(
        number,
        NONE,
        partition.high_watermark,
        entry.segment_base_offset,
        partition.log_start_offset,
        records,
        None,
        entry.unproven_offsets,
        diverging_epoch=entry.diverging,
    )
