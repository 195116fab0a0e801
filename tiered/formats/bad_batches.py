"""Batches whose records nobody can decode: named by their offsets, or stepped over where somebody says so.

Brokers before decision 0028 acknowledged them: bytes that are no gzip, or that hold other records than their header
counts. Owns finding them behind `arrow.decode_chunk`. Must never step over bytes that fail a checksum, nor over a batch
without telling the caller of it.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiered.errors import CorruptBatch
from tiered.formats.aborted_ranges import AbortedRange
from tiered.formats.arrow import decode_chunk
from tiered.formats.record_batch import exact_batches, verify_crc

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class BadBatch:
    """A whole batch with a right CRC, offsets inclusive, and why its records cannot be decoded."""

    first_offset: int
    last_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """What `decode_chunk` is to give: arguments as it has them. `on_bad_batch` is called for each batch that is stepped
    over; without it the first one raises."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    columns: Sequence[str]
    aborted: Sequence[AbortedRange] = ()
    pure: bool = False
    on_bad_batch: Callable[[BadBatch], None] | None = None

    def records(self, buffer: Buffer) -> Iterator["pa.RecordBatch"]:
        """The records of the whole batches in `buffer`. Raises CorruptBatch, which names the batch's offsets."""
        try:
            if self.on_bad_batch is not None:
                for _ in self._decoded(buffer):
                    pass  # Whoever is given a record before the first bad batch must not be given it again.
            yield from self._decoded(buffer)
        except CorruptBatch as error:
            if self.on_bad_batch is None:
                for bad in _bad_batches(replace(self, on_bad_batch=_ignored), buffer):
                    raise CorruptBatch(
                        f"offsets {bad.first_offset} to {bad.last_offset} cannot be decoded: {bad.reason}. "
                        "failOnBadBatch=false, or --skip-bad-batches, steps over such batches"
                    ) from error
                raise
            yield from self.good(buffer, self.on_bad_batch)

    def good(self, buffer: Buffer, on_bad_batch: Callable[[BadBatch], None]) -> Iterator["pa.RecordBatch"]:
        """Batch by batch: one that cannot be decoded takes no other with it."""
        view = memoryview(buffer)
        for position, header in exact_batches(buffer, 0, len(buffer)):
            verify_crc(buffer, position, header.size_bytes)
            try:
                yield from self._decoded(view[position : position + header.size_bytes])
            except CorruptBatch as error:
                on_bad_batch(
                    BadBatch(first_offset=header.base_offset, last_offset=header.last_offset, reason=str(error))
                )

    def _decoded(self, buffer: Buffer) -> Iterator["pa.RecordBatch"]:
        return decode_chunk(
            buffer,
            topic=self.topic,
            partition=self.partition,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            columns=self.columns,
            aborted=self.aborted,
            pure=self.pure,
        )


def warn_of(topic: str, partition: int, bad: BadBatch) -> None:
    """Says in the log what was stepped over."""
    log.warning(
        "partition %s-%d: stepped over offsets %d to %d, %d records that nobody can decode: %s",
        topic,
        partition,
        bad.first_offset,
        bad.last_offset,
        bad.last_offset - bad.first_offset + 1,
        bad.reason,
    )


def _bad_batches(decoding: Decoding, buffer: Buffer) -> list[BadBatch]:
    found: list[BadBatch] = []
    for _ in decoding.good(buffer, found.append):
        if found:
            break
    return found


def _ignored(_bad: BadBatch) -> None: ...
