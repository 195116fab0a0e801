"""The log beside a plain list: whatever is done to it, restarts and power losses included, they agree."""

import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.hot.faulty_file_system import FaultyFileSystem
from tests.unit.hot.log_files import NOW_MS, append, batch, contents, open_log
from tiered.errors import LogDirFailed
from tiered.formats import record_batch
from tiered.hot.log import Log

BatchModel = tuple[int, int, bytes, tuple[int, ...]]
"""Base offset, end offset, bytes from the magic on, timestamps."""


class LogModel(RuleBasedStateMachine):
    """`batches` is what the log must hold, `flushed` how much of it no power loss may take."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tiered-log-model-"))
        self.directory = self.folder / "log"
        self.fs = FaultyFileSystem(stash=self.folder / "stash")
        self.batches: list[BatchModel] = []
        self.epochs: list[tuple[int, int, int]] = []
        """Base offset, end offset and leader epoch of each batch, also of those that were removed since."""
        self.local_start = 0
        self.log_start = 0
        self.epoch = 0
        self.sequence = 0
        self.marker = 0

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.discard()
        shutil.rmtree(self.folder)

    @initialize(
        segment_bytes=st.sampled_from([1, 400, 1_500, 10**6]), index_interval_bytes=st.sampled_from([0, 200, 4_096])
    )
    def begin(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.config = {"segment_bytes": segment_bytes, "index_interval_bytes": index_interval_bytes}
        self.log = self.opened()

    def opened(self) -> Log:
        log = open_log(self.directory, fs=self.fs, **self.config)
        self.epoch += 1
        log.begin_leader_epoch(self.epoch)
        return log

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.local_start

    @rule(times=st.lists(st.integers(0, 50), min_size=1, max_size=4), value_bytes=st.integers(0, 300))
    def append(self, times: list[int], value_bytes: int) -> None:
        self.marker += 1
        data = batch(
            timestamps_ms=times,
            value_bytes=value_bytes,
            marker=self.marker,
            producer_id=3,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        self.log.begin_leader_epoch(self.epoch)  # A truncation may have forgotten it.
        base_offset = append(self.log, data, epoch=self.epoch)
        assert base_offset == self.end
        self.sequence += len(times)
        self.batches.append((base_offset, base_offset + len(times), bytes(data[16:]), tuple(times)))
        self.epochs.append((base_offset, base_offset + len(times), self.epoch))

    @rule()
    def append_to_a_full_disk(self) -> None:
        self.fs.space_left = 30
        try:
            append(self.log, batch(3), epoch=self.epoch)
        except LogDirFailed:
            pass
        else:
            raise AssertionError("a full disk took a batch")
        finally:
            self.fs.heal()

    @rule()
    def lead_anew(self) -> None:
        self.epoch += 1
        self.log.begin_leader_epoch(self.epoch)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.flushed_offset == self.end

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.end))
        cut = next((base for base, end, _, _ in self.batches if base <= offset < end), offset)
        if cut < self.log_start:
            return  # A follower never cuts below what is deleted.
        if self.log.segments[0].base_offset <= offset < self.local_start:
            return  # In what a power loss brought back, which is not in the model.
        if offset < self.local_start:
            self.local_start, self.batches, self.epochs = offset, [], []
        else:
            self.batches = [each for each in self.batches if each[1] <= cut]
            self.epochs = [each for each in self.epochs if each[1] <= cut]
        assert self.log.truncate_to(offset) == (cut if self.batches or cut >= self.local_start else offset)

    @rule(data=st.data())
    def delete_local(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.local_start, self.end))
        kept = next(
            segment.base_offset for segment in self.log.segments if not segment.closed or segment.end_offset > offset
        )
        self.log.delete_local_before(offset)
        self.batches = [each for each in self.batches if each[0] >= kept]
        self.local_start = kept

    @rule(data=st.data())
    def move_log_start(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, self.end))
        self.log.set_log_start_offset(offset)
        self.log_start = offset

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.log = self.opened()
        assert self.log.recovery.clean
        self.local_start = max(self.local_start, self.log.segments[0].base_offset)

    @rule()
    def restart_after_kill(self) -> None:
        flushed = self.log.flushed_offset
        self.log.discard()
        self.log = self.opened()
        self.local_start = max(self.local_start, self.log.segments[0].base_offset)
        assert self.log.log_end_offset == self.end
        assert self.log.flushed_offset <= self.end
        assert flushed <= self.end

    @rule(seed=st.integers(0, 2**32))
    def restart_after_power_loss(self, seed: int) -> None:
        flushed = self.log.flushed_offset
        self.log.discard()
        self.fs.lose_power(self.directory, random.Random(seed))
        self.log = self.opened()
        end = self.log.log_end_offset
        assert flushed <= end <= self.end, "flushed records are gone, or others came"
        # A removal that was not yet on disk may have been taken back: then there is more, and that may be read.
        first = self.log.segments[0].base_offset
        self.batches = [each for each in self.batches if first <= each[0] < end]
        self.epochs = [each for each in self.epochs if each[0] < end]
        self.local_start = max(first, self.local_start) if self.batches else end
        self.log_start = self.log.log_start_offset

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.log_start
        found = [each for each in contents(self.log, max_bytes=700) if each[0] >= self.local_start]
        assert found == [(base, data) for base, _, data, _ in self.batches if base >= self.local_start]
        assert self.log.flushed_offset <= self.end

    @invariant()
    def epochs_agree(self) -> None:
        """Of what was removed locally too: followers ask where an epoch ended, long after."""
        if not hasattr(self, "log"):
            return
        table = self.log.leader_epochs
        for base, end, epoch in self.epochs:
            if base >= self.log_start:
                assert table.epoch_at(base) == table.epoch_at(end - 1) == epoch, table

    @invariant()
    def times_agree(self) -> None:
        if not hasattr(self, "log") or self.log.segments[0].base_offset < self.local_start:
            return
        flat = [
            (base + index, time)
            for base, _, _, times in self.batches
            for index, time in enumerate(times)
            if base + index >= self.log_start
        ]
        for wanted in (0, 25, 50):
            expected = next((pair for pair in flat if pair[1] >= wanted), None)
            assert self.log.offset_for_timestamp(wanted, self.end) == expected
        greatest = max(flat, key=lambda pair: (pair[1], -pair[0]), default=None)
        assert self.log.max_timestamp_offset() == greatest

    @precondition(lambda self: bool(self.batches))
    @rule(data=st.data())
    def read_somewhere(self, data: st.DataObject) -> None:
        base, end, body, _ = data.draw(st.sampled_from(self.batches))
        part = self.log.read(data.draw(st.integers(base, end - 1)), 1, end_offset=self.end)
        assert part is not None
        read = part.read()
        assert record_batch.read_header(read).base_offset == base
        assert read[16:] == body


LogModel.TestCase.settings = settings(
    max_examples=settings().max_examples * 2,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLogModel = LogModel.TestCase
