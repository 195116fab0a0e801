"""A compacted log in memory: the newest record of each key, under offsets that only grow.

Owns the offsets of one partition of `__consumer_offsets`. Must never give an offset twice, nor to an older state after
a newer one: what it is updated with has to come in order.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tiered.formats.record import Record
from tiered.formats.record_batch import encode_batch

MAX_RECORDS_A_READ = 200
"""A third of a millisecond; a Fetch may ask for many partitions."""
MAX_TOMBSTONES = 1_000
"""The oldest go, as in a log whose `delete.retention.ms` is over."""
RECORD_BYTES = 400
"""What a record takes beside its key and value."""
_BATCH_BYTES = 61
_FRAME_BYTES = 20
_MAX_DELTA = 2**31 - 1


class LoggedValue(NamedTuple):
    """The value of a key, None once it is gone, and since when."""

    value: bytes | None
    timestamp_ms: int


class OffsetLog:
    """Begins empty, and at `start_offset`: above every offset that a reader was ever told."""

    def __init__(self, start_offset: int) -> None:
        self.end_offset = start_offset
        """The next record's."""
        self.size_bytes = 0
        """About what it takes in memory."""
        # In the order of their offsets: a key's newest record comes behind all others.
        self._newest: dict[bytes, Record] = {}
        self._tombstones: dict[bytes, None] = {}
        # The same with what was superseded since they were last made.
        self._offsets: list[int] = []
        self._keys: list[bytes] = []

    @property
    def start_offset(self) -> int:
        """The first record's, or the end."""
        return next((record.offset for record in self._newest.values()), self.end_offset)

    def differences(self, state: Mapping[bytes, LoggedValue]) -> list[tuple[bytes, LoggedValue]]:
        """The records to append for this state, oldest first. Changes nothing: any thread may ask while none writes."""
        found = []
        for key, written in state.items():
            known = self._newest.get(key)
            if known is None or known.value != written.value:
                found.append((key, written))
        found.sort(key=lambda each: each[1].timestamp_ms)
        gone = [key for key, record in self._newest.items() if record.value is not None and key not in state]
        return found + [(key, LoggedValue(None, self._newest[key].timestamp_ms)) for key in gone]

    def append(self, changes: Iterable[tuple[bytes, LoggedValue]]) -> None:
        """Each gets the next offset, and takes the place of what its key had."""
        for key, (value, timestamp_ms) in changes:
            self._drop(key)
            self._newest[key] = Record(offset=self.end_offset, timestamp_ms=timestamp_ms, key=key, value=value)
            self.size_bytes += cost(key, value)
            if value is None:
                self._tombstones[key] = None
            self._offsets.append(self.end_offset)
            self._keys.append(key)
            self.end_offset += 1
        while len(self._tombstones) > MAX_TOMBSTONES:
            self._drop(next(iter(self._tombstones)))
        # A read walks over what was superseded: not too much of it.
        if len(self._offsets) > len(self._newest) * 5 // 4 + MAX_TOMBSTONES:
            self._offsets = [record.offset for record in self._newest.values()]
            self._keys = list(self._newest)

    def _drop(self, key: bytes) -> None:
        record = self._newest.pop(key, None)
        if record is not None:
            self._tombstones.pop(key, None)
            self.size_bytes -= cost(key, record.value)

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """One batch of the records from `offset` on, as many as fit; empty at the end. Offsets that are gone are
        passed over, as in any compacted log."""
        records: list[Record] = []
        size_bytes = _BATCH_BYTES
        for index in range(bisect_left(self._offsets, offset), len(self._offsets)):
            record = self._newest.get(self._keys[index])
            if record is None or record.offset != self._offsets[index]:
                continue
            size_bytes += len(record.key or b"") + len(record.value or b"") + _FRAME_BYTES
            if size_bytes > max_bytes and (records or not at_least_one):
                break
            if records and (len(records) == MAX_RECORDS_A_READ or record.offset - records[0].offset > _MAX_DELTA):
                break
            records.append(record)
        if not records:
            return b""
        return encode_batch(records, base_offset=records[0].offset, leader_epoch=0)

    def offset_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, time) of the first record that is not older; None where all are."""
        for record in self._newest.values():
            if record.timestamp_ms >= timestamp_ms:
                return record.offset, record.timestamp_ms
        return None

    def newest(self) -> tuple[int, int] | None:
        """(offset, time) of the record with the greatest time; None where there is none."""
        records = self._newest.values()
        found = max(records, key=lambda record: record.timestamp_ms, default=None)
        return None if found is None else (found.offset, found.timestamp_ms)


def cost(key: bytes, value: bytes | None) -> int:
    """About what a record takes in memory."""
    return RECORD_BYTES + len(key) + len(value or b"")
