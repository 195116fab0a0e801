"""The rows of segment objects, and every change of their state.

Owns the rows of `segment` and `partition.cold_end_offset`. Each transition of `rules.segments.segment_states` is one
conditional update, and all checks and changes of a call share one transaction behind the feed's lock
(`meta.cluster`). Must never touch an object: `broker.tiering.segment_lifecycle` orders SQL and the store.

What holds after every call (T3, T5): the committed rows of a partition that end above `log_start_offset`
tile the log up to `cold_end_offset`, without gap or overlap, and were committed by the leader of their time.

The way out of an upload that failed is `abandon`, delete the object, `fail_planned`, in this order: an
abandoned row can never be committed, so no commit that is still on its way can point at the deleted object.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, Update, and_, bindparam, delete, exists, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from tiered.errors import CorruptMetadata, CorruptObject, Invalid, LostRace
from tiered.formats.object_key import parse_segment_key
from tiered.meta import partitions, pins
from tiered.meta.cluster import take_number
from tiered.meta.tables import partition, segment, topic
from tiered.rules.segments.segment_states import TRANSITIONS, SegmentEvent, SegmentState
from tiered.runtime import crash_point

MAX_IDS = 1_000
"""Of objects that are asked for at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPlan:
    """The facts about a segment before its object exists. Times are milliseconds since 1970 UTC.

    `object_id` is new for every attempt and part of `object_key`. `size_bytes` is the whole object,
    `log_bytes` the batches in it. Hashes are 64 hexadecimal digits. `deadline_ms` is the time after which
    the upload counts as overdue. `owner` is the broker that uploads. `uploaded_root_sha256`, `joined_count` and
    `max_timestamp_is_proven`: as `CommittedSegment`.
    """

    object_id: UUID
    topic_id: UUID
    partition: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    owner: int
    object_key: str
    size_bytes: int
    log_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    root_sha256: str
    previous_root_sha256: str
    planned_at_ms: int
    deadline_ms: int
    uploaded_root_sha256: str | None = None
    max_timestamp_is_proven: bool = False
    joined_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow(SegmentPlan):
    """A row of the metadata store: the plan, and what has become of it."""

    state: SegmentState
    abandoned_at_ms: int | None
    committed_at_ms: int | None
    retired_at_ms: int | None
    purge_after_ms: int | None
    purged_at_ms: int | None
    change_number: int

    @property
    def key_to_delete(self) -> str:
        """`object_key`. Raises CorruptMetadata where it is not the key of this row's own upload: whoever can write to
        the database shall have no other object deleted by the brokers' rights."""
        try:
            owner = parse_segment_key(self.object_key).object_id
        except CorruptObject:
            owner = None
        if owner != self.object_id:
            raise CorruptMetadata(
                f"the row of segment {self.object_id} names the object {self.object_key[:500]!r}, which is another's: "
                "nothing is deleted. Find out who wrote that row, and remove it"
            )
        return self.object_key


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredObject:
    """An object that is no longer in the log and still in the store, until its grace ends and nothing pins it.
    `purge_after_ms` is by the database's clock."""

    base_offset: int
    end_offset: int
    size_bytes: int
    purge_after_ms: int
    is_pinned: bool


def plan(conn: Connection, wanted: SegmentPlan) -> SegmentRow:
    """The planned row, which precedes the object. Repeating the same plan answers with the row that is there.

    Raises `FencedLeaderEpoch` when another leader took over, `LostRace` when the offsets are covered by
    committed segments already, `UnknownTopicOrPartition`, `CorruptMetadata` (R1).
    """
    number = take_number(conn)
    known = _find(conn, wanted.object_id)
    if known is not None:
        return known
    where = partitions.load(conn, wanted.topic_id, wanted.partition)
    partitions.require_leader_epoch(where, wanted.leader_epoch)
    if wanted.end_offset <= where.cold_end_offset:
        raise LostRace(
            f"offsets {wanted.base_offset} to {wanted.end_offset} of partition {wanted.partition} of topic "
            f"{wanted.topic_id} need no upload: everything below {where.cold_end_offset} is committed or deleted"
        )
    conn.execute(insert(segment).values(**asdict(wanted), state=SegmentState.PLANNED, change_number=number))
    return load(conn, wanted.object_id)


