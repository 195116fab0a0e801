"""Changes of the metadata store that people ask for: one at a time, each to its end, and none left in the air.

Owns the turn, and the knowledge that SQL may hold something this broker does not know yet: a COMMIT whose
answer never came. Must never decide what a change is: `admin` does; nor apply one: the feed does.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from tiered.account import OwnersTurns, current_owner
from tiered.broker.view.feed import ChangeFeed
from tiered.errors import MetadataOutcomeUnknown, ShuttingDown
from tiered.meta import cluster

log = logging.getLogger(__name__)
T = TypeVar("T")


class Changes:
    """Runs changes as tasks of the broker's group: a client that goes away does not leave half of one behind."""

    def __init__(self, *, feed: ChangeFeed) -> None:
        self._feed = feed
        self._group: asyncio.TaskGroup | None = None
        self._turn = asyncio.Lock()
        self._of_owners = OwnersTurns()
        self.outcome_unknown = False
        """SQL may hold more than this broker knows: the next change, or `settle`, looks first."""

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    async def run(self, change: Callable[[], Awaitable[T]]) -> T:
        """The outcome of `change`, once all changes before it have ended. Cancelling this wait does not cancel a change
        that has its place among them. Raises MetadataUnavailable when an unknown outcome cannot be settled first.

        Each owner has one change there at a time. Further ones wait in their requests and go with them: who asks for
        thousands and hangs up would otherwise have all of them made before anybody else's.
        """
        return await self._of_owners.to_its_end(current_owner(), partial(self._to_its_end, change))

    async def _to_its_end(self, change: Callable[[], Awaitable[T]]) -> T:
        # The future gets no local name: its exception's traceback holds this frame, so the two would hold each other.
        return await asyncio.shield(self._begun(change))

    def _begun(self, change: Callable[[], Awaitable[T]]) -> "asyncio.Future[T]":
        if self._group is None:
            raise ShuttingDown("the broker is not up; ask again")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        result.add_done_callback(_retrieve)
        work = self._carry_out(change, result)
        try:
            self._group.create_task(work)
        except RuntimeError:  # One of the group's tasks has failed: it takes no further one.
            work.close()
            raise ShuttingDown("the broker is stopping; ask again after the restart") from None
        return result

    def doubt(self) -> None:
        """The outcome of a transaction that others began is not known."""
        self.outcome_unknown = True

    async def settle(self) -> None:
        """Takes over what SQL holds, if that is in doubt. Raises MetadataUnavailable while SQL is away."""
        if self.outcome_unknown:
            await self.run(_nothing)

    async def _carry_out(self, change: Callable[[], Awaitable[T]], result: "asyncio.Future[T]") -> None:
        try:
            async with self._turn:
                if self.outcome_unknown:
                    await self._take_over()
                value = await change()
        except asyncio.CancelledError:
            result.set_exception(ShuttingDown("the broker is stopping; ask again after the restart"))
            raise
        except Exception as error:  # noqa: BLE001 - given to the waiter as it is, not swallowed
            self.outcome_unknown = self.outcome_unknown or isinstance(error, MetadataOutcomeUnknown)
            result.set_exception(error)
        else:
            result.set_result(value)
        finally:
            del result  # As in `run`.

    async def _take_over(self) -> None:
        # Whatever may still be committed holds the feed's lock. Behind it the outcome is known; a read alone could
        # come before a COMMIT that is under way, and would take its change for one that never happened.
        await self._feed.commit(cluster.take_number)
        self.outcome_unknown = False
        log.info("settled an unknown outcome: this broker knows what SQL has")


def _retrieve(result: "asyncio.Future[T]") -> None:
    """If the waiter went away, its error is not reported as a bug."""
    if not result.cancelled():
        result.exception()


async def _nothing() -> None:
    """The change that only settles."""
