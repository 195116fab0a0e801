"""What the checker knows of each partition: the ledger of what is committed, and every machine's copy.

Owns these values and nothing of what they mean: `tests.simulation.checker` fills them and judges.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tiered.hot.marks import BEGUN_EPOCH_FILE, decode_begun_epoch
from tiered.ids import TopicPartition

Entry = tuple[int, int]
"""One record's place: the leader epoch and the CRC of the batch that holds it. No two batches of a run are equal."""


class Violation(Exception):
    """An invariant does not hold. The message begins with its name."""


class Batch(NamedTuple):
    """What a client has sent: who, and as which of its batches. A batch is one producer's next sequence."""

    producer: int
    sequence: int
    records: int


@dataclass(slots=True, eq=False)
class Replica:
    """One machine's copy of one partition: what its page cache holds from `start` on."""

    machine: str
    directory: str = ""
    start: int = 0
    entries: list[Entry] = field(default_factory=list)
    has_failed: bool = False
    """A change of the log was not carried out: it must never lead again, and counts for nothing."""
    verified: int = 0
    """Agrees with the ledger below this offset."""

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    @property
    def reach(self) -> tuple[int, int]:
        """How far a restore finds the log, as `DiskLog.reach`."""
        newest = self.entries[-1][0] if self.entries else -1
        path = Path(self.directory) / BEGUN_EPOCH_FILE
        begun = decode_begun_epoch(path.read_bytes()) if path.exists() else None
        return max(newest, begun[0] if begun is not None and begun[1] == self.end else -1), self.end

    def between(self, first: int, end: int) -> list[Entry]:
        return self.entries[max(0, first - self.start) : max(0, end - self.start)]


@dataclass(slots=True, eq=False)
class Book:
    """One partition: what is committed, and everybody's copy."""

    key: TopicPartition
    name: str = ""
    ledger: list[Entry] = field(default_factory=list)
    replicas: dict[str, Replica] = field(default_factory=dict)
    leaders: dict[int, str] = field(default_factory=dict)
    """Who leads in each epoch, as SQL says and as brokers behave."""
    row: "Row | None" = None
    is_deleted: bool = False
    """Its topic is: SQL has no row of it any more that counts, and nobody has to hold it."""
    sequences: dict[int, int] = field(default_factory=dict)
    """The last sequence of each producer in the ledger."""
    reported: tuple[int, int] = (-1, -1)
    """The leader epoch and the high watermark that a client was told last."""


class Row(NamedTuple):
    """What SQL says of a partition."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    log_start_offset: int
    cold_end_offset: int
