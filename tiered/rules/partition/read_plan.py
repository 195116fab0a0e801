"""Which tier answers a read of one offset: the whole decision, as a value.

Owns the comparison of an offset with a partition's bounds. Pure; never reads a store. If retention removes
the segment between this plan and the read, the caller asks once more with the new bounds.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tiered.errors import CorruptMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """The local log holds `offset`. Batches below `end_offset` may be read."""

    offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """Only the object store holds `offset`. Batches below `end_offset` may be read from there."""

    offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """There is nothing to read yet: `offset` is where the next readable record will be, or above it."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideLog:
    """`offset` is not in the log; these are its bounds."""

    offset: int
    log_start_offset: int
    log_end_offset: int


Plan: TypeAlias = Hot | Cold | CaughtUp | OutsideLog


def plan(
    offset: int,
    *,
    log_start_offset: int,
    local_log_start_offset: int,
    cold_end_offset: int,
    readable_end_offset: int,
    log_end_offset: int | None = None,
) -> Plan:
    """Where to read `offset`: the local log wherever it holds it, the object store below that.

    `readable_end_offset` is the high watermark, the last stable offset, or for followers the log end;
    `log_end_offset` (default: the readable end) is how far an offset may be without being out of range.
    Raises `CorruptMetadata` when neither tier holds an offset that the log claims to have (T4, T5).
    """
    log_end = readable_end_offset if log_end_offset is None else log_end_offset
    if offset < log_start_offset or offset > max(log_end, readable_end_offset):
        return OutsideLog(offset=offset, log_start_offset=log_start_offset, log_end_offset=log_end)
    if offset >= readable_end_offset:
        return CaughtUp(offset=offset)
    if offset >= local_log_start_offset:
        return Hot(offset=offset, end_offset=readable_end_offset)
    if offset < cold_end_offset:
        return Cold(offset=offset, end_offset=min(cold_end_offset, readable_end_offset))
    raise CorruptMetadata(
        f"offset {offset} is in no tier: the object store ends at {cold_end_offset}, the local log begins at "
        f"{local_log_start_offset}; run verify before serving this partition"
    )
