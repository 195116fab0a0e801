"""Decides what may be deleted: local segments (T4), and the oldest offsets of the whole log (T6).

Owns both decisions and their explanations. Pure: values and the time in, a new offset and one verdict per
segment out, so that `explain` prints exactly what would happen before anything is deleted. A segment that stays has
its own reason to, where it has one; only one that would go otherwise is said to wait for an older one.
Must never count what is merely planned, and never let one segment go while an older one stays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from tiered.rules.segments.tiering import LocalSegment, aged_from_ms

UNLIMITED = -1
SMALL_KEPT_MS = 24 * 3_600_000
"""So old a small segment may become on a disk, where the topic does not say how old."""


class ColdSegment(Protocol):
    """The fields of a committed row that a rule needs."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def log_bytes(self) -> int: ...

    @property
    def max_timestamp_ms(self) -> int:
        """-1 when no record carries a timestamp."""

    @property
    def max_timestamp_is_proven(self) -> bool | None:
        """As `LocalSegment.times_are_proven`."""

    @property
    def committed_at_ms(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A claim on offsets [start_offset, end_offset) until a time, or for good: nothing of it is deleted before."""

    name: str
    start_offset: int
    end_offset: int
    expires_at_ms: int | None


class RetentionReason(StrEnum):
    """The reason of one verdict. The first four delete, the others keep."""

    BELOW_LOG_START = "wholly below log_start_offset"
    EXPIRED = "its newest record is older than the retention time"
    OVERSIZE = "the log without it still reaches the retention size"
    SMALL = "it is small and in the store, and more than a day old"
    WITHIN_RETENTION = "within the retention time and the retention size"
    IN_THE_FUTURE = "its newest record claims a time to come: it is kept until that time plus the retention"
    ACTIVE = "it is being written"
    NOT_COMMITTED = "the object store does not hold it yet"
    NOT_STABLE = "it reaches beyond the high watermark"
    PINNED = "a snapshot or a reader has pinned it"
    CLOCK_JUMPED = "it would be too old, but the clock jumped and nobody knows how late it is"
    ENOUGH_FOR_ONE_ROUND = "enough for one round: it goes in one of the next"
    BEHIND_ONE_THAT_STAYS = "it would go, but an older segment stays"


DELETING = frozenset(
    {
        RetentionReason.BELOW_LOG_START,
        RetentionReason.EXPIRED,
        RetentionReason.OVERSIZE,
        RetentionReason.SMALL,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One segment's fate, and why. `pin` names the pin of a pinned one; its age counts from `newest_ms`."""

    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int
    why: RetentionReason
    pin: str | None = None

    @property
    def deletes(self) -> bool:
        return self.why in DELETING


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Everything below `delete_before_offset` goes; it is where the first segment that stays begins, and never
    below the present start. One verdict per segment, oldest first."""

    delete_before_offset: int
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int
    keep: RetentionReason | None


def local_delete_before(
    segments: Sequence[LocalSegment],
    *,
    log_start_offset: int,
    cold_end_offset: int,
    high_watermark: int,
    local_retention_ms: int,
    local_retention_bytes: int,
    remote_enabled: bool,
    small_bytes: int,
    now_ms: int,
) -> Retention:
    """Up to which offset local segment files may go (T4): those of `segments` (by base offset, active one last).

    With `remote_enabled` only what committed rows cover (below `cold_end_offset`) goes, when the local retention
    says so; -2 there was resolved to the total retention by the caller, -1 is unlimited. Ages are as `aged_from_ms` has
    them: the records stay readable in the store. One smaller than `small_bytes` also goes after `SMALL_KEPT_MS`
    (decision 0033); 0 keeps them. Without `remote_enabled`, only what is wholly below `log_start_offset` goes:
    `new_log_start_offset` moves that by the total retention.
    """
    candidates = [
        _local(segment, aged_from_ms(segment), log_start_offset, cold_end_offset, high_watermark, remote_enabled)
        for segment in segments
    ]
    return _decide(
        candidates,
        start_offset=segments[0].base_offset if segments else log_start_offset,
        log_start_offset=log_start_offset,
        retention_ms=local_retention_ms if remote_enabled else UNLIMITED,
        retention_bytes=local_retention_bytes if remote_enabled else UNLIMITED,
        small_bytes=small_bytes if remote_enabled else 0,
        pins=(),
        now_ms=now_ms,
    )


def _local(
    segment: LocalSegment,
    newest_ms: int,
    log_start_offset: int,
    cold_end_offset: int,
    high_watermark: int,
    remote_enabled: bool,
) -> _Candidate:
    keep = None
    if not segment.closed:
        keep = RetentionReason.ACTIVE
    elif segment.end_offset > high_watermark:
        keep = RetentionReason.NOT_STABLE
    # Records below the log start are readable to no client, whether they were uploaded or not.
    elif remote_enabled and segment.end_offset > max(cold_end_offset, log_start_offset):
        keep = RetentionReason.NOT_COMMITTED
    return _Candidate(
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        size_bytes=segment.size_bytes,
        newest_ms=newest_ms,
        keep=keep,
    )


def new_log_start_offset(
    cold: Sequence[ColdSegment],
    local: Sequence[LocalSegment],
    *,
    log_start_offset: int,
    cold_end_offset: int,
    high_watermark: int,
    retention_ms: int,
    retention_bytes: int,
    remote_enabled: bool,
    pins: Sequence[Pin],
    now_ms: int,
    clock_is_trusted: bool = True,
    max_segments: int = UNLIMITED,
) -> Retention:
    """Where the log should begin (T6): total retention over the committed rows and the local segments above them.

    A segment counts once, with its bytes of batches, in whichever tier it is; planned rows do not count. With
    `remote_enabled` the start never passes `cold_end_offset` (T5): what is not uploaded yet stays. The active
    segment never goes; the owner rolls it by `segment.ms`, then it can. At most `max_segments` go in one round, and
    none for its age while the clock is not trusted. -1 is unlimited.
    """
    candidates = [
        _Candidate(
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            size_bytes=segment.log_bytes,
            newest_ms=newest_of_committed_ms(segment),
            keep=None,
        )
        for segment in cold
    ]
    candidates.extend(
        _local(
            segment,
            newest_ms(segment),
            log_start_offset,
            cold_end_offset,
            high_watermark,
            remote_enabled,
        )
        for segment in local
        if segment.end_offset > cold_end_offset or not segment.closed
    )
    return _decide(
        candidates,
        start_offset=log_start_offset,
        log_start_offset=log_start_offset,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        pins=pins,
        now_ms=now_ms,
        clock_is_trusted=clock_is_trusted,
        max_segments=max_segments,
    )


def newest_ms(segment: LocalSegment) -> int:
    """The moment from which total retention counts the age of a local segment."""
    return _newest_ms(segment.max_timestamp_ms, segment.times_are_proven, segment.written_ms)


def newest_of_committed_ms(segment: ColdSegment) -> int:
    """The same of a committed row."""
    return _newest_ms(segment.max_timestamp_ms, bool(segment.max_timestamp_is_proven), segment.committed_at_ms)


def _newest_ms(max_timestamp_ms: int, is_proven: bool, written_ms: int) -> int:
    """The moment from which total retention counts: the newest record's time as in Kafka, or when a broker wrote the
    segment where no record has a time. Where no broker has looked at the records, the later of both: a record is not
    deleted for what a producer said of its time."""
    if is_proven:
        return max_timestamp_ms if max_timestamp_ms >= 0 else written_ms
    return max(max_timestamp_ms, written_ms)


def _decide(
    candidates: Sequence[_Candidate],
    *,
    start_offset: int,
    log_start_offset: int,
    retention_ms: int,
    retention_bytes: int,
    pins: Sequence[Pin],
    now_ms: int,
    clock_is_trusted: bool = True,
    max_segments: int = UNLIMITED,
    small_bytes: int = 0,
) -> Retention:
    """Verdicts from the oldest on; once one segment stays, everything after it does."""
    # The log without all that is too old or too much, even if something else keeps it.
    remaining_bytes = sum(candidate.size_bytes for candidate in candidates if candidate.end_offset > log_start_offset)
    live_pins = [pin for pin in pins if pin.expires_at_ms is None or pin.expires_at_ms > now_ms]
    delete_before_offset = start_offset
    verdicts: list[Verdict] = []
    going = 0
    one_stays = False
    for candidate in candidates:
        pin: Pin | None = None
        why = candidate.keep
        if why is None:
            why = _expiry(
                candidate,
                remaining_bytes,
                log_start_offset,
                retention_ms,
                retention_bytes,
                now_ms,
                clock_is_trusted,
                small_bytes,
            )
            if why in DELETING and why is not RetentionReason.BELOW_LOG_START:
                remaining_bytes -= candidate.size_bytes
                pin = _pin_on(candidate, live_pins)
                if pin is not None:
                    why = RetentionReason.PINNED
                elif not one_stays and going == max_segments:
                    why = RetentionReason.ENOUGH_FOR_ONE_ROUND
                elif not one_stays:
                    going += 1
        if one_stays and why in DELETING:
            why = RetentionReason.BEHIND_ONE_THAT_STAYS
        one_stays = why not in DELETING
        if not one_stays:
            delete_before_offset = max(delete_before_offset, candidate.end_offset)
        verdicts.append(
            Verdict(
                base_offset=candidate.base_offset,
                end_offset=candidate.end_offset,
                size_bytes=candidate.size_bytes,
                newest_ms=candidate.newest_ms,
                why=why,
                pin=pin.name if pin is not None else None,
            )
        )
    return Retention(delete_before_offset=delete_before_offset, verdicts=tuple(verdicts))


def _expiry(
    candidate: _Candidate,
    remaining_bytes: int,
    log_start_offset: int,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
    clock_is_trusted: bool,
    small_bytes: int,
) -> RetentionReason:
    """Kafka's comparisons: strictly older than the time, and the rest at least as much as the size."""
    if candidate.end_offset <= log_start_offset:
        return RetentionReason.BELOW_LOG_START
    is_expired = retention_ms != UNLIMITED and now_ms - candidate.newest_ms > retention_ms
    if is_expired and clock_is_trusted:
        return RetentionReason.EXPIRED
    if retention_bytes != UNLIMITED and remaining_bytes - candidate.size_bytes >= retention_bytes:
        return RetentionReason.OVERSIZE
    if candidate.size_bytes < small_bytes and now_ms - candidate.newest_ms > SMALL_KEPT_MS:
        return RetentionReason.SMALL
    if is_expired:
        return RetentionReason.CLOCK_JUMPED
    if retention_ms != UNLIMITED and candidate.newest_ms > now_ms:
        return RetentionReason.IN_THE_FUTURE
    return RetentionReason.WITHIN_RETENTION


def _pin_on(candidate: _Candidate, pins: Sequence[Pin]) -> Pin | None:
    for pin in pins:
        if pin.start_offset < candidate.end_offset and candidate.base_offset < pin.end_offset:
            return pin
    return None


def furthest_ahead(verdicts: Iterable[Verdict], beyond_ms: int) -> Verdict | None:
    """The segment that a record of the future, later than `beyond_ms`, keeps for longest; None where there is none."""
    ahead = [each for each in verdicts if each.why is RetentionReason.IN_THE_FUTURE and each.newest_ms > beyond_ms]
    return max(ahead, key=lambda each: each.newest_ms, default=None)


# As people read them


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`segments` segments in a row with one verdict. `newest_ms` is the time of their newest record."""

    base_offset: int
    end_offset: int
    segments: int
    size_bytes: int
    newest_ms: int
    deletes: bool
    why: RetentionReason
    pin: str | None


def runs_of(verdicts: Iterable[Verdict]) -> tuple[Run, ...]:
    """The verdicts, oldest first as they are, with neighbours of one kind put together."""
    runs: list[Run] = []
    for each in verdicts:
        last = runs[-1] if runs else None
        if last is not None and (last.why, last.pin) == (each.why, each.pin):
            runs[-1] = replace(
                last,
                end_offset=each.end_offset,
                segments=last.segments + 1,
                size_bytes=last.size_bytes + each.size_bytes,
                newest_ms=max(last.newest_ms, each.newest_ms),
            )
        else:
            runs.append(
                Run(
                    base_offset=each.base_offset,
                    end_offset=each.end_offset,
                    segments=1,
                    size_bytes=each.size_bytes,
                    newest_ms=each.newest_ms,
                    deletes=each.deletes,
                    why=each.why,
                    pin=each.pin,
                )
            )
    return tuple(runs)
