"""Swaps: other objects in the places of committed ones, with the same offsets (decision 0016).

Owns that transition. The rows of the new objects are planned like those of uploads, so an unfinished swap is swept like
an unfinished upload. A swap retires the old rows and commits the new ones in one transaction, behind the feed's lock.
Must never move an offset, nor touch an object.

What holds after every call: the committed rows of a partition tile the log exactly as before (T3, T5); each new one
has its predecessor's epoch, its time of commit and its place in the chain of roots. Nobody's leader epoch fences a
swap: it changes nothing that a leader owns, and what a leader changes meanwhile (a retirement, a deletion, another
swap) has taken the old row away, which makes it fail as a whole.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from uuid import UUID

from sqlalchemy import Connection, bindparam, insert, update

from tiered.errors import LostRace
from tiered.meta import pins
from tiered.meta.clock import database_now_ms
from tiered.meta.cluster import take_number
from tiered.meta.segments import SegmentPlan, SegmentRow, load_some
from tiered.meta.tables import segment
from tiered.rules.segments.segment_states import TRANSITIONS, SegmentEvent, SegmentState
from tiered.runtime import crash_point

MAX_ROWS = 500
"""Of one call: all of the cluster waits for a transaction that has the number."""
NOBODY = -1
"""The owner of rows that no broker uploads: the controller sweeps them once their deadline has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObject:
    """The row that will replace the committed row `before`. Its size and its root are not known yet."""

    before: SegmentRow
    object_id: UUID
    object_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenObject:
    """An object that was put and checked (T2), of a planned row, and whose place it takes."""

    object_id: UUID
    before: UUID
    size_bytes: int
    log_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    max_timestamp_is_proven: bool
    record_count: int
    root_sha256: str


_WRITTEN = tuple(each.name for each in fields(WrittenObject) if each.name not in ("object_id", "before"))
"""What a swap writes of a new object."""


def plan(conn: Connection, wanted: Sequence[NewObject], *, timeout_ms: int) -> tuple[SegmentRow, ...]:
    """The planned rows, which precede the objects, in the order of `wanted`. They say of sizes, times and the root what
    the rows before them do. Repeating it answers with the rows that are there.

    By the database's clock they are overdue after `timeout_ms`. Raises `LostRace` where a row that is to be replaced is
    committed no more.
    """
    assert len(wanted) <= MAX_ROWS, len(wanted)
    number = take_number(conn)
    ids = [each.object_id for each in wanted]
    known = load_some(conn, ids)
    if not known:
        now_ms = database_now_ms(conn)
        committed = load_some(conn, [each.before.object_id for each in wanted])
        for each in wanted:
            _require_committed(committed.get(each.before.object_id), each.before.object_id)
        plans = [_plan_of(each, now_ms=now_ms, timeout_ms=timeout_ms) for each in wanted]
        rows = [{**asdict(each), "state": SegmentState.PLANNED, "change_number": number} for each in plans]
        if rows:
            conn.execute(insert(segment), rows)
        known = load_some(conn, ids)
    return tuple(known[each] for each in ids)


def swap(
    conn: Connection, topic_id: UUID, number: int, written: Sequence[WrittenObject], *, purge_grace_ms: int
) -> tuple[SegmentRow, ...]:
    """The rows that are committed now, in the order of `written`; those in whose places they are were retired.

    All of them or none. The old objects may be deleted after `purge_grace_ms`, and once nothing pins them: who reads
    them may end. Repeating a swap that has happened answers with its rows, whatever has become of them since.

    Raises `LostRace` when a row is no longer what it was when the swap was planned: retired, replaced or deleted with
    its topic, or abandoned; `Pinned` where a snapshot holds any of the offsets: it is there to be read as it is.
    """
    assert len(written) <= MAX_ROWS, len(written)
    change_number = take_number(conn)
    found = load_some(conn, [each.object_id for each in written])
    if len(found) == len(written) and all(row.committed_at_ms is not None for row in found.values()):
        return tuple(found[each.object_id] for each in written)
    before = load_some(conn, [each.before for each in written])
    for each in written:
        old = _require_committed(before.get(each.before), each.before)
        new = found.get(each.object_id)
        if new is None or new.state is not SegmentState.PLANNED or new.abandoned_at_ms is not None:
            raise LostRace(f"object {each.object_id} was given up: it took too long; compact again")
        extent = (topic_id, number, old.base_offset, old.end_offset, old.leader_epoch)
        assert (old.topic_id, old.partition, old.base_offset, old.end_offset, old.leader_epoch) == extent, old
        assert (new.topic_id, new.partition, new.base_offset, new.end_offset, new.leader_epoch) == extent, new
    pins.refuse_replacement(
        conn,
        topic_id,
        number,
        start_offset=min(row.base_offset for row in before.values()),
        end_offset=max(row.end_offset for row in before.values()),
    )
    now_ms = database_now_ms(conn)
    retired, committed = TRANSITIONS[SegmentEvent.RETIRE], TRANSITIONS[SegmentEvent.COMMIT]
    # First the old rows: no two committed ones may begin at the same offset, not for a moment.
    conn.execute(
        update(segment)
        .where(segment.c.state == retired.before, segment.c.object_id.in_([each.before for each in written]))
        .values(
            state=retired.after,
            retired_at_ms=now_ms,
            purge_after_ms=now_ms + purge_grace_ms,
            change_number=change_number,
        )
    )
    crash_point("meta.replacements.swap.half")
    conn.execute(
        update(segment)
        .where(segment.c.state == committed.before, segment.c.object_id == bindparam("its_id"))
        .values(state=committed.after, change_number=change_number),
        [
            {
                "its_id": each.object_id,
                # Retention goes by it where no record has a time: what replaces a segment is as old as that was.
                "committed_at_ms": before[each.before].committed_at_ms,
                **{name: getattr(each, name) for name in _WRITTEN},
            }
            for each in written
        ],
    )
    after = load_some(conn, [each.object_id for each in written])
    return tuple(after[each.object_id] for each in written)


def _plan_of(wanted: NewObject, *, now_ms: int, timeout_ms: int) -> SegmentPlan:
    before = wanted.before
    same = {each.name: getattr(before, each.name) for each in fields(SegmentPlan)}
    return replace(
        SegmentPlan(**same),
        object_id=wanted.object_id,
        object_key=wanted.object_key,
        owner=NOBODY,
        planned_at_ms=now_ms,
        deadline_ms=now_ms + timeout_ms,
        uploaded_root_sha256=before.uploaded_root_sha256 or before.root_sha256,
    )


def _require_committed(row: SegmentRow | None, object_id: UUID) -> SegmentRow:
    if row is None or row.state is not SegmentState.COMMITTED:
        state = "unknown" if row is None else row.state
        raise LostRace(
            f"object {object_id} is {state} by now: retention, a deletion or another compaction was faster; nothing "
            "was replaced, compact again"
        )
    return row
