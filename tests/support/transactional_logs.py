"""Random logs with transactions, what was decided of each record, and a consumer as Kafka's clients are.

What a reader of committed records must get follows from the decisions alone, whatever the log looks like meanwhile.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tiered.formats import record_batch
from tiered.formats.control_record import MarkerType, TransactionMarker, encode_marker, read_marker
from tiered.formats.record_batch import Compression, Record, encode_batch, exact_batches, records
from tiered.formats.segment_object import AbortedIndexEntry

IDEMPOTENT, PLAIN = 9, -1


@dataclass(slots=True)
class TransactionalLog:
    """`batches` follow each other from `start_offset` on. `aborted` holds the offsets of aborted records; `entries` are
    those of the transaction index, in the order of the markers; `open` has where each transaction began that is not
    decided."""

    start_offset: int = 0
    raises_epoch: bool = False
    """Each transaction has an epoch of its own, which its marker ends."""
    batches: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Where each batch ends."""
    records: dict[int, Record] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    entries: list[AbortedIndexEntry] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    _records_of: dict[int, list[int]] = field(default_factory=dict)
    _epochs: dict[int, int] = field(default_factory=dict)
    _sequences: dict[int, int] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.ends[-1] if self.ends else self.start_offset

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.end_offset)

    def committed(self, end_offset: int) -> dict[int, Record]:
        """What a reader of committed records gets below `end_offset`, which is stable."""
        assert end_offset <= self.last_stable_offset
        return {
            offset: record
            for offset, record in self.records.items()
            if offset < end_offset and offset not in self.aborted
        }

    def cut(self, chance: random.Random) -> list[tuple[int, int, list[bytes]]]:
        """Segments that are wholly stable, cut between any two batches: base offset, end offset, batches."""
        found: list[tuple[int, int, list[bytes]]] = []
        first, base_offset = 0, self.start_offset
        for number, end_offset in enumerate(self.ends, start=1):
            if end_offset > self.last_stable_offset:
                break
            if chance.random() < 0.25:
                found.append((base_offset, end_offset, self.batches[first:number]))
                first, base_offset = number, end_offset
        return found

    # Writing

    def write(self, chance: random.Random, producer_id: int, keys: int) -> None:
        """One batch, of the producer's transaction if it is one that has them."""
        base_offset = self.end_offset
        rows = [
            Record(
                offset=base_offset + number,
                timestamp_ms=1_000 + base_offset + number,
                key=b"key-%d" % chance.randrange(keys),
                value=None if chance.random() < 0.15 else b"value-%d" % (base_offset + number),
                headers=(),
            )
            for number in range(chance.randint(1, 4))
        ]
        has_transactions = producer_id not in (IDEMPOTENT, PLAIN)
        sequence = self._sequences.get(producer_id, 0)
        self._append(
            encode_batch(
                rows,
                base_offset=base_offset,
                compression=chance.choice([Compression.NONE, Compression.ZSTD]),
                producer_id=producer_id,
                producer_epoch=-1 if producer_id == PLAIN else self._epochs.get(producer_id, 0),
                base_sequence=-1 if producer_id == PLAIN else sequence,
                transactional=has_transactions,
            )
        )
        self._sequences[producer_id] = sequence + len(rows)
        self.records.update({each.offset: each for each in rows})
        if has_transactions:
            self.open.setdefault(producer_id, base_offset)
            self._records_of.setdefault(producer_id, []).extend(each.offset for each in rows)

    def end(self, producer_id: int, *, commits: bool) -> None:
        """The producer's transaction, if one is open, is decided; the marker stands in any case."""
        offset = self.end_offset
        if self.raises_epoch:
            self._epochs[producer_id] = self._epochs.get(producer_id, 0) + 1
            self._sequences[producer_id] = 0
        marker = TransactionMarker(type=MarkerType.COMMIT if commits else MarkerType.ABORT, coordinator_epoch=0)
        batch = encode_marker(
            marker, producer_id=producer_id, producer_epoch=self._epochs.get(producer_id, 0), timestamp_ms=1_000
        )
        record_batch.stamp_offsets(memoryview(batch), 0, offset, 0)
        self._append(bytes(batch))
        first_offset = self.open.pop(producer_id, None)
        theirs = self._records_of.pop(producer_id, [])
        if first_offset is None or commits:
            return
        self.aborted.update(theirs)
        self.entries.append(
            AbortedIndexEntry(
                producer_id=producer_id,
                first_offset=first_offset,
                last_offset=offset,
                last_stable_offset=min(self.open.values(), default=offset + 1),
            )
        )

    def _append(self, batch: bytes) -> None:
        self.ends.append(self.end_offset + record_batch.read_header(batch).last_offset_delta + 1)
        self.batches.append(batch)


def random_log(
    chance: random.Random, *, steps: int = 60, keys: int = 8, start_offset: int = 0, ends_nothing: bool = True
) -> TransactionalLog:
    """Several producers at once, with transactions of every length, decided and open ones; where it `ends_nothing`,
    also markers without a transaction."""
    log = TransactionalLog(start_offset=start_offset, raises_epoch=chance.random() < 0.5)
    for _ in range(steps):
        producer_id = chance.choice([1, 2, 3, 1, 2, 3, IDEMPOTENT, PLAIN])
        if producer_id in (IDEMPOTENT, PLAIN) or chance.random() < 0.6:
            log.write(chance, producer_id, keys)
        elif producer_id in log.open or (ends_nothing and chance.random() < 0.1):
            log.end(producer_id, commits=chance.random() < 0.5)
    for producer_id in list(log.open):
        if chance.random() < 0.7:  # Else most logs would be stable nowhere.
            log.end(producer_id, commits=chance.random() < 0.5)
    return log


def overlapping(log: TransactionalLog, base_offset: int, end_offset: int) -> list[AbortedIndexEntry]:
    """The aborted transactions of which an offset lies there, without any index."""
    return [each for each in log.entries if each.first_offset < end_offset and each.last_offset >= base_offset]


def consumed(data: bytes, aborted: Iterable[tuple[int, int]], offset: int) -> dict[int, Record]:
    """What a consumer of Kafka gives from one answer that names these (producer, first offset), from `offset` on.

    It skips a producer from the first offset of a named transaction until it meets an abort marker of that producer.
    """
    waiting = sorted((first_offset, producer_id) for producer_id, first_offset in aborted)
    skipped: set[int] = set()
    found: dict[int, Record] = {}
    for position, header in exact_batches(data, 0, len(data)):
        while waiting and waiting[0][0] <= header.last_offset:
            skipped.add(waiting.pop(0)[1])
        if header.is_control:
            marker = read_marker(data, position, header)
            if marker is not None and marker.type is MarkerType.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped) and header.record_count:
            found.update({each.offset: each for each in records(data, position) if each.offset >= offset})
    return found


def newest_of_each_key(found: Iterable[Record]) -> dict[int, Record]:
    """What compaction leaves of committed records, by offset, once no tombstone is needed any more."""
    newest = {each.key: each for each in sorted(found, key=lambda each: each.offset)}
    return {each.offset: each for each in newest.values() if each.value is not None}


def offset_after(data: bytes) -> int:
    """Where a consumer goes on after an answer."""
    *_, (_, last) = exact_batches(data, 0, len(data))
    return last.end_offset
