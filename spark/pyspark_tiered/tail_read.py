"""Reads a tail split: raw batches from the brokers, decoded to Arrow, the next fetch under way meanwhile.

Owns what happens when the log moves under a task: records that retention took between planning and reading
are an error or a warning, never silence. Must never read beyond the split's end, even where a fetch does.
"""

import logging
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark_tiered.brokers import Brokers
from pyspark_tiered.options import EARLIEST_OFFSET, Isolation, Options
from pyspark_tiered.plan import TailSplit
from tiered.errors import OffsetOutOfRange, RequestTimedOut
from tiered.formats.aborted_ranges import AbortedRange
from tiered.formats.bad_batches import Decoding, warn_of
from tiered.formats.record_batch import BatchHeader, records, whole_batches
from tiered.peer import FetchedRecords

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_EMPTY_FETCH_MS = 500  # A broker that has nothing waits so long. The offsets existed when the job was planned.
_CONTROL_KEY = struct.Struct(">hh")  # version, type: 0 aborts, 1 commits
_ABORT = 0


def read_tail_split(
    options: Options, split: TailSplit, *, columns: Sequence[str], pure: bool = False
) -> Iterator["pa.RecordBatch"]:
    """The split's records in order of offset. Raises `OffsetOutOfRange` when some are gone, and what brokers raise."""
    assert options.bootstrap_servers is not None, "a tail split comes from brokers"
    read_committed = options.isolation is Isolation.READ_COMMITTED
    with Brokers(options.bootstrap_servers, read_committed=read_committed, client=options.client) as brokers:
        for data, aborted in _fetched(brokers, split, options):
            decoding = Decoding(
                topic=split.topic,
                partition=split.partition,
                start_offset=split.start_offset,
                end_offset=split.end_offset,
                columns=columns,
                aborted=aborted,
                pure=pure,
                on_bad_batch=None if options.fail_on_bad_batch else partial(warn_of, split.topic, split.partition),
            )
            yield from decoding.records(data)


def _fetched(brokers: Brokers, split: TailSplit, options: Options) -> Iterator[tuple[memoryview, list[AbortedRange]]]:
    """Runs of whole batches until the split's end. While one is decoded, the next is on its way."""
    offset, empty_ms = split.start_offset, 0
    coming = brokers.fetch(split.topic, split.partition, offset)
    while True:
        try:
            answer = coming.result()
        except OffsetOutOfRange as error:
            offset = _after_loss(brokers, split, offset, fail=options.fail_on_data_loss, cause=error)
            if offset >= split.end_offset:
                return
            coming = brokers.fetch(split.topic, split.partition, offset)
            continue
        headers = list(whole_batches(answer.records, 0, len(answer.records)))
        if headers and headers[-1][1].end_offset <= offset:
            headers = []  # All of it is from before: as good as nothing, or we would ask for it for ever.
        empty_ms = 0 if headers else empty_ms + _EMPTY_FETCH_MS
        if empty_ms >= options.poll_timeout_ms:
            raise RequestTimedOut(
                f"partition {split.topic}-{split.partition}: the brokers give no record at offset {offset}, though the "
                f"log reached {split.end_offset}; check the partition's leader, or raise kafkaConsumer.pollTimeoutMs"
            )
        if headers:
            offset = max(offset, headers[-1][1].end_offset)
        finished = offset >= split.end_offset
        if not finished:
            coming = brokers.fetch(split.topic, split.partition, offset)
        if headers:
            position, last = headers[-1]
            yield answer.records[: position + last.size_bytes], _aborted_ranges(answer, headers)
        if finished:
            return


def _after_loss(brokers: Brokers, split: TailSplit, offset: int, *, fail: bool, cause: OffsetOutOfRange) -> int:
    """Where reading goes on when `offset` is not in the log any more. Raises `OffsetOutOfRange` if it must not."""
    key = (split.topic, split.partition)
    earliest = brokers.list_offsets({key: EARLIEST_OFFSET})[key]
    name = f"partition {split.topic}-{split.partition}"
    if earliest <= offset:
        raise OffsetOutOfRange(
            f"{name}: offset {offset} was there when this job was planned, and the log ends before it now: it was "
            "truncated, or the topic was recreated. Start the job again, a stream with another checkpoint"
        ) from cause
    last = min(earliest, split.end_offset) - 1
    sentence = f"{name}: offsets {offset} to {last} are gone, the log begins at {earliest}"
    if fail:
        raise OffsetOutOfRange(f"{sentence}. Set failOnDataLoss=false to read the rest") from cause
    log.warning("%s; reading the rest, because failOnDataLoss is false", sentence)
    return earliest


def _aborted_ranges(answer: FetchedRecords, headers: Sequence[tuple[int, BatchHeader]]) -> list[AbortedRange]:
    """The aborted transactions, each from its first offset to its marker, or to the end of what was fetched."""
    if not answer.aborted_transactions:
        return []
    markers: dict[int, list[int]] = {}
    """Offsets of abort markers, by producer: looked up, for there may be very many of both."""
    for position, header in headers:
        if header.is_control and _is_abort(answer.records, position):
            markers.setdefault(header.producer_id, []).append(header.base_offset)
    found = []
    for aborted in answer.aborted_transactions:
        theirs = markers.get(aborted.producer_id, [])
        next_one = bisect_left(theirs, aborted.first_offset)
        last_offset = theirs[next_one] if next_one < len(theirs) else headers[-1][1].last_offset
        found.append(
            AbortedRange(producer_id=aborted.producer_id, first_offset=aborted.first_offset, last_offset=last_offset)
        )
    return found


def _is_abort(data: memoryview, position: int) -> bool:
    marker = next(records(data, position), None)
    if marker is None or marker.key is None or len(marker.key) < _CONTROL_KEY.size:
        return False
    kind: int = _CONTROL_KEY.unpack_from(marker.key)[1]
    return kind == _ABORT
