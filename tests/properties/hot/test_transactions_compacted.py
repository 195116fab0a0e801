"""Passes over a local log with transactions: aborted records go, committed ones are compacted, nothing looks open.

Passes with little memory end within transactions, and the last segments are not stable yet.
"""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.transactional_logs import (
    TransactionalLog,
    consumed,
    newest_of_each_key,
    offset_after,
    overlapping,
    random_log,
)
from tests.unit.hot.dying_file_system import DyingFileSystem, Killed
from tests.unit.hot.log_files import NOW_MS, open_log
from tiered.file_slice import ReadBatches
from tiered.formats.record_batch import BatchHeader, Record, exact_batches, read_header
from tiered.hot.compaction import KEY_BYTES, CompactionPass
from tiered.hot.file_system import FileSystem, RealFileSystem
from tiered.hot.log import Log
from tiered.hot.producer_files import producers_at
from tiered.rules.segments import compaction
from tiered.rules.segments.compaction import LastBatch

RETENTION_MS = 100


def compact(
    log: Log,
    written: TransactionalLog,
    *,
    now_ms: int,
    max_keys: int = 1_000,
    keeps_tombstones: bool = False,
    fs: FileSystem | None = None,
) -> None:
    due = compaction.due(
        log.segments,
        log.compacted,
        log_start_offset=0,
        high_watermark=log.flushed_offset,
        last_stable_offset=written.last_stable_offset,
        min_dirty_ratio=0.0,
        min_lag_ms=0,
        max_lag_ms=2**63 - 1,
        keeps_tombstones=keeps_tombstones,
        now_ms=now_ms,
    )
    running = CompactionPass(
        log,
        fs or RealFileSystem(),
        due,
        last_batches={9: LastBatch(0, None)},
        aborted=overlapping(written, 0, due.end_offset),
        delete_retention_ms=RETENTION_MS,
        keeps_tombstones=keeps_tombstones,
        now_ms=now_ms,
        max_memory_bytes=max_keys * KEY_BYTES,
    )
    for _ in running.steps():
        pass
    assert running.report.is_whole


def append(log: Log, batch: bytes, written: TransactionalLog) -> None:
    """As the partition does, which knows what a marker aborts before anybody can read it."""
    header = read_header(batch)
    log.append(
        memoryview(bytearray(batch)),
        0,
        len(batch),
        ((0, header),),
        base_offset=header.base_offset,
        now_ms=NOW_MS,
        aborted=[each for each in written.entries if header.is_control and each.last_offset == header.base_offset],
    )


def parts(log: Log, end_offset: int) -> Iterator[tuple[int, ReadBatches, bytes]]:
    """What is read from one offset after another, whole segments at a time."""
    offset = 0
    while offset < end_offset:
        batches = log.read_committed(offset, 1 << 20, end_offset=end_offset)
        assert batches is not None
        data = batches.records.read()
        assert read_header(data).base_offset == offset
        yield offset, batches, data
        offset = offset_after(data)


def headers(log: Log, end_offset: int) -> list[BatchHeader]:
    return [header for _, _, data in parts(log, end_offset) for _, header in exact_batches(data, 0, len(data))]


def records_of(log: Log, end_offset: int) -> dict[int, Record]:
    """What a consumer gets of committed records, told of the aborted transactions that the log knows."""
    found: dict[int, Record] = {}
    for offset, batches, data in parts(log, end_offset):
        found |= consumed(data, [(each.producer_id, each.first_offset) for each in batches.aborted], offset)
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_after_passes_consumers_get_the_newest_of_what_was_committed(seed: int) -> None:
    chance = random.Random(seed)
    written = random_log(chance)
    with tempfile.TemporaryDirectory(prefix="tiered-compaction-") as folder:
        log = open_log(Path(folder) / "log", segment_bytes=10**6, index_interval_bytes=chance.choice([0, 4096]))
        for batch in written.batches:
            append(log, batch, written)
            if chance.random() < 0.25:
                log.roll(NOW_MS)
        log.roll(NOW_MS)
        log.flush()
        stable = max(
            (each.end_offset for each in log.segments if each.end_offset <= written.last_stable_offset), default=0
        )
        committed = written.committed(stable)
        now_ms = NOW_MS
        for _ in range(chance.randint(0, 3)):
            compact(log, written, now_ms=now_ms, max_keys=chance.choice([1, 3, 1_000]))
            now_ms += chance.choice([0, 60, RETENTION_MS])
            log.flush()
            found = records_of(log, stable)
            assert found.items() <= committed.items()
            newest = {each.key: each for _, each in sorted(committed.items())}
            assert {each.offset for each in newest.values() if each.value is not None} <= found.keys()
        while log.compacted.clean_end_offset < stable:
            compact(log, written, now_ms=now_ms)
        for _ in range(2):
            compact(log, written, now_ms=now_ms)
            now_ms += RETENTION_MS
            compact(log, written, now_ms=now_ms)
        log.flush()
        assert records_of(log, stable) == newest_of_each_key(committed.values())
        # Whoever rebuilds the producers from the batches finds the same transactions open as there are.
        fs = RealFileSystem()
        segments = log.segments_on_disk(written.end_offset)
        rebuilt = producers_at(fs, str(Path(folder) / "log"), segments, [], written.end_offset, [])
        assert {
            producer_id: entry.current_transaction_first_offset
            for producer_id, entry in rebuilt.items()
            if entry.current_transaction_first_offset is not None
        } == written.open
        # A marker is needed by what is left of its transaction, and by nothing else.
        open_: set[int] = set()
        for header in headers(log, stable):
            if header.is_control:
                assert header.producer_id in open_, f"the marker at {header.base_offset} is needed by nothing"
                open_.discard(header.producer_id)
            elif header.is_transactional:
                open_.add(header.producer_id)
        log.discard()


