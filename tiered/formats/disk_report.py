"""What a stopped broker's disk holds, as one JSON file: a restore plans from it where the database is gone.

Owns the value types and the format. It has the form of a checkpoint (`checkpoint_bytes`), but is never in a store:
people carry it from a broker's machine to where they restore. Must never say anything of records but where they are.

Migration: as for checkpoints; a reader refuses formats that it does not know.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tiered.errors import CorruptObject
from tiered.formats.checkpoint_bytes import encode_checkpoint, read_members
from tiered.formats.json_fields import MAX_EPOCH, MAX_INT, MAX_NUMBER, MAX_SHORT, Fields

MAX_LEADER_EPOCHS: Final = 1_000
"""Of one log, the newest ones."""
_FORMAT: Final = "tiered.disk-report/1"
_MAX_TEXT_CHARS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLogTransaction:
    """A producer's transaction that has no end in a log."""

    producer_id: int
    producer_epoch: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLog:
    """One partition's log on a disk. `leader_epochs` are pairs of an epoch and the offset at which it starts, in order;
    `newest_producer_id` is -1 where no producer has one."""

    topic_id: UUID
    partition: int
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    newest_producer_id: int
    open_transactions: tuple[OpenLogTransaction, ...]

    @property
    def reach(self) -> tuple[int, int]:
        """The greater one is that of the log which has all that the other one's leader had committed."""
        return (self.leader_epochs[-1][0] if self.leader_epochs else -1), self.log_end_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskReport:
    """All logs in one broker's data folder, as its last registration left it (`broker_epoch`, -1: not known). `faults`
    says which cannot be opened, and why: each begins with the topic's id."""

    cluster_id: str
    broker_id: int
    broker_epoch: int
    logs: tuple[DiskLog, ...]
    faults: tuple[str, ...]


def encode_disk_report(report: DiskReport) -> bytes:
    """The report's file; equal reports give equal bytes."""
    return encode_checkpoint(_FORMAT, report)


def decode_disk_report(data: bytes) -> DiskReport:
    """The report in a file's bytes. Raises CorruptObject: not one, altered, cut off, or with impossible offsets."""
    fields = read_members(data, _FORMAT)
    logs = tuple(_log_from(log) for log in fields.objects("logs"))
    if len({(log.topic_id, log.partition) for log in logs}) != len(logs):
        raise CorruptObject("a disk's report names a partition twice")
    return DiskReport(
        cluster_id=fields.text("cluster_id", max_chars=_MAX_TEXT_CHARS),
        broker_id=fields.integer("broker_id", maximum=MAX_INT),
        broker_epoch=fields.integer("broker_epoch", minimum=-1),
        logs=logs,
        faults=fields.list_of_texts("faults", max_chars=_MAX_TEXT_CHARS),
    )


def _log_from(fields: Fields) -> DiskLog:
    log = DiskLog(
        topic_id=fields.uuid("topic_id"),
        partition=fields.integer("partition", maximum=MAX_INT),
        log_start_offset=fields.integer("log_start_offset"),
        local_log_start_offset=fields.integer("local_log_start_offset"),
        log_end_offset=fields.integer("log_end_offset"),
        leader_epochs=tuple((epoch, start) for epoch, start in fields.rows_of_integers("leader_epochs", width=2)),
        newest_producer_id=fields.integer("newest_producer_id", minimum=-1, maximum=MAX_NUMBER),
        open_transactions=tuple(
            OpenLogTransaction(
                producer_id=transaction.integer("producer_id", maximum=MAX_NUMBER),
                producer_epoch=transaction.integer("producer_epoch", maximum=MAX_SHORT - 1),
                first_offset=transaction.integer("first_offset"),
            )
            for transaction in fields.objects("open_transactions")
        ),
    )
    if not log.log_start_offset <= log.local_log_start_offset <= log.log_end_offset:
        raise CorruptObject(f"a disk's report has a log from {log.local_log_start_offset} to {log.log_end_offset}")
    before = (-1, 0)
    for epoch, start in log.leader_epochs:
        if not (before[0] < epoch <= MAX_EPOCH and before[1] <= start <= log.log_end_offset):
            raise CorruptObject("a disk's report has leader epochs out of order")
        before = (epoch, start)
    return log
