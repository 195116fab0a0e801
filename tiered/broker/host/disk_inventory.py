"""What a stopped broker's data folder holds, for a restore.

Owns the order: lock the folder, open each log as a start of the broker would, describe it, let it go. A log that cannot
be opened is named, and holds up no other. Must never run beside the broker, nor make a folder.
"""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from tiered.broker.host.data_folder import DataFolder, owner_of
from tiered.broker.host.marker import MARKER_FILE, read_marker
from tiered.errors import InvalidConfig, TieredError
from tiered.formats.disk_report import MAX_LEADER_EPOCHS, DiskLog, DiskReport, OpenLogTransaction
from tiered.hot.file_system import RealFileSystem
from tiered.hot.log import Log, LogConfig
from tiered.hot.opening import open_log

_MAX_WORDS = 500


def report_of(
    root: Path, *, now_ms: int, report: Callable[[int, int], None] = lambda _done, _total: None
) -> DiskReport:
    """The logs in the folder of a stopped broker. Blocking: reads what the last stop did not flush.

    Raises InvalidConfig where the folder is no broker's, and AlreadyRunning.
    """
    if not root.is_dir():
        raise InvalidConfig(f"there is no folder {root}")
    owner = owner_of(root)
    if owner is None:
        raise InvalidConfig(f"{root} is the data folder of no broker: there is no owner.json in it")
    folder = DataFolder(root)
    try:
        marker = read_marker(RealFileSystem(), str(root / MARKER_FILE))
        logs: list[DiskLog] = []
        faults: list[str] = []
        directories = sorted(folder.logs_on_disk())
        for done, directory in enumerate(directories):
            report(done, len(directories))
            try:
                logs.append(_described(directory, now_ms=now_ms))
            except TieredError as error:
                faults.append(f"{directory.parent.name}/{directory.name}: {error}"[:_MAX_WORDS])
    finally:
        folder.release()
    return DiskReport(
        cluster_id=owner.cluster_id,
        broker_id=owner.broker_id,
        broker_epoch=-1 if marker is None else marker.broker_epoch,
        logs=tuple(logs),
        faults=tuple(faults),
    )


def _described(directory: Path, *, now_ms: int) -> DiskLog:
    log = open_log(directory, RealFileSystem(), config=LogConfig(), now_ms=now_ms)
    try:
        return _description(log, UUID(directory.parent.name), int(directory.name))
    finally:
        log.discard()


def _description(log: Log, topic_id: UUID, partition: int) -> DiskLog:
    producers, begun_epoch = log.recovery.producers, log.recovery.begun_epoch
    begun = () if begun_epoch is None else ((begun_epoch, log.log_end_offset),)
    return DiskLog(
        topic_id=topic_id,
        partition=partition,
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        log_end_offset=log.log_end_offset,
        leader_epochs=(*log.leader_epochs.entries, *begun)[-MAX_LEADER_EPOCHS:],
        newest_producer_id=max((entry.producer_id for entry in producers), default=-1),
        open_transactions=tuple(
            OpenLogTransaction(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                first_offset=entry.current_transaction_first_offset,
            )
            for entry in sorted(producers)
            if entry.current_transaction_first_offset is not None
        ),
    )