def committed_and_aborted(directory: Path) -> tuple[Log, TransactionalLog]:
    """A closed segment of two transactions."""
    chance, written = random.Random(1), TransactionalLog()
    for commits in (True, False):
        written.write(chance, 1, 1)
        written.end(1, commits=commits)
    log = open_log(directory, segment_bytes=10**6)
    for batch in written.batches:
        append(log, batch, written)
    log.roll(NOW_MS)
    log.flush()
    return log, written


@pytest.mark.parametrize("keeps_tombstones", [False, True])
def test_where_the_store_holds_records_too_markers_stay_in_the_log(tmp_path: Path, keeps_tombstones: bool) -> None:
    log, written = committed_and_aborted(tmp_path / "log")
    compact(log, written, now_ms=NOW_MS, keeps_tombstones=keeps_tombstones)
    due_ms = log.compacted.tombstones_due_ms
    assert due_ms == (None if keeps_tombstones else NOW_MS + RETENTION_MS), "when a pass is due for a marker's sake"
    for now_ms in (NOW_MS + RETENTION_MS, NOW_MS + 2 * RETENTION_MS):
        compact(log, written, now_ms=now_ms, keeps_tombstones=keeps_tombstones)
        log.flush()
    kept = sum(each.is_control for each in headers(log, written.end_offset))
    assert kept == (2 if keeps_tombstones else 1), "that of the transaction of which a record is left"
    assert written.committed(written.end_offset).keys() >= records_of(log, written.end_offset).keys()
    log.discard()


def test_a_marker_that_stayed_after_its_time_is_due_when_it_needs_to_stay_no_longer(tmp_path: Path) -> None:
    log, written = committed_and_aborted(tmp_path / "log")
    compact(log, written, now_ms=NOW_MS)
    for keeps_tombstones, markers, due_ms in ((True, 2, NOW_MS + RETENTION_MS), (False, 1, None)):
        compact(log, written, now_ms=NOW_MS + RETENTION_MS, keeps_tombstones=keeps_tombstones)
        log.flush()
        assert sum(each.is_control for each in headers(log, written.end_offset)) == markers
        assert log.compacted.tombstones_due_ms == due_ms
    log.discard()


@pytest.mark.parametrize("loses_power", [False, True])
def test_after_a_kill_at_any_step_of_a_pass_what_was_aborted_is_known(tmp_path: Path, loses_power: bool) -> None:
    step = 0
    while True:
        written = random_log(random.Random(3), steps=24, keys=4)
        for producer_id in list(written.open):
            written.end(producer_id, commits=False)
        directory = tmp_path / f"log-{step}"
        fs = DyingFileSystem(stash=tmp_path / f"stash-{step}")
        log = open_log(directory, fs=fs, segment_bytes=10**6)
        for number, batch in enumerate(written.batches):
            append(log, batch, written)
            if number % 9 == 8:
                log.roll(NOW_MS)
        log.roll(NOW_MS)
        log.flush()
        # What is aborted goes with the first pass, and its markers with the third.
        for pass_ in range(2):
            compact(log, written, now_ms=NOW_MS + pass_, fs=fs)
            log.flush()
        fs.steps_left = step
        try:
            compact(log, written, now_ms=NOW_MS + 2 * RETENTION_MS, fs=fs)
            log.flush()
            is_whole = True
        except Killed:
            is_whole = False
        fs.steps_left = None
        if loses_power:
            fs.lose_power(directory, random.Random(step))
        log.discard()
        log = open_log(directory, fs=fs, segment_bytes=10**6)
        found, committed = records_of(log, written.end_offset), written.committed(written.end_offset)
        assert found.items() <= committed.items()
        assert newest_of_each_key(committed.values()).items() <= found.items()
        log.discard()
        if is_whole:
            assert step > 20, "this says nothing if a pass has no steps"
            return
        step += 1
