"""Pins and snapshots as the cluster's checkpoint has them: offsets that retention must leave, also after a restore.

Owns their values and their JSON, a member `pins` that readers can do without (see `checkpoint`). Ranges are lists of
three numbers, because there may be 200,000 of them. Must never know when one ends: only what it was told of that.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from tiered.formats.json_fields import Fields

_MAX_NAME_CHARS: Final = 249


class PinnedOffsets(NamedTuple):
    """Offsets of one partition from `start_offset` up to, and without, `end_offset`."""

    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinEntry:
    """A pin, or with a `name` a snapshot; without `expires_at_ms` it is for good. A pin may have been renewed since."""

    pin_id: UUID
    name: str | None = None
    topic_id: UUID
    owner: str
    created_at_ms: int
    expires_at_ms: int | None = None
    ranges: tuple[PinnedOffsets, ...]


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
            ranges=tuple(PinnedOffsets(*its) for its in each.rows_of_integers("ranges", width=3)),
        )
        for each in fields.objects(name)
    )