def commit(
    conn: Connection, object_id: UUID, *, leader_epoch: int, now_ms: int, size_bytes: int | None = None
) -> SegmentRow:
    """The committed row, after its object was put and checked (T3). `size_bytes` corrects the plan's.

    In one transaction: the partition's `cold_end_offset` goes from the segment's base to its end, if it
    still is that base and `leader_epoch` is the partition's; and the row goes from planned to committed.
    Where `log_start_offset` stands inside the segment and nothing below it is committed, the base may lie
    below `cold_end_offset`. Repeating a commit that has happened answers with its row, so an unknown outcome
    is settled by asking again; that row is retired or purged when retention was quick.

    Raises `FencedLeaderEpoch`, or `LostRace` when somebody else committed first or the row was abandoned:
    the object is an orphan then. `Invalid` for an unknown `object_id`.
    """
    number = take_number(conn)
    row = load(conn, object_id)
    if row.committed_at_ms is not None and row.leader_epoch == leader_epoch:
        return row
    parameters = {
        "of_topic": row.topic_id,
        "number": row.partition,
        "its_base_offset": row.base_offset,
        "its_end_offset": row.end_offset,
        "its_leader_epoch": leader_epoch,
        "change": number,
    }
    if conn.execute(_ADVANCE_COLD_END, parameters).rowcount == 0:
        where = partitions.load(conn, row.topic_id, row.partition)
        partitions.require_leader_epoch(where, leader_epoch)
        raise LostRace(
            f"{_name(row)} does not follow what is committed, which ends at {where.cold_end_offset}: plan again "
            "from there"
        )
    crash_point("meta.segments.commit.half")
    changes = {
        "committed_at_ms": now_ms,
        "size_bytes": row.size_bytes if size_bytes is None else size_bytes,
        "change_number": number,
    }
    statement = _transition(SegmentEvent.COMMIT, changes).where(
        segment.c.object_id == object_id,
        segment.c.leader_epoch == leader_epoch,
        segment.c.abandoned_at_ms.is_(None),
    )
    if conn.execute(statement).rowcount == 0:
        reason = "was abandoned" if row.abandoned_at_ms is not None else f"is {row.state}"
        raise LostRace(
            f"{_name(row)} of leader epoch {row.leader_epoch} {reason} and cannot be committed at epoch "
            f"{leader_epoch}: plan and upload it again under a new object id"
        )
    return load(conn, object_id)


def retire_before(
    conn: Connection,
    topic_id: UUID,
    number: int,
    *,
    leader_epoch: int,
    new_log_start_offset: int,
    now_ms: int,
    purge_after_ms: int,
    is_explicit: bool = False,
) -> tuple[SegmentRow, ...]:
    """The rows retired: the committed ones wholly below `new_log_start_offset`, which the partition moves to (T6).

    Their objects may be deleted from `purge_after_ms` (a time) on. `log_start_offset` never goes back; a
    lower one retires what lies below it all the same. Raises as `partitions.raise_log_start_offset`, and `Pinned`
    where a snapshot holds what would go, or a pin does unless somebody `is_explicit` about it.
    """
    change_number = take_number(conn)
    pins.refuse_retirement(conn, topic_id, number, new_log_start_offset=new_log_start_offset, is_explicit=is_explicit)
    partitions.raise_log_start_offset(
        conn,
        topic_id,
        number,
        leader_epoch=leader_epoch,
        new_log_start_offset=new_log_start_offset,
        change_number=change_number,
    )
    crash_point("meta.segments.retire.half")
    changes = {"retired_at_ms": now_ms, "purge_after_ms": purge_after_ms, "change_number": change_number}
    statement = _transition(SegmentEvent.RETIRE, changes).where(
        *_of_partition(topic_id, number), segment.c.end_offset <= new_log_start_offset
    )
    return _in_order(_rows(conn, statement.returning(segment)))


def retire_topic(conn: Connection, topic_id: UUID, *, now_ms: int, purge_after_ms: int, change_number: int) -> None:
    """Retires every committed row of a topic: a part of its deletion, under the deletion's change number."""
    changes = {"retired_at_ms": now_ms, "purge_after_ms": purge_after_ms, "change_number": change_number}
    conn.execute(_transition(SegmentEvent.RETIRE, changes).where(segment.c.topic_id == topic_id))


