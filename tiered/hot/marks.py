"""The small files beside a log's segments: what a restart may trust without reading the segments again.

Owns their text and their checks. Each is one JSON object with a version and a CRC-32C, replaced in one
step. A missing or damaged one reads as None, and recovery looks for itself: all but one only save work. That one
is for a restore without a database: no batch tells of a leader epoch in which nothing was written. Must never be the
only place that knows something the log cannot do without.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any

from fastcrc import crc32

from tiered.rules.segments.compaction import Compacted

RECOVERY_POINT_FILE = "recovery-point"
LOG_START_FILE = "log-start-offset"
LEADER_EPOCHS_FILE = "leader-epochs"
COMPACTED_FILE = "compacted"
BEGUN_EPOCH_FILE = "begun-epoch"

MAX_MARK_BYTES = 64 << 20
"""A recovery point has about 150 bytes for each segment; this is far beyond any log."""

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentMark:
    """The facts about one segment when its files were on disk. Sizes in bytes; -1 stands for no timestamp."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    first_append_ms: int | None
    offset_index_bytes: int
    time_index_bytes: int
    transaction_index_bytes: int = 0
    """Points from before there were transactions do not have it."""
    times_proven_from: int | None = None
    """See `LogSegment`; None in points from before decision 0028, whose batches nobody has looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPoint:
    """The flushed part of a log: its segments in order, the last one as far as it is flushed.

    Everything below `offset` was on disk when this was written. A segment whose files still have the sizes
    in its mark is not looked at again; after a clean close that is true of all of them.
    """

    segments: tuple[SegmentMark, ...]

    @property
    def offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0


def encode_recovery_point(point: RecoveryPoint) -> bytes:
    body = asdict(point)
    # Beside the segments, whose members older versions take one by one: after a downgrade they trust the point too.
    body["times_proven_from"] = [row.pop("times_proven_from") for row in body["segments"]]
    return _encode("recovery-point", body)


def decode_recovery_point(data: bytes | None) -> RecoveryPoint | None:
    """The point, or None when there is none that can be trusted."""
    body = _decode("recovery-point", data)
    if body is None:
        return None
    try:
        rows = body["segments"]
        proven = body.get("times_proven_from") or [None] * len(rows)
        return RecoveryPoint(
            segments=tuple(
                SegmentMark(**row, times_proven_from=offset) for row, offset in zip(rows, proven, strict=True)
            )
        )
    except (KeyError, TypeError, ValueError):
        return None


def encode_log_start_offset(offset: int) -> bytes:
    return _encode("log-start-offset", {"offset": offset})


def decode_log_start_offset(data: bytes | None) -> int | None:
    body = _decode("log-start-offset", data)
    offset = None if body is None else body.get("offset")
    return offset if isinstance(offset, int) else None


def encode_begun_epoch(leader_epoch: int, start_offset: int) -> bytes:
    return _encode("begun-epoch", {"leader_epoch": leader_epoch, "start_offset": start_offset})


def decode_begun_epoch(data: bytes | None) -> tuple[int, int] | None:
    """(leader_epoch, start_offset)"""
    body = _decode("begun-epoch", data) or {}
    match (body.get("leader_epoch"), body.get("start_offset")):
        case (int(leader_epoch), int(start_offset)):
            return leader_epoch, start_offset
        case _:
            return None


def encode_compacted(compacted: Compacted) -> bytes:
    return _encode("compacted", asdict(compacted))


def decode_compacted(data: bytes | None) -> Compacted:
    """The state of compaction; empty where it is not known, which costs a pass over the log."""
    body = _decode("compacted", data)
    try:
        return Compacted() if body is None else Compacted(**body)
    except TypeError:
        return Compacted()


def _encode(kind: str, body: dict[str, Any]) -> bytes:
    text = json.dumps({"kind": kind, "version": _VERSION, "body": body}, sort_keys=True, separators=(",", ":"))
    data = text.encode()
    return data + b"\n%08x\n" % crc32.iscsi(data)


def _decode(kind: str, data: bytes | None) -> dict[str, Any] | None:
    if data is None:
        return None
    text, _, check = data.partition(b"\n")
    if check != b"%08x\n" % crc32.iscsi(text):
        return None
    try:
        whole = json.loads(text)
    except ValueError:
        return None
    if not isinstance(whole, dict) or whole.get("kind") != kind or whole.get("version") != _VERSION:
        return None
    body = whole.get("body")
    return body if isinstance(body, dict) else None
