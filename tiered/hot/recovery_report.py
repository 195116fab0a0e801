"""The report of opening a log.

Owns the values only; `recovery` fills them in and `log` takes them over.
"""

from dataclasses import dataclass, field

from tiered.formats.producer_snapshot import ProducerEntry
from tiered.hot.segment import LogSegment
from tiered.rules.replication.leader_epochs import LeaderEpochs
from tiered.rules.segments.compaction import Compacted


@dataclass(slots=True, kw_only=True)
class Recovery:
    """The outcome of opening a log. `clean`: every segment could be trusted as it was.

    `began_anew`: there is no local record, and no snapshot of what was before; only the object store may know the
    producers and leader epochs up to the log's end. `dropped_files` were renamed to `*.deleted` and go at the next
    clean open. `producers` is the state of every producer at the log's end, for the opener to go on from.
    """

    clean: bool = True
    began_anew: bool = False
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    dropped_files: list[str] = field(default_factory=list)
    rebuilt_indexes: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    producers: tuple[ProducerEntry, ...] = ()
    begun_epoch: int | None = None
    """A leader epoch that began at the log's end, whose leader wrote nothing and followed no other one since."""


@dataclass(slots=True, kw_only=True)
class Recovered:
    """The parts of a log as found on disk, for `Log` to own. The last segment is open for appends."""

    segments: list[LogSegment]
    flushed_offset: int
    log_start_offset: int
    leader_epochs: LeaderEpochs
    leader_epochs_kept: LeaderEpochs
    point_is_current: bool
    snapshot_offsets: list[int]
    compacted: Compacted
    report: Recovery
