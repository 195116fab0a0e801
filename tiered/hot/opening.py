"""Makes a log of what is in its folder, and first what was uncertain there certain.

Owns what a start does before there is a log, and what it says where the disk refuses. `recovery` decides what to trust.
What it writes again must stay byte for byte what and where it was: a crash in between harms nothing then.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from tiered.errors import LogDirFailed
from tiered.hot.batch_walk import never, require_running
from tiered.hot.file_system import FileSystem, read_whole, write_all
from tiered.hot.log import Log, LogConfig
from tiered.hot.marks import MAX_MARK_BYTES, RECOVERY_POINT_FILE, decode_recovery_point
from tiered.hot.producer_files import SNAPSHOT_SUFFIX
from tiered.hot.recovery import Recoverer
from tiered.hot.segment import LOG_SUFFIX
from tiered.hot.segment_files import SHARED_OPEN_SEGMENTS, OpenSegments
from tiered.open_files import OUT_OF_FILES, out_of_files

_COPY_BYTES = 1 << 20
_SYNC_BYTES = 64 << 20
"""Nobody can stop an fsync: one of a whole segment keeps a process for as long as a slow disk takes for a GiB."""


def open_log(
    directory: Path | str,
    fs: FileSystem,
    *,
    config: LogConfig,
    log_start_offset: int = 0,
    now_ms: int,
    first_needed_offset: int | None = None,
    open_segments: OpenSegments = SHARED_OPEN_SEGMENTS,
    is_stopping: Callable[[], bool] = never,
) -> Log:
    """The log in `directory`, which is made when it is missing; `recovery` tells what had to be done.

    `first_needed_offset` is the end of what the object store holds: everything from there on must be
    here. A log that ends before it begins anew there. Blocking; may read the segments above the recovery
    point. Raises CorruptFile when flushed records are missing or damaged, LogDirFailed when the disk fails,
    and ShuttingDown soon after it `is_stopping`: then the next start does it again.
    """
    path = str(directory)
    try:
        recoverer = Recoverer(
            path,
            fs,
            index_interval_bytes=config.index_interval_bytes,
            log_start_offset=log_start_offset,
            first_needed_offset=first_needed_offset,
            now_ms=now_ms,
            is_stopping=is_stopping,
        )
        return Log(path, fs, config, recoverer.run(), open_segments)
    except OSError as error:
        if error.errno in OUT_OF_FILES:
            raise LogDirFailed(out_of_files(f"{path} cannot be opened")) from error
        raise LogDirFailed(f"{path} cannot be opened: {error}; nothing was changed that a restart needs") from error


def write_again(fs: FileSystem, directory: str, *, is_stopping: Callable[[], bool] = never) -> None:
    """Returns when whatever the segments in `directory` hold above the recovery point, and the snapshots of producers,
    are on disk. Blocking; before the log is opened. Raises LogDirFailed, and ShuttingDown soon after
    it `is_stopping`; then the log is as it was.

    For a start after an fsync that failed: the kernel then counts pages as clean that it never wrote. It gives them to
    readers for a while, lets further fsyncs succeed, and drops them one day. What is written again is dirty again. All
    bytes stay where and what they are, so that a crash in between harms nothing.
    """
    try:
        _write_again(fs, directory, fs.sizes(directory), is_stopping)
    except FileNotFoundError:
        return  # Nothing was ever written here.
    except OSError as error:
        if error.errno in OUT_OF_FILES:
            raise LogDirFailed(out_of_files(f"{directory} cannot be written again")) from error
        raise LogDirFailed(
            f"{directory} cannot be written again, as it has to be after an fsync that failed: {error}. Check the disk"
        ) from error


def _write_again(fs: FileSystem, directory: str, sizes: Mapping[str, int], is_stopping: Callable[[], bool]) -> None:
    point = decode_recovery_point(read_whole(fs, f"{directory}/{RECOVERY_POINT_FILE}", max_bytes=MAX_MARK_BYTES))
    marks = () if point is None else point.segments
    on_disk = {f"{mark.base_offset:020}{LOG_SUFFIX}": mark.size_bytes for mark in marks}
    for name, size_bytes in sizes.items():
        position = on_disk.get(name, 0)
        if not name.endswith((LOG_SUFFIX, SNAPSHOT_SUFFIX)) or position >= size_bytes:
            continue
        with fs.open(f"{directory}/{name}", writable=True) as file:
            synced = position
            while data := fs.read(file, _COPY_BYTES, position):
                require_running(is_stopping)
                write_all(fs, file, data, position)
                position += len(data)
                if position - synced >= _SYNC_BYTES:
                    fs.sync(file)
                    synced = position
            fs.sync(file)
    fs.sync_directory(directory)
