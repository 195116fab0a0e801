"""When the slots of groups are spread over the brokers anew: the controller's part in the coordinators' work.

Owns the watch over who is in service, and the one task that moves slots. Must never decide which slot goes where
(`rules.groups.coordinator_slot` does), nor hold up the controller: moving a slot waits for writes to it.

Slots that nobody holds are given away at once. For balance alone, those whose groups have no members move at once
too; the others when the same brokers have been in service for `tiered.group.balance.delay.ms`, because their
members lose their coordinator: in a rolling restart, whose brokers come back one by one, they lose it once for each
broker that stops, and not once more for each that starts.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tiered.broker.context import BrokerContext
from tiered.broker.view.image import ClusterImage
from tiered.errors import TieredError
from tiered.meta import coordinator_slots
from tiered.meta.coordinator_slots import Moved
from tiered.rules.groups.coordinator_slot import assigned

log = logging.getLogger(__name__)

LOOK_AGAIN_MS = 10_000.0
"""Groups with members lose their last one, and nobody is told: so often SQL is asked for slots that may move now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The facts that decide whether slots should move."""

    live: Mapping[int, int]
    holders: Mapping[int, int | None]
    is_settled: bool


class SlotBalance:
    """`look` is called again and again on the broker that is the controller, and on no other."""

    def __init__(self, *, context: BrokerContext, image: ClusterImage) -> None:
        self._context = context
        self._image = image
        self._live: Mapping[int, int] = {}
        self._live_since_ms = 0.0
        self._in_vain: _Seen | None = None
        self._look_again_ms = 0.0
        self._may_wait = False
        self._due = asyncio.Event()
        self._is_settled = False

    def look(self) -> None:
        """Sees to it that slots move if some should. Costs next to nothing, and asks SQL nothing, if none should."""
        now_ms, settings = self._context.clock.monotonic_ms(), self._context.settings
        live = {row.broker_id: row.broker_epoch for row in self._image.live()}
        if live != self._live:
            self._live, self._live_since_ms = live, now_ms
        self._is_settled = now_ms - self._live_since_ms >= settings.groups.tiered_group_balance_delay_ms
        seen = _Seen(
            live=live,
            holders=coordinator_slots.holders(self._image.slots, live, settings.groups.offsets_topic_num_partitions),
            is_settled=self._is_settled,
        )
        if not assigned(seen.holders, live):
            return
        if seen == self._in_vain and now_ms < self._look_again_ms:
            return
        self._in_vain, self._look_again_ms = seen, now_ms + LOOK_AGAIN_MS
        self._due.set()

    async def move_for_ever(self) -> None:
        """Moves slots whenever `look` found that some should."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                moved = await self._move()
            except TieredError as error:
                self._in_vain = None
                log.warning("slots of groups were not moved, the controller looks again: %s", error)
                continue
            except Exception:
                # A tick boundary: the controller's next look begins anew.
                log.exception("moving slots of groups failed in an unforeseen way")
                continue
            # A coordinator that hangs in a write delays its own slots alone; then it is waited for.
            self._may_wait = moved.has_waiting
            if moved.has_waiting:
                self._in_vain = None
            if moved.rows:
                log.info("%d slots of groups have other coordinators now", len(moved.rows))

    async def _move(self) -> Moved:
        may_disturb, may_wait = self._is_settled, self._may_wait
        return await self._context.database.run(
            lambda conn: coordinator_slots.balance(
                conn,
                slot_count=self._context.settings.groups.offsets_topic_num_partitions,
                now_ms=self._context.clock.now_ms(),
                may_disturb=may_disturb,
                may_wait=may_wait,
            )
        )
