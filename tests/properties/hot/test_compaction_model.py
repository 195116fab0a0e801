"""Compaction beside a plain list: random keys, tombstones, producers, codecs, passes with little memory, restarts."""

import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.claimed_times import broken
from tests.unit.hot.compacting import DELETE_RETENTION_MS, Compacting
from tests.unit.hot.dying_file_system import DyingFileSystem, Killed
from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tests.unit.hot.log_files import NOW_MS, append
from tiered.formats.record_batch import Compression, Record, encode_batch, exact_batches
from tiered.hot.file_system import RealFileSystem

CODECS = list(Compression)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), segment_bytes=st.sampled_from([1, 300, 900, 10**6]), keys=st.integers(1, 12))
def test_of_each_key_the_newest_record_stays_and_nothing_older(seed: int, segment_bytes: int, keys: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="tiered-compaction-") as folder:
        fs = FaultyFileSystem(stash=Path(folder) / "stash")
        config = {"segment_bytes": segment_bytes, "index_interval_bytes": chance.choice([0, 200, 4096])}
        model = Compacting.begin(Path(folder) / "log", fs, **config)
        epoch, began = 0, dict[int, int]()
        for _ in range(chance.randint(5, 40)):
            step = chance.random()
            if step < 0.65:
                records: list[tuple[bytes | None, bytes | None]] = [
                    (
                        b"key-%d" % chance.randrange(keys),
                        None if chance.random() < 0.2 else b"v" * chance.randint(0, 60),
                    )
                    for _ in range(chance.randint(1, 6))
                ]
                began.setdefault(epoch, model.log.log_end_offset)
                model.produce(
                    records,
                    compression=chance.choice(CODECS),
                    producer_id=chance.choice([-1, -1, 7, 8]),
                    epoch=epoch,
                    jitter_ms=chance.choice([0, 50]),
                )
                model.now_ms += chance.choice([0, 10, 700])
            elif step < 0.75:
                model.roll()
            elif step < 0.9:
                model.compact(max_keys=chance.choice([1, 3, 10_000]))
                model.check()
            elif step < 0.95:
                epoch += 1
                model.log.begin_leader_epoch(epoch)
            elif chance.random() < 0.5:
                model.reopen(**config)
                model.check()
            else:
                model.log.flush()
                fs.lose_power(model.directory, chance)
                model.reopen(**config)
                model.check()
        model.roll()
        model.compact()
        model.check()
        model.check_times(chance)
        model.check_producers()
        # From the headers alone: where each epoch began is told by its first batch, whose offsets stay.
        (model.directory / "leader-epochs").unlink(missing_ok=True)
        model.reopen(**config)
        model.check()
        assert model.log.leader_epochs.entries == tuple(began.items())
        model.log.discard()


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_kill_at_any_step_of_a_pass_leaves_a_whole_log(tmp_path: Path, loses_power: bool) -> None:
    step = 0
    while True:
        chance = random.Random(step)
        directory = tmp_path / f"log-{step}"
        fs = DyingFileSystem(stash=tmp_path / f"stash-{step}")
        model = Compacting.begin(directory, fs, segment_bytes=10**6, index_interval_bytes=0)
        for number in range(12):
            model.produce([(b"key-%d" % (number % 5), b"v%d" % number)], producer_id=7)
            if number % 6 == 5:
                model.roll()
        model.log.flush()
        fs.steps_left = step
        try:
            model.compact()
            model.log.flush()
            is_whole = True
        except Killed:
            is_whole = False
        fs.steps_left = None
        if loses_power:
            fs.lose_power(directory, chance)
        model.reopen(segment_bytes=10**6, index_interval_bytes=0)
        model.check(compacted_below=12)
        model.check_times(chance)
        assert model.log.log_end_offset == 12
        assert not list(directory.glob("*.tmp"))
        model.compact()
        assert model.log.compacted.clean_end_offset == 12
        model.check()
        model.check_producers()
        model.log.discard()
        if is_whole:
            assert step > 20, "this says nothing if a pass has no steps"
            return
        step += 1


def test_a_batch_that_nobody_can_decode_stays_and_is_named(tmp_path: Path) -> None:
    made = Compacting.begin(tmp_path / "log", RealFileSystem())
    made.produce([(b"a", b"1"), (b"b", b"1")])
    bad = broken(encode_batch([Record(offset=2, timestamp_ms=NOW_MS, key=b"b", value=b"v" * 40)], base_offset=2))
    append(made.log, bad)
    made.produce([(b"a", b"2")])
    made.roll()
    report = made.compact()
    assert report.is_whole
    assert report.bad_batches == [(2, 2)]
    data = made.log.read(0, 1 << 20, end_offset=4)
    assert data is not None
    kept = data.read()
    sizes = {header.base_offset: header.record_count for _, header in exact_batches(kept, 0, len(kept))}
    assert sizes == {0: 1, 2: 1, 3: 1}, "what the bad batch may have made old stays too"
    assert bytes(bad[17:]) in kept


def test_a_batch_with_more_keys_than_a_pass_may_hold_is_compacted_in_several_passes(tmp_path: Path) -> None:
    made = Compacting.begin(tmp_path / "log", RealFileSystem())
    made.produce([(b"%d" % number, b"old") for number in range(5)])
    made.produce([(b"%d" % number, b"new") for number in range(5)], compression=Compression.ZSTD)
    made.roll()
    ends = []
    while made.log.compacted.clean_end_offset < 10:
        ends.append(made.compact(max_keys=2).end_offset)
        made.check()
    assert ends == [2, 4, 5, 7, 9, 10]
    assert [record.offset for record in made.stored()] == [5, 6, 7, 8, 9]
    made.log.discard()


def state(records: Iterable[Record]) -> dict[bytes, bytes]:
    """What a reader of all of them has: the newest value of each key that was not deleted."""
    values: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


def test_a_pass_that_ends_within_a_batch_leaves_the_deletions_behind_its_end_alone(tmp_path: Path) -> None:
    made = Compacting.begin(tmp_path / "log", RealFileSystem())
    made.produce([(b"K", b"v")])
    made.roll()
    made.compact()
    made.produce([*((b"%d" % number, b"x") for number in range(6)), (b"K", None)])
    made.roll()
    for ends_at in (3, 5, 7, 8):
        assert made.compact(max_keys=2).end_offset == ends_at
        assert b"K" not in state(made.stored())
        made.now_ms += DELETE_RETENTION_MS + 1
    assert made.compact(max_keys=100).is_whole
    assert b"K" not in state(made.stored())


@pytest.mark.parametrize("seed", range(20))
def test_what_a_reader_has_in_the_end_is_the_same_after_passes_that_end_within_batches(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    made = Compacting.begin(tmp_path / "log", RealFileSystem())
    for _ in range(6):
        made.produce(
            [
                (b"key-%d" % chance.randrange(40), None if chance.random() < 0.4 else b"v%d" % chance.randrange(99))
                for _ in range(chance.randint(1, 14))
            ]
        )
        made.roll()
        for _ in range(chance.randint(0, 3)):
            made.compact(max_keys=3)
            made.now_ms += chance.choice([0, DELETE_RETENTION_MS + 1])
    assert state(made.stored()) == state(made.produced[offset] for offset in sorted(made.produced))