def mark_purged(conn: Connection, object_ids: Sequence[UUID], *, now_ms: int) -> int:
    """How many retired rows became purged, after their objects were deleted. Rows in other states stay as they are."""
    changes = {"purged_at_ms": now_ms, "change_number": take_number(conn)}
    return conn.execute(_transition(SegmentEvent.PURGE, changes).where(segment.c.object_id.in_(object_ids))).rowcount


def abandon(conn: Connection, object_ids: Sequence[UUID], *, now_ms: int) -> tuple[SegmentRow, ...]:
    """The planned rows among `object_ids`, none of which can be committed any more: their objects may be deleted.

    Rows in other states are not in the answer, so their objects must stay. An abandoned row stays planned
    until `fail_planned`; abandoning it again is harmless.
    """
    number = take_number(conn)
    ours = and_(segment.c.object_id.in_(object_ids), segment.c.state == SegmentState.PLANNED)
    conn.execute(
        update(segment)
        .where(ours, segment.c.abandoned_at_ms.is_(None))
        .values(abandoned_at_ms=now_ms, change_number=number)
    )
    return _in_order(_rows(conn, select(segment).where(ours)))


def fail_planned(conn: Connection, object_ids: Sequence[UUID], *, now_ms: int) -> int:
    """How many abandoned rows became purged, after whatever the store held of them was deleted.

    A planned row that was not abandoned stays as it is: see the module's text.
    """
    changes = {"purged_at_ms": now_ms, "change_number": take_number(conn)}
    statement = _transition(SegmentEvent.FAIL, changes).where(
        segment.c.object_id.in_(object_ids), segment.c.abandoned_at_ms.is_not(None)
    )
    return conn.execute(statement).rowcount


def forget_purged(conn: Connection, *, purged_before_ms: int, limit: int = 1_000) -> int:
    """How many purged rows were deleted: the oldest ones, of objects gone before that time."""
    take_number(conn)
    oldest = (
        select(segment.c.object_id)
        .where(segment.c.state == SegmentState.PURGED, segment.c.purged_at_ms < purged_before_ms)
        .order_by(segment.c.purged_at_ms)
        .limit(limit)
    )
    return conn.execute(delete(segment).where(segment.c.object_id.in_(oldest))).rowcount


def load(conn: Connection, object_id: UUID) -> SegmentRow:
    """One row. Raises `Invalid` when the metadata store has none of this id."""
    row = _find(conn, object_id)
    if row is None:
        raise Invalid(f"no segment with the object id {object_id} was ever planned: plan it before its upload")
    return row


def load_some(conn: Connection, object_ids: Collection[UUID]) -> dict[UUID, SegmentRow]:
    """The rows of at most 1,000 ids, by id, whatever has become of them; those without one are not among them."""
    assert len(object_ids) <= MAX_IDS, len(object_ids)
    if not object_ids:
        return {}
    return {row.object_id: row for row in _rows(conn, select(segment).where(segment.c.object_id.in_(object_ids)))}


def list_committed(
    conn: Connection, topic_id: UUID, number: int, *, from_offset: int = 0, limit: int | None = None
) -> tuple[SegmentRow, ...]:
    """The committed rows of a partition that hold `from_offset` or later ones, by base offset."""
    statement = (
        select(segment)
        .where(
            *_of_partition(topic_id, number),
            segment.c.state == SegmentState.COMMITTED,
            segment.c.end_offset > from_offset,
        )
        .order_by(segment.c.base_offset)
        .limit(limit)
    )
    return _rows(conn, statement)


def load_committed(conn: Connection, *, replica: int) -> tuple[SegmentRow, ...]:
    """The committed rows of all partitions that broker `replica` holds, by partition and base offset: for its start."""
    statement = (
        select(segment)
        .join(partition, _its_partition())
        .where(partitions.is_held_by(conn, replica), segment.c.state == SegmentState.COMMITTED)
        .order_by(segment.c.topic_id, segment.c.partition, segment.c.base_offset)
    )
    return _rows(conn, statement)


