"""Loads the groups of slots that came to this broker, so that members who do not come along are missed.

Owns which slots are not loaded yet. A group that is asked for does not wait for its turn here. Must never hold up the
broker's start, nor one group for another: what cannot be loaded now is tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.groups.slots import HeldSlots
from tiered.errors import TieredError
from tiered.meta import groups
from tiered.runtime import QuietFailures

log = logging.getLogger(__name__)

GROUPS_AT_ONCE = 500
RETRY_MS = 1_000.0


class SlotLoading:
    """`load(group_id)` reads a group from SQL unless it is in memory."""

    def __init__(self, *, context: BrokerContext, slots: HeldSlots, load: Callable[[str], Awaitable[object]]) -> None:
        self._context = context
        self._slots = slots
        self._load = load
        self._pending: dict[int, int | None] = {}
        """The slots whose groups are not all loaded yet, with their tenures."""
        self._due = asyncio.Event()
        self._failures = QuietFailures(
            log, "groups of slots that came cannot be loaded yet: %(error)s", "groups of slots are loaded again"
        )

    def is_pending(self, slot: int) -> bool:
        """Whether groups of the slot may have members in SQL that nobody has loaded yet."""
        return slot in self._pending

    def slots_gained(self, slots: Iterable[int]) -> None:
        """Their groups had another coordinator, or none, until now."""
        self._pending |= {slot: self._slots.tenure(slot) for slot in slots}
        self._due.set()

    def slots_lost(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._pending.pop(slot, None)

    async def load_for_ever(self) -> None:
        """Loads what is pending, again and again until SQL has given it."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._load_pending()
                self._failures.worked()
            except TieredError as error:
                self._failures.failed(error)
                asyncio.get_running_loop().call_later(RETRY_MS / 1000.0, self._due.set)

    async def _load_pending(self) -> None:
        """Raises, in the end, what one of the groups met."""
        began = dict(self._pending)
        failure: TieredError | None = None
        after = ""
        while began and (found := await self._context.database.read(partial(_some, slots=began.keys(), after=after))):
            for group_id in found:
                try:
                    await self._load(group_id)
                except TieredError as error:
                    failure = error
                except Exception:
                    # A tick boundary: one group that cannot be read must not keep others from it.
                    log.exception("group %s could not be loaded in an unforeseen way", group_id)
            after = found[-1]
        if failure is not None:
            raise failure
        for slot, tenure in began.items():
            if slot in self._pending and self._pending[slot] == tenure:
                del self._pending[slot]


def _some(conn: Connection, *, slots: Collection[int], after: str) -> tuple[str, ...]:
    return groups.with_stored_members(conn, after=after, limit=GROUPS_AT_ONCE, slots=slots)
