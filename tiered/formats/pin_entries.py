"""Pins and snapshots as the cluster's checkpoint has them: what retention must leave, also after a restore.

Owns their values and their JSON, a member `pins` that readers can do without (see `checkpoint`). Ranges are lists of
three numbers, because there may be 200,000 of them. Must never know when one ends: only what it was told of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tiered.formats.json_fields import Fields

_MAX_NAME_CHARS: Final = 249


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedOffsets:
    """Offsets of one partition from `start_offset` up to, and without, `end_offset`."""

    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinEntry:
    """A pin, or with a `name` a snapshot; without `expires_at_ms` it is for good. A pin may have been renewed since."""

    pin_id: UUID
    name: str | None
    topic_id: UUID
    owner: str
    created_at_ms: int
    expires_at_ms: int | None
    ranges: tuple[PinnedOffsets, ...]


def pins_as_json(entries: Sequence[PinEntry]) -> list[dict[str, Any]]:
    """The member; what is None is left out."""
    return [
        {
            "pin_id": str(each.pin_id),
            "topic_id": str(each.topic_id),
            "owner": each.owner,
            "created_at_ms": each.created_at_ms,
            "ranges": [[its.partition, its.start_offset, its.end_offset] for its in each.ranges],
            **({} if each.name is None else {"name": each.name}),
            **({} if each.expires_at_ms is None else {"expires_at_ms": each.expires_at_ms}),
        }
        for each in entries
    ]


def pins_from(fields: Fields, name: str) -> tuple[PinEntry, ...]:
    """The entries in that member. Raises CorruptObject."""
    return tuple(
        PinEntry(
            pin_id=each.uuid("pin_id"),
            name=each.topic("name") if "name" in each else None,
            topic_id=each.uuid("topic_id"),
            owner=each.text("owner", max_chars=_MAX_NAME_CHARS),
            created_at_ms=each.integer("created_at_ms"),
            expires_at_ms=each.integer("expires_at_ms") if "expires_at_ms" in each else None,
            ranges=tuple(
                PinnedOffsets(partition=partition, start_offset=start_offset, end_offset=end_offset)
                for partition, start_offset, end_offset in each.rows_of_integers("ranges", width=3)
            ),
        )
        for each in fields.objects(name)
    )