def newest_ever_committed(conn: Connection, topic_id: UUID, number: int) -> SegmentRow | None:
    """The row that ended last of those ever committed and not yet forgotten: its root hash begins the next link."""
    statement = (
        select(segment)
        .where(*_of_partition(topic_id, number), segment.c.committed_at_ms.is_not(None))
        .order_by(segment.c.end_offset.desc(), segment.c.base_offset.desc())
        .limit(1)
    )
    return next(iter(_rows(conn, statement)), None)


def list_planned(conn: Connection, *, owner: int, planned_before_ms: int, limit: int = 1_000) -> tuple[SegmentRow, ...]:
    """The planned rows, abandoned ones included, of one broker from before that time: what its restart has to sweep."""
    return _planned(conn, limit, segment.c.owner == owner, segment.c.planned_at_ms < planned_before_ms)


def list_overdue_planned(
    conn: Connection, *, planned_before_ms: int, limit: int = 1_000, except_owners: Collection[int] = ()
) -> tuple[SegmentRow, ...]:
    """The planned rows, abandoned ones included, of other brokers from before that time: what the controller sweeps.

    A broker that still uploads one learns of it when its commit is refused, and plans again.
    """
    return _planned(
        conn,
        limit,
        segment.c.planned_at_ms < planned_before_ms,
        _OF_OTHERS,
        parameters={"except_owners": list(except_owners)},
    )


def list_purgeable(
    conn: Connection, *, now_ms: int, limit: int = 1_000, leader: int | None = None, left_out: Collection[UUID] = ()
) -> tuple[SegmentRow, ...]:
    """The retired rows whose grace is over and that nothing pins, the oldest first, without those `left_out`; with
    `leader` only of partitions that it leads."""
    parameters = {"now_ms": now_ms, "most": limit, "left_out": [*left_out]}
    if leader is None:
        return _rows(conn, _purgeable(conn.dialect.name), parameters)
    return _rows(conn, _purgeable_of_leader(conn.dialect.name), {**parameters, "its_leader": leader})


def list_purgeable_of_deleted_topics(
    conn: Connection, *, now_ms: int, limit: int = 1_000, left_out: Collection[UUID] = ()
) -> tuple[SegmentRow, ...]:
    """As `list_purgeable`, of topics that are deleted: nobody leads their partitions, so the controller purges them."""
    parameters = {"now_ms": now_ms, "most": limit, "left_out": [*left_out]}
    return _rows(conn, _purgeable_of_deleted_topics(conn.dialect.name), parameters)


def list_retired(conn: Connection, topic_id: UUID, number: int, *, limit: int) -> tuple[RetiredObject, ...]:
    """Up to `limit` retired objects of a partition, those that go first before the others: for people."""
    parameters = {"of_topic": topic_id, "number": number, "most": limit}
    rows = conn.execute(_retired(conn.dialect.name), parameters)
    return tuple(RetiredObject(**{**row, "is_pinned": bool(row["is_pinned"])}) for row in rows.mappings())


def changed_since(conn: Connection, number: int) -> tuple[SegmentRow, ...]:
    """The rows whose `change_number` is above `number`, in that order."""
    return _rows(conn, _CHANGED, {"number": number})


def _advance_cold_end() -> Update:
    topic_id: ColumnElement[UUID] = bindparam("of_topic")
    number: ColumnElement[int] = bindparam("number")
    base_offset: ColumnElement[int] = bindparam("its_base_offset")
    end_offset: ColumnElement[int] = bindparam("its_end_offset")
    follows = partition.c.cold_end_offset == base_offset
    # DeleteRecords took `log_start_offset`, and `cold_end_offset` with it, into this segment.
    earlier = exists().where(
        segment.c.topic_id == topic_id,
        segment.c.partition == number,
        segment.c.state == SegmentState.COMMITTED,
        segment.c.end_offset > base_offset,
    )
    holds_log_start = and_(
        partition.c.cold_end_offset == partition.c.log_start_offset,
        partition.c.cold_end_offset > base_offset,
        partition.c.cold_end_offset < end_offset,
        ~earlier,
    )
    return (
        update(partition)
        .where(
            partition.c.topic_id == topic_id,
            partition.c.partition == number,
            partition.c.leader_epoch == bindparam("its_leader_epoch"),
            follows | holds_log_start,
        )
        .values(cold_end_offset=end_offset, change_number=bindparam("change"))
    )


