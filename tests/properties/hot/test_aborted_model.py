"""The open and the aborted transactions of a log beside a plain list of its batches, whatever is done to the log."""

import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tests.unit.hot.log_files import NOW_MS, batch, open_log
from tiered.formats import record_batch
from tiered.formats.control_record import MarkerType, TransactionMarker, encode_marker
from tiered.formats.producer_snapshot import ProducerEntry
from tiered.hot.log import Log
from tiered.hot.segment import TRANSACTION_INDEX_SUFFIX
from tiered.rules.partition import producer_state
from tiered.rules.partition.open_transactions import OpenTransactions


@dataclass(frozen=True)
class Placed:
    """One batch of the log; `kind` is the type of a marker, None for records."""

    base: int
    end: int
    producer_id: int
    kind: MarkerType | None


@dataclass(frozen=True)
class Aborted:
    """One aborted transaction: where its batches begin, and its marker."""

    producer_id: int
    bases: tuple[int, ...]
    marker: int
    stable: int


def looked_up(batches: list[Placed]) -> tuple[dict[int, tuple[int, ...]], list[Aborted]]:
    """The batches of each open transaction, and all aborted ones, from the batches alone."""
    opened: dict[int, tuple[int, ...]] = {}
    aborted = []
    for each in batches:
        if each.kind is None:
            opened[each.producer_id] = (*opened.get(each.producer_id, ()), each.base)
            continue
        bases = opened.pop(each.producer_id, ())
        if bases and each.kind is MarkerType.ABORT:
            stable = min((others[0] for others in opened.values()), default=each.base + 1)
            aborted.append(Aborted(each.producer_id, bases, each.base, stable))
    return opened, aborted


class AbortedModel(RuleBasedStateMachine):
    """Its owner does what a partition does: it tells the log of aborted transactions, and of its producers."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tiered-aborted-model-"))
        self.directory = self.folder / "log"
        self.fs = FaultyFileSystem(stash=self.folder / "stash")
        self.batches: list[Placed] = []
        self.local_start = 0

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.discard()
        shutil.rmtree(self.folder)

    @initialize(segment_bytes=st.sampled_from([1, 400, 10**6]))
    def begin(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.open()

    def open(self) -> None:
        self.log: Log = open_log(self.directory, fs=self.fs, segment_bytes=self.segment_bytes, index_interval_bytes=0)
        self.own(self.log.recovery.producers)

    def own(self, producers: tuple[ProducerEntry, ...]) -> None:
        self.entries = {entry.producer_id: entry for entry in producers}
        self.transactions = OpenTransactions(producers)
        self.log.producer_source = self.entries.values

    def put(self, data: bytearray, producer_id: int, marker: TransactionMarker | None) -> None:
        buffer, base = memoryview(data), self.log.log_end_offset
        record_batch.stamp_offsets(buffer, 0, base, 0)
        header = record_batch.read_header(data, 0)
        aborted = self.transactions.aborted_in([(header, base, marker)])
        self.log.append(buffer, 0, len(data), ((0, header),), base_offset=base, now_ms=NOW_MS, aborted=aborted)
        self.transactions.note(header, base, marker)
        entry = self.entries.get(producer_id)
        self.entries[producer_id] = producer_state.apply(entry, header, base, marker)
        kind = None if marker is None else marker.type
        self.batches.append(Placed(base, header.end_offset, producer_id, kind))

    @rule(producer_id=st.integers(0, 2), count=st.integers(1, 3))
    def write(self, producer_id: int, count: int) -> None:
        data = batch(count, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        self.put(data, producer_id, None)

    @rule(producer_id=st.integers(0, 2), kind=st.sampled_from([*MarkerType, MarkerType.ABORT]))
    def end_transaction(self, producer_id: int, kind: MarkerType) -> None:
        marker = TransactionMarker(type=kind, coordinator_epoch=len(self.batches))
        data = encode_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS)
        self.put(data, producer_id, marker)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.local_start, self.log.log_end_offset - back)
        end = self.log.truncate_to(offset)
        self.batches = [each for each in self.batches if each.end <= end]
        self.own(self.log.producers_at_end())

    @rule(keep=st.integers(0, 12))
    def delete_local(self, keep: int) -> None:
        opened, _ = looked_up(self.batches)  # What is open is in no object, and so stays.
        limit = min([self.log.log_end_offset - keep, *(bases[0] for bases in opened.values())])
        self.log.delete_local_before(max(0, limit))
        self.local_start = self.log.segments[0].base_offset

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.open()
        assert self.log.recovery.clean

    @rule()
    def restart_after_kill(self) -> None:
        self.log.discard()
        self.open()

    @rule(seed=st.integers(0, 2**32))
    def restart_after_power_loss(self, seed: int) -> None:
        self.log.discard()
        self.fs.lose_power(self.directory, random.Random(seed))
        self.open()
        end = self.log.log_end_offset
        self.batches = [each for each in self.batches if each.base < end]
        self.local_start = max(self.local_start, self.log.segments[0].base_offset)

    @rule(seed=st.integers(0, 2**32), harm=st.sampled_from(["remove", "garble", "shorten"]))
    def restart_with_a_damaged_index(self, seed: int, harm: str) -> None:
        self.log.close()
        found = sorted(self.directory.glob(f"*{TRANSACTION_INDEX_SUFFIX}"))
        if found:
            path = random.Random(seed).choice(found)
            data = path.read_bytes()
            if harm == "remove":
                path.unlink()
            else:
                path.write_bytes(bytes(len(data)) if harm == "garble" else data[:-1])
        self.open()

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        opened, aborted = looked_up(self.batches)
        entries = {key: entry.current_transaction_first_offset for key, entry in self.entries.items()}
        assert {key: first for key, first in entries.items() if first is not None} == {
            key: bases[0] for key, bases in opened.items()
        }
        end = self.log.log_end_offset
        rows = {row.last_offset: row for row in self.log.aborted_between(self.local_start, end)}
        here = [each for each in aborted if each.bases[-1] >= self.local_start]
        assert rows.keys() >= {each.marker for each in here}
        assert rows.keys() <= {each.marker for each in aborted}, "a row of what was cut away"
        for each in here:
            row = rows[each.marker]
            local = next(base for base in each.bases if base >= self.local_start)
            assert row.producer_id == each.producer_id
            # Without a snapshot nobody knows what came before the local log.
            assert row.first_offset in (each.bases[0], local)
            if not self.local_start:
                assert (row.first_offset, row.last_stable_offset) == (each.bases[0], each.stable)

    @invariant()
    def a_part_of_the_log_is_told_what_is_aborted_in_it(self) -> None:
        if not hasattr(self, "log") or self.local_start:
            return
        _, aborted = looked_up(self.batches)
        end = self.log.log_end_offset
        for start in range(0, end, 3):
            found = [row.last_offset for row in self.log.aborted_between(start, start + 3)]
            assert found == [each.marker for each in aborted if each.bases[0] < start + 3 and each.marker >= start]
            batches = self.log.read_committed(start, 150, end_offset=end)
            if batches is not None:
                data = batches.records.read()
                stop = max(header.end_offset for _, header in record_batch.exact_batches(data, 0, len(data)))
                named = {row.last_offset for row in batches.aborted}
                assert named >= {each.marker for each in aborted if each.bases[0] < stop and each.marker >= start}


AbortedModel.TestCase.settings = settings(
    max_examples=settings().max_examples * 2,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestAbortedModel = AbortedModel.TestCase
