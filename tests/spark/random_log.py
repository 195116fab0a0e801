"""Logs of every shape out of a seed: what was written, and so what a reader must give."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.spark.bucket import Bucket
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.formats.segment_object import AbortedIndexEntry

FIRST_MS = 1_600_000_000_000
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRow:
    """A record, and whether its transaction was aborted."""

    record: Record
    is_aborted: bool = False


@dataclass(slots=True)
class WrittenLog:
    """One partition: its rows by offset, and the offset after the last one, control batches included."""

    rows: list[WrittenRow] = field(default_factory=list)
    end_offset: int = 0


def random_records(random_: random.Random, first: int, count: int, *, with_gaps: bool = False) -> list[Record]:
    """Records from offset `first` on: of any size, without order in time, with and without keys, values and headers."""
    found, offset = [], first
    largest = random_.choice((0, 20, 300, 5000))
    for _ in range(count):
        found.append(
            Record(
                offset=offset,
                timestamp_ms=FIRST_MS + random_.randrange(_DAY_MS),
                key=_bytes(random_, 40),
                value=_bytes(random_, largest),
                headers=tuple(
                    (random_.choice(("trace", "größe", "")), _bytes(random_, 20))
                    for _ in range(random_.choice((0, 0, 0, 1, 3)))
                ),
            )
        )
        offset += 1 + (random_.randrange(4) if with_gaps else 0)
    return found


def random_codec(random_: random.Random) -> Compression:
    return random_.choice(list(Compression))


def write_random_segments(bucket: Bucket, random_: random.Random, topic: str, partition: int) -> WrittenLog:
    """Some objects with plain batches, gaps, committed and aborted transactions, as a broker would upload them."""
    log = WrittenLog()
    for _ in range(random_.randrange(1, 5)):
        batches: list[bytes] = []
        aborted: list[AbortedIndexEntry] = []
        for _ in range(random_.randrange(1, 6)):
            if random_.random() < 0.4:
                _transaction(random_, log, batches, aborted)
            else:
                _plain(random_, log, batches)
        bucket.add_segment(topic, partition, batches, aborted=aborted)
    return log


def _plain(random_: random.Random, log: WrittenLog, batches: list[bytes]) -> None:
    first = log.end_offset
    rows = random_records(random_, first, random_.randrange(1, 30), with_gaps=random_.random() < 0.5)
    # Compaction may have taken the last record of a batch, and its batch still says where it ended.
    last = rows[-1].offset + random_.choice((0, 0, 3))
    batches.append(encode_batch(rows, base_offset=first, last_offset=last, compression=random_codec(random_)))
    log.rows += [WrittenRow(record=row) for row in rows]
    log.end_offset = last + 1


def _transaction(
    random_: random.Random, log: WrittenLog, batches: list[bytes], aborted: list[AbortedIndexEntry]
) -> None:
    producer, is_aborted, first = random_.randrange(1, 4), random_.random() < 0.5, log.end_offset
    for number in range(random_.randrange(1, 4)):
        rows = random_records(random_, log.end_offset, random_.randrange(1, 10))
        batches.append(
            encode_batch(
                rows,
                base_offset=log.end_offset,
                compression=random_codec(random_),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=number,
                transactional=True,
            )
        )
        log.rows += [WrittenRow(record=row, is_aborted=is_aborted) for row in rows]
        log.end_offset = rows[-1].offset + 1
        if random_.random() < 0.5:
            _plain(random_, log, batches)  # Another producer's, in between: part of no transaction.
    marker = Record(
        offset=log.end_offset,
        timestamp_ms=FIRST_MS,
        key=b"\0\0\0\0" if is_aborted else b"\0\0\0\1",
        value=b"\0\0\0\0\0\0",
    )
    batches.append(
        encode_batch(
            [marker],
            base_offset=log.end_offset,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )
    if is_aborted:
        aborted.append(
            AbortedIndexEntry(
                producer_id=producer,
                first_offset=first,
                last_offset=log.end_offset,
                last_stable_offset=log.end_offset + 1,
            )
        )
    log.end_offset += 1


def expected_rows(rows: Sequence[WrittenRow], start: int, end: int, *, read_committed: bool) -> list[Record]:
    """What a read of `[start, end)` must give."""
    return [row.record for row in rows if start <= row.record.offset < end and not (read_committed and row.is_aborted)]


def _bytes(random_: random.Random, most: int) -> bytes | None:
    return None if random_.random() < 0.1 else random_.randbytes(random_.randrange(most + 1))