_ADVANCE_COLD_END = _advance_cold_end()


def _transition(event: SegmentEvent, changes: dict[str, Any]) -> Update:
    """The conditional update of one line of the transition table."""
    transition = TRANSITIONS[event]
    return update(segment).where(segment.c.state == transition.before).values(state=transition.after, **changes)


def _of_partition(topic_id: UUID, number: int) -> tuple[ColumnElement[bool], ...]:
    return segment.c.topic_id == topic_id, segment.c.partition == number


def _its_partition() -> ColumnElement[bool]:
    return and_(partition.c.topic_id == segment.c.topic_id, partition.c.partition == segment.c.partition)


# Sweeps and uploads make these all the time, and each would be a cycle for the garbage collector: they are made once.
@cache
def _purgeable(dialect: str) -> Select[Any]:
    is_due = segment.c.purge_after_ms <= bindparam("now_ms")
    return (
        select(segment)
        .where(segment.c.state == SegmentState.RETIRED, is_due, ~pins.holds_object_in(dialect))
        .where(segment.c.object_id.not_in(bindparam("left_out", expanding=True)))
        .order_by(segment.c.purge_after_ms, segment.c.object_id)
        .limit(bindparam("most"))
    )


@cache
def _purgeable_of_leader(dialect: str) -> Select[Any]:
    # Not by a join: SQLite would begin with the partitions, and read all of their rows.
    return _purgeable(dialect).where(exists().where(_its_partition(), partition.c.leader == bindparam("its_leader")))


@cache
def _purgeable_of_deleted_topics(dialect: str) -> Select[Any]:
    of_topics = _purgeable(dialect).join(topic, topic.c.topic_id == segment.c.topic_id)
    return of_topics.where(topic.c.deleted_at_ms.is_not(None))


@cache
def _retired(dialect: str) -> Select[Any]:
    return (
        select(
            segment.c.base_offset,
            segment.c.end_offset,
            segment.c.size_bytes,
            segment.c.purge_after_ms,
            pins.holds_object_in(dialect).label("is_pinned"),
        )
        .where(
            segment.c.topic_id == bindparam("of_topic"),
            segment.c.partition == bindparam("number"),
            segment.c.state == SegmentState.RETIRED,
        )
        .order_by(segment.c.purge_after_ms, segment.c.base_offset)
        .limit(bindparam("most"))
    )


def _planned(
    conn: Connection, limit: int, *conditions: ColumnElement[bool], parameters: Mapping[str, Any] | None = None
) -> tuple[SegmentRow, ...]:
    statement = (
        select(segment)
        .where(segment.c.state == SegmentState.PLANNED, *conditions)
        .order_by(segment.c.deadline_ms, segment.c.object_id)
        .limit(limit)
    )
    return _rows(conn, statement, parameters)


def _find(conn: Connection, object_id: UUID) -> SegmentRow | None:
    return next(iter(_rows(conn, _ONE, {"its_id": object_id})), None)


_ONE = select(segment).where(segment.c.object_id == bindparam("its_id"))
# Made once: a list that is put into a statement is a circle for the collector.
_OF_OTHERS = segment.c.owner.not_in(bindparam("except_owners", expanding=True))
_CHANGED = (
    select(segment)
    .where(segment.c.change_number > bindparam("number"))
    .order_by(segment.c.change_number, segment.c.base_offset)
)


def _rows(conn: Connection, statement: Any, parameters: Mapping[str, Any] | None = None) -> tuple[SegmentRow, ...]:
    rows = conn.execute(statement, parameters).mappings()
    return tuple(SegmentRow(**{**row, "state": SegmentState(row["state"])}) for row in rows)


def _in_order(rows: tuple[SegmentRow, ...]) -> tuple[SegmentRow, ...]:
    return tuple(sorted(rows, key=lambda row: (row.topic_id, row.partition, row.base_offset)))


def _name(row: SegmentRow) -> str:
    return (
        f"segment {row.object_id} (offsets {row.base_offset} to {row.end_offset} of partition {row.partition} of "
        f"topic {row.topic_id})"
    )
