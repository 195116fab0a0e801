"""Logs that are compacted beside a plain list of what was produced, and what must hold between the two."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.hot.log_files import NOW_MS, append, contents, open_log
from tiered.formats import record_batch
from tiered.formats.record_batch import Compression, Record, encode_batch
from tiered.hot.compaction import KEY_BYTES, CompactionPass, PassReport
from tiered.hot.file_system import FileSystem
from tiered.hot.log import Log
from tiered.rules.segments import compaction
from tiered.rules.segments.compaction import LastBatch

DELETE_RETENTION_MS = 1_000


@dataclass
class Compacting:
    """`produced` is every record ever appended, by offset; `producers` is where each one's last batch ends."""

    directory: Path
    fs: FileSystem
    log: Log
    now_ms: int = NOW_MS
    produced: dict[int, Record] = field(default_factory=dict)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def begin(directory: Path, fs: FileSystem, **config: int) -> "Compacting":
        return Compacting(directory, fs, open_log(directory, fs=fs, **config))

    def produce(
        self,
        records: list[tuple[bytes | None, bytes | None]],
        *,
        compression: Compression = Compression.NONE,
        producer_id: int = -1,
        epoch: int = 0,
        jitter_ms: int = 0,
    ) -> int:
        """Where the batch of these keys and values begins."""
        base_offset = self.log.log_end_offset
        stored = [
            Record(
                offset=base_offset + number,
                timestamp_ms=self.now_ms + (number * 7919) % (jitter_ms + 1),
                key=key,
                value=value,
                headers=(("n", b"%d" % number),) if number % 2 else (),
            )
            for number, (key, value) in enumerate(records)
        ]
        sequence = 0 if producer_id not in self.producers else self.producers[producer_id][1] + 1
        data = encode_batch(
            stored,
            base_offset=base_offset,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
        )
        append(self.log, data, epoch=epoch, now_ms=self.now_ms)
        self.produced.update({record.offset: record for record in stored})
        if producer_id >= 0:
            self.producers[producer_id] = (self.log.log_end_offset - 1, sequence + len(records) - 1)
        return base_offset

    def roll(self) -> None:
        self.log.roll(self.now_ms)
        self.log.flush()

    def compact(self, *, max_keys: int = 10_000) -> PassReport:
        """A pass over all that is closed and on disk, as a broker makes it."""
        due = compaction.due(
            self.log.segments,
            self.log.compacted,
            log_start_offset=self.log.log_start_offset,
            high_watermark=self.log.flushed_offset,
            last_stable_offset=self.log.flushed_offset,
            min_dirty_ratio=0.0,
            min_lag_ms=0,
            max_lag_ms=2**63 - 1,
            now_ms=self.now_ms,
        )
        running = CompactionPass(
            self.log,
            self.fs,
            due,
            last_batches={producer_id: LastBatch(0, last) for producer_id, (last, _) in self.producers.items()},
            aborted=(),
            delete_retention_ms=DELETE_RETENTION_MS,
            now_ms=self.now_ms,
            max_memory_bytes=max_keys * KEY_BYTES,
        )
        for _ in running.steps():
            pass
        return running.report

    def stored(self) -> list[Record]:
        """Every record that a consumer from the start of the log reads; `contents` looks that no offset is left out."""
        found: list[Record] = []
        for offset, rest in contents(self.log, max_bytes=500):
            data = offset.to_bytes(8, "big") + (len(rest) + 4).to_bytes(4, "big") + bytes(4) + rest
            found += record_batch.records(data)
        return found

    def check(self, *, compacted_below: int | None = None) -> None:
        """Nothing newest is missing, nothing is older than allowed, nothing is another than what was produced.

        A pass that was killed may have compacted up to `compacted_below`, and nobody remembers it.
        """
        stored = self.stored()
        assert all(record == self.produced[record.offset] for record in stored)
        assert [record.offset for record in stored] == sorted({record.offset for record in stored})
        start_offset = self.log.local_log_start_offset
        newest = {record.key: record for record in self.produced.values() if record.key is not None}
        offsets = {record.offset for record in stored}
        for record in newest.values():
            if record.offset >= start_offset and record.value is not None:
                assert record.offset in offsets, record
        clean_end_offset = self.log.compacted.clean_end_offset
        clean = [record for record in stored if record.offset < clean_end_offset]
        assert len({record.key for record in clean}) == len(clean), "a key is there twice in what was compacted"
        newest_clean = {r.key: r.offset for r in self.produced.values() if r.offset < clean_end_offset}
        assert all(newest_clean[record.key] == record.offset for record in clean)
        unclean = [
            offset for offset in self.produced if offset >= max(compacted_below or clean_end_offset, start_offset)
        ]
        assert offsets.issuperset(unclean), "a record went that no pass has come to"

    def check_producers(self) -> None:
        """What the headers alone say of each producer: the last batch, so that its duplicate is recognised."""
        for path in self.directory.glob("*.snapshot"):
            path.unlink()
        found = {entry.producer_id: entry for entry in self.log.producers_at_end()}
        start_offset = self.log.segments[0].base_offset
        for producer_id, (last_offset, last_sequence) in self.producers.items():
            if last_offset >= start_offset:
                batch = found[producer_id].batches[-1]
                assert (batch.last_offset, batch.last_sequence) == (last_offset, last_sequence)

    def check_times(self, chance: random.Random) -> None:
        """Lookups by time find what is there."""
        stored = self.stored()
        for _ in range(3):
            wanted = self.now_ms - chance.randint(-10, 5_000)
            first = next((r for r in stored if r.timestamp_ms >= wanted), None)
            found = self.log.offset_for_timestamp(wanted, self.log.log_end_offset)
            assert found == (None if first is None else (first.offset, first.timestamp_ms))
        greatest = max(stored, key=lambda record: (record.timestamp_ms, -record.offset), default=None)
        assert self.log.max_timestamp_offset() == (
            None if greatest is None else (greatest.offset, greatest.timestamp_ms)
        )

    def reopen(self, **config: int) -> None:
        self.log.discard()
        self.log = open_log(self.directory, fs=self.fs, now_ms=self.now_ms, **config)
