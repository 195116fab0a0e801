"""Tells this broker of every change of the control plane, its own included: in one order, from SQL.

Owns the one task that reads the feed, and the waits for a change. Woken by the database's notifications, by heartbeats
that saw a higher number, and by the maker of a change; polling is the floor, and a heartbeat is a poll. Must never hand
on a change that SQL did not commit, nor two sets at the same time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.view.image import ClusterImage
from tiered.errors import MetadataUnavailable, TieredError
from tiered.meta import changes, cluster
from tiered.meta.changes import ChangeSet
from tiered.meta.listener import Listener
from tiered.runtime import QuietFailures, Worker

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL_MS = 2_000
RETRY_MS = 200
CATCH_UP_DEADLINE_MS = 10_000


class ChangeFeed:
    """One broker's view of the feed. It follows from `start` on, from where the image is then."""

    def __init__(self, *, context: BrokerContext, image: ClusterImage) -> None:
        self._context = context
        self._image = image
        self._something = asyncio.Event()
        self._was_seen = False
        """A heartbeat has looked since the last poll, and there was nothing new."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._is_stopped = False
        self._listener: Listener | None = None
        self._worker = Worker()
        self._failures = QuietFailures(
            log,
            "changes of the cluster cannot be read; tried again and again: %(error)s",
            "changes of the cluster are read again",
        )
        self.apply: Callable[[ChangeSet], Awaitable[None]] | None = None
        """Makes what a set says so on this broker. It stands above all that commit through the feed: given last."""
        self.is_unfinished: Callable[[], bool] = lambda: False
        """Something is to be tried again: then a set without news is wanted, too."""

    def start(self, group: asyncio.TaskGroup) -> None:
        """Follows the feed until `stop`."""
        assert self.apply is not None
        loop = asyncio.get_running_loop()

        def wake() -> None:  # Called from the listener's thread.
            with suppress(RuntimeError):  # The loop is closed: nobody listens any more.
                loop.call_soon_threadsafe(self.wake)

        self._listener = self._context.database.listen(wake)
        self._worker.start(group, self._follow())

    async def stop(self) -> None:
        """Applies nothing more; waits for a change end with an unknown outcome."""
        self._is_stopped = True
        await self._worker.stop()
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
            self._listener = None
        waiting, self._waiting = self._waiting, []
        for number, future in waiting:
            if not future.done():
                future.set_exception(_stopping(number))

    # What others wait for

    def wake(self) -> None:
        """There may be something new."""
        self._something.set()

    def seen(self, number: int) -> None:
        """A heartbeat has just read the number of the last change."""
        self._was_seen = number <= self._image.change_number
        if not self._was_seen:
            self.wake()

    async def commit(self, change: Callable[[Connection], T]) -> T:
        """The result of `change`, once its transaction was committed and this broker has applied it.

        `change` takes a number. Raises its errors, and those of `Database.run` and `caught_up`.
        """

        def carry_out(conn: Connection) -> tuple[T, int]:
            value = change(conn)
            # The number's lock is held until the transaction ends: this is still ours.
            return value, cluster.load(conn).change_number

        value, number = await self._context.database.run(carry_out)
        await self.caught_up(number)
        return value

    async def caught_up(self, number: int) -> None:
        """Returns when this broker has applied every change up to `number`. Raises MetadataUnavailable when that
        takes too long; the changes are committed all the same, and will be applied."""
        if self._image.change_number >= number:
            return
        if self._is_stopped:
            raise _stopping(number)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, future))
        self.wake()
        try:
            async with asyncio.timeout(CATCH_UP_DEADLINE_MS / 1000.0):
                await future
        except TimeoutError:
            raise MetadataUnavailable(
                f"change {number} was committed, and this broker could not read it yet; look again later"
            ) from None

    async def refresh(self) -> None:
        """Returns when this broker has applied every change that was committed before the call."""
        row = await self._context.database.read(cluster.load)
        await self.caught_up(row.change_number)

    # The task

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_MS / 1000.0):
                    await self._something.wait()
            was_seen, self._was_seen = self._was_seen, False
            if was_seen and not self._something.is_set() and not self.is_unfinished():
                continue
            self._something.clear()
            try:
                await self._catch_up()
            except TieredError as error:
                self._context.counters.feed_failures += 1
                self._failures.failed(error)
            except Exception:
                # A tick boundary: what it was is asked for again, and a bug must not end a broker that serves.
                log.exception("a change of the cluster could not be applied; it is tried again")
            else:
                self._failures.worked()
                continue
            await asyncio.sleep(RETRY_MS / 1000.0)
            if self._waiting:
                self._something.set()

    async def _catch_up(self) -> None:
        image = self._image
        since = image.change_number
        found = await self._context.database.read(lambda conn: changes.since(conn, since))
        assert self.apply is not None
        await self.apply(found)
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        number = self._image.change_number
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if wanted > number:
                self._waiting.append((wanted, future))
            elif not future.done():
                future.set_result(None)


def _stopping(number: int) -> MetadataUnavailable:
    return MetadataUnavailable(f"the broker is stopping; change {number} was committed")
