"""Pins and snapshots as people and readers ask for them: what they may hold, and for how long.

Owns the bounds of a request: names, times, and that nothing is held which is not committed yet. SQL grants them
(`meta.pins`), in one order with everything that deletes. Must never keep one in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topic
from tiered.errors import InvalidRequest, OffsetOutOfRange
from tiered.ids import is_legal_topic_name
from tiered.meta import pins
from tiered.meta.pins import PinRow, WantedRange, no_pin, no_snapshot
from tiered.runtime import new_uuid

__all__ = ["MAX_SNAPSHOT_TTL_MS", "AskedRange", "PinRow", "Pins", "no_pin", "no_snapshot"]

DEFAULT_TTL_MS = 300_000
MAX_SNAPSHOT_TTL_MS = 100 * 366 * 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRange:
    """A part of one partition; None is where its log starts, and what is committed now."""

    partition: int
    start_offset: int | None = None
    end_offset: int | None = None


class Pins:
    """Takes, renews and gives up pins and snapshots."""

    def __init__(self, *, context: BrokerContext) -> None:
        self._context = context

    async def take(
        self,
        topic: Topic,
        *,
        name: str | None = None,
        owner: str,
        ttl_ms: int | None,
        asked: tuple[AskedRange, ...] | None,
        high_watermarks: Mapping[int, int],
    ) -> PinRow:
        """A new pin of `asked`, or of all that the topic's log holds. `high_watermarks` are those of all partitions.

        With a name it is a snapshot, which holds until it is deleted or for `ttl_ms`. Raises InvalidRequest,
        OffsetOutOfRange, UnknownTopicOrPartition, SnapshotExists, Throttled and MetadataUnavailable.
        """
        tiering = self._context.settings.tiering
        if name is not None and not is_legal_topic_name(name):
            raise InvalidRequest(f"{name[:80]!r} is no snapshot name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
        if not owner.isprintable():
            raise InvalidRequest("owner has characters that cannot be printed")
        holds_ms = self._allowed_ttl_ms(ttl_ms) if name is None else ttl_ms
        max_pins = tiering.tiered_pins_max if name is None else tiering.tiered_snapshots_max
        if topic.is_internal:
            raise InvalidRequest(f"topic {topic.name} is internal and has no log: there is nothing to hold")
        ranges = [
            _committed(topic, each, high_watermarks)
            for each in asked or [AskedRange(partition=number) for number in sorted(high_watermarks)]
        ]
        pin_id = new_uuid()
        return await self._context.database.run(
            lambda conn: pins.take(
                conn,
                pin_id=pin_id,
                name=name,
                topic_id=topic.topic_id,
                owner=owner,
                ttl_ms=holds_ms,
                ranges=ranges,
                max_pins=max_pins,
            )
        )

    async def renew(self, pin_id: UUID, *, ttl_ms: int | None) -> PinRow:
        """The pin, holding for `ttl_ms` from now. Raises PinNotFound, InvalidRequest and MetadataUnavailable."""
        wanted_ms = self._allowed_ttl_ms(ttl_ms)
        longest_ms = self._context.settings.tiering.tiered_pin_max_lifetime_ms
        return await self._context.database.run(
            lambda conn: pins.renew(conn, pin_id, ttl_ms=wanted_ms, max_lifetime_ms=longest_ms)
        )

    async def release(self, pin_id: UUID) -> None:
        """Gives the pin up. Raises PinNotFound and MetadataUnavailable."""
        await self._context.database.run(lambda conn: pins.release(conn, pin_id))

    async def delete_snapshot(self, name: str) -> None:
        """Gives the snapshot up. Raises PinNotFound and MetadataUnavailable."""
        await self._context.database.run(lambda conn: pins.delete_snapshot(conn, name))

    async def load(self, pin_id: UUID) -> PinRow:
        """One pin. Raises PinNotFound and MetadataUnavailable."""
        return await self._context.database.read(lambda conn: pins.load(conn, pin_id))

    async def load_snapshot(self, name: str) -> PinRow:
        """One snapshot. Raises PinNotFound and MetadataUnavailable."""
        return await self._context.database.read(lambda conn: pins.load_snapshot(conn, name))

    async def list_live(self, *, named: bool, topic: Topic | None) -> tuple[PinRow, ...]:
        """All snapshots, or all pins; of one topic where that is given. Raises MetadataUnavailable."""
        topic_id = None if topic is None else topic.topic_id
        return await self._context.database.read(lambda conn: pins.list_live(conn, named=named, topic_id=topic_id))

    def _allowed_ttl_ms(self, ttl_ms: int | None) -> int:
        settings = self._context.settings
        longest_ms = min(settings.tiering.tiered_pin_max_ttl_ms, settings.tiering.tiered_pin_max_lifetime_ms)
        if ttl_ms is None:
            return min(DEFAULT_TTL_MS, longest_ms)
        if ttl_ms > longest_ms:
            raise InvalidRequest(
                f"ttl_ms is {ttl_ms}, and tiered.pin.max.ttl.ms allows {longest_ms}: ask for less and renew it in "
                "time, or make a snapshot"
            )
        return ttl_ms


def _committed(topic: Topic, asked: AskedRange, high_watermarks: Mapping[int, int]) -> WantedRange:
    """The range with its end; raises where that lies beyond what is committed, or before its start."""
    high_watermark = high_watermarks.get(asked.partition)
    if high_watermark is None:
        topic.partition(asked.partition)  # Raises that there is none.
        raise AssertionError(f"nobody told the high watermark of {topic.name}-{asked.partition}")
    end_offset = high_watermark if asked.end_offset is None else asked.end_offset
    start_offset = 0 if asked.start_offset is None else asked.start_offset
    if end_offset > high_watermark or (asked.start_offset is not None and start_offset > end_offset):
        raise OffsetOutOfRange(
            f"{topic.name}-{asked.partition}: offsets {start_offset} to {end_offset} cannot be pinned; what is "
            f"committed ends at {high_watermark}"
        )
    return WantedRange(partition=asked.partition, start_offset=asked.start_offset, end_offset=end_offset)
