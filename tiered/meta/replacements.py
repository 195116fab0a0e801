"""Swaps: other objects in the places of committed ones, with the same offsets (decisions 0016 and 0032).

Owns that transition. The rows of the new objects are planned like those of uploads, so an unfinished swap is swept like
an unfinished upload. A swap retires the old rows and commits the new ones in one transaction, behind the feed's lock.
Must never move an offset, nor touch an object.

A new object takes the place of one, whose records were compacted, or of several neighbours, whose bytes were joined.

What holds after every call: the committed rows of a partition tile the log as before (T3, T5); a new one has the epoch
and the time of commit of the last that it replaces, and the place of all of them in the chain of roots. Nobody's leader
epoch fences a swap: it changes nothing that a leader owns, and what a leader changes meanwhile (a retirement, a
deletion, another swap) has taken the old row away, which makes it fail as a whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
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
    """The row that will replace the committed rows `before`, neighbours in the order of offsets: one, or several that
    are joined. Its size and its root are not known yet."""

    before: tuple[SegmentRow, ...]
    object_id: UUID
    object_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenObject:
    """An object that was put and checked (T2), of a planned row, and in whose places it comes."""

    object_id: UUID
    before: tuple[UUID, ...]
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
    the last row before them does. Repeating it answers with the rows that are there.

    By the database's clock they are overdue after `timeout_ms`. Raises `LostRace` where a row that is to be replaced is
    committed no more, and `Pinned` as `swap` does.
    """
    assert sum(len(each.before) for each in wanted) <= MAX_ROWS, len(wanted)
    number = take_number(conn)
    ids = [each.object_id for each in wanted]
    known = load_some(conn, ids)
    if not known:
        now_ms = database_now_ms(conn)
        before = [row for each in wanted for row in each.before]
        committed = load_some(conn, [row.object_id for row in before])
        for row in before:
            _require_committed(committed.get(row.object_id), row.object_id)
        for topic_id, partition in {(row.topic_id, row.partition) for row in before}:
            _refuse_pinned(conn, topic_id, partition, before)
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
    old_ids = [object_id for each in written for object_id in each.before]
    assert len(old_ids) <= MAX_ROWS, len(old_ids)
    change_number = take_number(conn)
    found = load_some(conn, [each.object_id for each in written])
    if len(found) == len(written) and all(row.committed_at_ms is not None for row in found.values()):
        return tuple(found[each.object_id] for each in written)
    before = load_some(conn, old_ids)
    for each in written:
        replaced = [_require_committed(before.get(object_id), object_id) for object_id in each.before]
        new = found.get(each.object_id)
        if new is None or new.state is not SegmentState.PLANNED or new.abandoned_at_ms is not None:
            raise LostRace(f"object {each.object_id} was given up: it took too long, and is made anew")
        assert all((old.topic_id, old.partition) == (topic_id, number) for old in replaced), replaced
        assert all(old.end_offset == following.base_offset for old, following in pairwise(replaced)), replaced
        extent = (topic_id, number, replaced[0].base_offset, replaced[-1].end_offset, replaced[-1].leader_epoch)
        assert (new.topic_id, new.partition, new.base_offset, new.end_offset, new.leader_epoch) == extent, new
    _refuse_pinned(conn, topic_id, number, before.values())
    now_ms = database_now_ms(conn)
    retired, committed = TRANSITIONS[SegmentEvent.RETIRE], TRANSITIONS[SegmentEvent.COMMIT]
    # First the old rows: no two committed ones may begin at the same offset, not for a moment.
    conn.execute(
        update(segment)
        .where(segment.c.state == retired.before, segment.c.object_id.in_(old_ids))
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
                "committed_at_ms": max(before[object_id].committed_at_ms or 0 for object_id in each.before),
                **{name: getattr(each, name) for name in _WRITTEN},
            }
            for each in written
        ],
    )
    after = load_some(conn, [each.object_id for each in written])
    return tuple(after[each.object_id] for each in written)


def _refuse_pinned(conn: Connection, topic_id: UUID, number: int, before: Iterable[SegmentRow]) -> None:
    rows = [row for row in before if (row.topic_id, row.partition) == (topic_id, number)]
    pins.refuse_replacement(
        conn,
        topic_id,
        number,
        start_offset=min(row.base_offset for row in rows),
        end_offset=max(row.end_offset for row in rows),
    )


def _plan_of(wanted: NewObject, *, now_ms: int, timeout_ms: int) -> SegmentPlan:
    first, last = wanted.before[0], wanted.before[-1]
    same = {each.name: getattr(last, each.name) for each in fields(SegmentPlan)}
    return replace(
        SegmentPlan(**same),
        object_id=wanted.object_id,
        base_offset=first.base_offset,
        previous_root_sha256=first.previous_root_sha256,
        object_key=wanted.object_key,
        owner=NOBODY,
        planned_at_ms=now_ms,
        deadline_ms=now_ms + timeout_ms,
        uploaded_root_sha256=last.uploaded_root_sha256 or last.root_sha256,
        joined_count=sum(row.joined_count or 1 for row in wanted.before) if len(wanted.before) > 1 else None,
    )


def _require_committed(row: SegmentRow | None, object_id: UUID) -> SegmentRow:
    if row is None or row.state is not SegmentState.COMMITTED:
        state = "unknown" if row is None else row.state
        raise LostRace(
            f"object {object_id} is {state} by now: retention, a deletion or another replacement was faster; nothing "
            "was replaced, and it is tried again"
        )
    return row
