"""The files of a log beside its segments: its start, its leader epochs, producer snapshots, the recovery point.

Owns those small files and their state in memory. Must never let a file say more than is true: a stale file says less.
"""

import errno
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tiered.errors import CorruptFile, LogDirFailed
from tiered.formats.leader_epoch_file import encode_leader_epochs
from tiered.formats.producer_snapshot import ProducerEntry, encode_producers
from tiered.hot.file_system import FileSystem, prepare_file, replace_file, use_prepared
from tiered.hot.marks import (
    BEGUN_EPOCH_FILE,
    COMPACTED_FILE,
    LEADER_EPOCHS_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    RecoveryPoint,
    encode_begun_epoch,
    encode_compacted,
    encode_log_start_offset,
    encode_recovery_point,
)
from tiered.hot.producer_files import read_snapshot, remove_snapshots, snapshot_path
from tiered.hot.recovery_report import Recovered
from tiered.open_files import OUT_OF_FILES, out_of_files
from tiered.rules.replication.leader_epochs import LeaderEpochs
from tiered.rules.segments.compaction import Compacted

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

KEPT_SNAPSHOTS = 2
"""Besides those at the ends of local segments, which their uploads need."""


class SideFiles:
    """One log's small files."""

    __slots__ = (
        "_begun_epoch_kept",
        "_changing_epochs",
        "_directory",
        "_epochs_kept",
        "_fs",
        "_keeping_epochs",
        "_prepared_epochs",
        "_snapshot_lock",
        "compacted",
        "cuts",
        "leader_epochs",
        "log_start_offset",
        "snapshot_offsets",
    )

    def __init__(self, directory: str, fs: FileSystem, found: Recovered) -> None:
        self._directory = directory
        self._fs = fs
        self.compacted = found.compacted
        if self.compacted.clean_end_offset > found.segments[-1].end_offset:
            self.compacted = Compacted()  # Of records that somebody cut away: what comes there now is others.
        self.cuts = 0
        """How often records were taken back: what somebody found out about them before holds no more."""
        self.log_start_offset = found.log_start_offset
        self.leader_epochs = found.leader_epochs
        self._changing_epochs = threading.Lock()
        """The event loop begins epochs while a thread forgets those below a new log start. Never held over I/O."""
        self._epochs_kept = found.leader_epochs_kept
        """What the file says."""
        self._begun_epoch_kept = found.report.begun_epoch is not None
        """There is a file."""
        self._keeping_epochs = threading.Lock()
        """A flush and a removal of segments, each in a thread, both write the file."""
        self._prepared_epochs = found.leader_epochs_kept
        """What is about to be put in the file's place."""
        self.snapshot_offsets = tuple(found.snapshot_offsets)
        self._snapshot_lock = threading.Lock()
        """A roll on the event loop and a flush in a thread both write snapshots."""

    def change_leader_epochs(self, change: Callable[[LeaderEpochs], LeaderEpochs]) -> None:
        """In memory only: until the file is written, a restart finds the change in the batches' headers."""
        with self._changing_epochs:
            self.leader_epochs = change(self.leader_epochs)

    def keep_leader_epochs(self, end_offset: int | None = None) -> None:
        """Returns when the epochs that began below `end_offset` (all without it) survive a power loss. Blocking;
        raises OSError.

        Due before a recovery point covers their batches and before those are removed: the next start does not read
        them. Never due for an append, which must not wait for a disk.
        """
        with self._keeping_epochs:
            epochs, kept = self.leader_epochs, self._epochs_kept
            if end_offset is not None:
                epochs, kept = epochs.truncate_to_end(end_offset), kept.truncate_to_end(end_offset)
            if epochs != kept:
                replace_file(
                    self._fs, self._path(LEADER_EPOCHS_FILE), encode_leader_epochs(epochs.entries), durable=True
                )
                self._epochs_kept = epochs

    def keep_begun_epoch(self, epoch: int, offset: int) -> None:
        """Word of a leader epoch in which nothing is written yet: it survives this process, and not a power loss. That
        a disk refuses it is only logged, because only a restore without a database reads it (decision 0031)."""
        try:
            replace_file(self._fs, self._path(BEGUN_EPOCH_FILE), encode_begun_epoch(epoch, offset), durable=False)
            self._begun_epoch_kept = True
        except OSError as error:
            log.debug("%s: leader epoch %d has begun, and is not on the disk yet: %s", self._directory, epoch, error)

    def forget_begun_epoch(self) -> None:
        """Another broker leads: how far this log is does not depend on what began here. Raises OSError. A cut makes it
        durable."""
        if self._begun_epoch_kept:
            with suppress(FileNotFoundError):
                self._fs.unlink(self._path(BEGUN_EPOCH_FILE))
            self._begun_epoch_kept = False

    def keep_log_start(self, offset: int) -> None:
        """Raises the log start, on disk first. Raises LogDirFailed, nothing changed."""
        self._replace(LOG_START_FILE, encode_log_start_offset(offset))
        self.log_start_offset = offset
        self.change_leader_epochs(lambda epochs: epochs.truncate_to_start(offset))

    def has_snapshot(self, offset: int) -> bool:
        return offset in self.snapshot_offsets

    def write_snapshot(self, offset: int, entries: Iterable[ProducerEntry], base_offsets: Sequence[int]) -> None:
        """Keeps the producers as they were at `offset`, and of the other snapshots those at `base_offsets` and
        the newest. Raises OSError."""
        data = encode_producers(entries)
        with self._snapshot_lock:
            replace_file(self._fs, snapshot_path(self._directory, offset), data, durable=False)
            known = sorted({*self.snapshot_offsets, offset})
            wanted = {*base_offsets, offset, *known[-KEPT_SNAPSHOTS:]}
            self.snapshot_offsets = tuple(each for each in known if each in wanted)
            remove_snapshots(self._fs, self._directory, [each for each in known if each not in wanted])

    def keep_before_removal(self, offset: int) -> None:
        """Returns when what segments below `offset` say of leader epochs and, if there is a snapshot at `offset`, of
        their producers survives a power loss. Blocking; raises OSError.

        Due before they are removed: it is nowhere else on this disk. A full disk, which needs the removal, has room for
        the snapshot, for that is written; the epochs it keeps with the next recovery point.
        """
        with suppress(FileNotFoundError):
            with self._fs.open(snapshot_path(self._directory, offset), writable=True) as file:
                self._fs.sync(file)
            self._fs.sync_directory(self._directory)
        try:
            self.keep_leader_epochs(offset)
        except OSError as error:
            if error.errno not in FULL:
                raise
            log.warning("%s: the disk is full, leader epochs are not on it yet: %s", self._directory, error)

    def latest_snapshot(self, at_or_below: int) -> tuple[int, tuple[ProducerEntry, ...]] | None:
        for offset in reversed(self.snapshot_offsets):
            if offset <= at_or_below:
                with suppress(CorruptFile):
                    entries = read_snapshot(self._fs, self._directory, offset)
                    if entries is not None:
                        return offset, entries
        return None

    def prepare_cut(self, end_offset: int) -> None:
        """Takes beforehand what space `cut` needs, because nothing that was cut comes back. Raises OSError, with
        nothing changed that matters."""
        self.forget_begun_epoch()
        self._forget_compacted()
        self._prepare_epochs(self.leader_epochs.truncate_to_end(end_offset))

    def cut(self, end_offset: int) -> None:
        """Forgets what lies at or beyond the log's new end, durably, as it was prepared. Raises OSError."""
        gone = [offset for offset in self.snapshot_offsets if offset > end_offset]
        remove_snapshots(self._fs, self._directory, gone)
        self.snapshot_offsets = tuple(offset for offset in self.snapshot_offsets if offset <= end_offset)
        self._use_epochs(lambda epochs: epochs.truncate_to_end(end_offset))
        self._fs.sync_directory(self._directory)

    def prepare_beginning(self, offset: int, epochs: LeaderEpochs, producers: Iterable[ProducerEntry] | None) -> None:
        """As `prepare_cut`, for `begin_anew`."""
        self.forget_begun_epoch()
        self._forget_compacted()
        self._prepare_epochs(epochs)
        if producers is not None:
            prepare_file(self._fs, snapshot_path(self._directory, offset), encode_producers(producers))
        if self.log_start_offset > offset:
            prepare_file(self._fs, self._path(LOG_START_FILE), encode_log_start_offset(offset))

    def begin_anew(self, offset: int, *, knows_producers: bool) -> None:
        """The log is empty and begins at `offset`, with the epochs, and with the producers if they are known, that were
        prepared; `log_start_offset` is lowered to it. Raises OSError; durable after `sync_directory`."""
        remove_snapshots(self._fs, self._directory, self.snapshot_offsets)
        self.snapshot_offsets = ()
        self._use_epochs(lambda _: self._prepared_epochs)
        if self.log_start_offset > offset:
            use_prepared(self._fs, self._path(LOG_START_FILE))
            self.log_start_offset = offset
        if knows_producers:
            # Last: a log that is empty and has no snapshot is known to know nothing of its past.
            use_prepared(self._fs, snapshot_path(self._directory, offset))
            self.snapshot_offsets = (offset,)

    def _prepare_epochs(self, epochs: LeaderEpochs) -> None:
        self._prepared_epochs = epochs
        prepare_file(self._fs, self._path(LEADER_EPOCHS_FILE), encode_leader_epochs(epochs.entries))

    def _use_epochs(self, change: Callable[[LeaderEpochs], LeaderEpochs]) -> None:
        with self._keeping_epochs:
            self.change_leader_epochs(change)
            use_prepared(self._fs, self._path(LEADER_EPOCHS_FILE))
            self._epochs_kept = self._prepared_epochs

    def keep_recovery_point(self, point: RecoveryPoint) -> None:
        """Returns when the point is on disk. Raises OSError."""
        replace_file(self._fs, self._path(RECOVERY_POINT_FILE), encode_recovery_point(point), durable=True)

    def keep_compacted(self, compacted: Compacted) -> None:
        """Returns when it is on disk, after the renames that it tells of. Raises OSError."""
        self._fs.sync_directory(self._directory)
        replace_file(self._fs, self._path(COMPACTED_FILE), encode_compacted(compacted), durable=True)
        self.compacted = compacted

    def _forget_compacted(self) -> None:
        """Records that follow a cut are not compacted. Durable with the next sync of the directory."""
        self.cuts += 1
        if self.compacted != Compacted():
            self.compacted = Compacted()
            with suppress(FileNotFoundError):
                self._fs.unlink(self._path(COMPACTED_FILE))

    def forget_recovery_point(self) -> None:
        """Returns when a restart would trust nothing. Raises OSError."""
        with suppress(FileNotFoundError):
            self._fs.unlink(self._path(RECOVERY_POINT_FILE))
        self._fs.sync_directory(self._directory)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _replace(self, name: str, data: bytes) -> None:
        try:
            replace_file(self._fs, self._path(name), data, durable=True)
        except OSError as error:
            raise LogDirFailed(refusal(self._path(name), error)) from error


@contextmanager
def unless_full(directory: str) -> Iterator[None]:
    """While nothing is changed that does not come back: raises LogDirFailed where the disk is full, or no file can be
    opened, which can be waited for; of any other error nobody knows what it means."""
    try:
        yield
    except OSError as error:
        if error.errno not in (*FULL, *OUT_OF_FILES):
            raise
        raise LogDirFailed(refusal(directory, error)) from error


def refusal(path: str, error: OSError) -> str:
    """The error when the disk refused a write that changed nothing."""
    if error.errno in FULL:
        return (
            f"the disk is full ({error.strerror}) and refused a write to {path}; nothing was appended. Free space or "
            "add some: appends go on by themselves"
        )
    if error.errno in OUT_OF_FILES:
        return out_of_files(f"nothing was changed in {path}, for no file could be opened")
    return f"the disk refused a write to {path} ({error.strerror}); nothing was appended. Check the disk"
