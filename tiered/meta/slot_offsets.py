"""All that the groups of one coordinator slot have committed: what goes into the bucket's checkpoint.

Owns that one question, and its bound. Must never write.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, select

from tiered.formats.group_checkpoint import GroupEntry, StoredOffset
from tiered.meta.group_offsets import metadata_of
from tiered.meta.tables import consumer_group, group_offset, topic

MAX_OFFSETS_A_SLOT = 100_000
"""About 12 MB of JSON: a reader refuses larger objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOffsets:
    """The slot's groups by id, and how many more there are after them."""

    groups: tuple[GroupEntry, ...]
    left_out: int


def occupied(conn: Connection) -> frozenset[int]:
    """The slots that have a group."""
    return frozenset(conn.execute(select(consumer_group.c.slot).distinct()).scalars())


def load(
    conn: Connection, *, slot: int, limit: int, after: str = "", most_groups: int = MAX_OFFSETS_A_SLOT
) -> SlotOffsets:
    """Groups whose ids come after `after`, `most_groups` at the most, with up to `limit` offsets together. Offsets of
    topics that are deleted do not count."""
    of_slot = {"of_slot": slot, "after": after}
    rows = conn.execute(_GROUPS, {**of_slot, "most": min(limit, most_groups)}).all()
    if not rows:
        return SlotOffsets(groups=(), left_out=0)
    of_group: dict[str, list[StoredOffset]] = {row.group_id: [] for row in rows}
    offsets = conn.execute(_OFFSETS, {**of_slot, "last": rows[-1].group_id, "most": limit + 1}).all()
    for row in offsets[:limit]:
        if row.group_id in of_group:
            of_group[row.group_id].append(
                StoredOffset(
                    topic_id=row.topic_id,
                    partition=row.partition,
                    offset=row.committed_offset,
                    leader_epoch=row.leader_epoch,
                    metadata=metadata_of(row.metadata),
                    committed_at_ms=row.committed_at_ms,
                )
            )
    groups = tuple(
        GroupEntry(
            group_id=row.group_id,
            kind=row.kind,
            protocol_type=row.protocol_type,
            generation=row.generation,
            offsets=tuple(of_group[row.group_id]),
        )
        for row in rows
    )
    if len(offsets) > limit:  # Half a group is worse than none, and those after it would come before it.
        groups = tuple(group for group in groups if group.group_id < offsets[limit].group_id)
    return SlotOffsets(groups=groups, left_out=conn.execute(_COUNT, of_slot).scalar_one() - len(groups))


# Made once: a statement costs more to make than to run here, and the parts of a slot are many.
_OF_SLOT = (consumer_group.c.slot == bindparam("of_slot"), consumer_group.c.group_id > bindparam("after"))
_GROUPS = (
    select(*(consumer_group.c[name] for name in ("group_id", "kind", "protocol_type", "generation")))
    .where(*_OF_SLOT)
    .order_by(consumer_group.c.group_id)
    .limit(bindparam("most"))
)
_OFFSETS = (
    select(*(column for column in group_offset.c if column.name not in ("slot_epoch", "commit_number")))
    .join(consumer_group, consumer_group.c.group_id == group_offset.c.group_id)
    .join(topic, topic.c.topic_id == group_offset.c.topic_id)
    .where(*_OF_SLOT, consumer_group.c.group_id <= bindparam("last"), topic.c.deleted_at_ms.is_(None))
    .order_by(group_offset.c.group_id, group_offset.c.topic_id, group_offset.c.partition)
    .limit(bindparam("most"))
)
_COUNT = select(func.count()).select_from(consumer_group).where(*_OF_SLOT)
