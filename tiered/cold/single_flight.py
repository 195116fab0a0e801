"""Work that many ask for and that is done once: whoever goes away, it goes on to its end (T7).

Owns the tasks. Must never cancel work because a waiter gave up, and never remember a failure: who asks after
it begins anew.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tiered.errors import ShuttingDown

K = TypeVar("K")
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Work in progress by key, as tasks of the TaskGroup given to `start`."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._results: dict[K, asyncio.Future[V]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.joined = 0

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    async def stop(self) -> None:
        """Begins nothing more; who still waits gets `ShuttingDown`."""
        self._group = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def is_flying(self, key: K) -> bool:
        return key in self._results

    async def result(self, key: K, work: Callable[[], Awaitable[V]]) -> V:
        """The value of `work`, which is begun unless it is under way. Raises what it raises, to every waiter."""
        if key in self._results:
            self.joined += 1
        else:
            self.begin(key, work)
        return await asyncio.shield(self._results[key])

    def begin(self, key: K, work: Callable[[], Awaitable[V]]) -> None:
        """Begins `work`, which nobody has to wait for. It must not be under way."""
        if self._group is None:
            raise ShuttingDown("cold reads have stopped; ask again after the restart")
        assert key not in self._results
        result: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        result.add_done_callback(_retrieve)
        self._results[key] = result
        task = self._group.create_task(self._fly(key, work, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fly(self, key: K, work: Callable[[], Awaitable[V]], result: "asyncio.Future[V]") -> None:
        try:
            value = await work()
        except asyncio.CancelledError:
            result.set_exception(ShuttingDown("cold reads have stopped; ask again after the restart"))
            raise
        except Exception as error:  # noqa: BLE001 - given to every waiter as it is, not swallowed
            result.set_exception(error)
        else:
            result.set_result(value)
        finally:
            del self._results[key]


def _retrieve(result: "asyncio.Future[V]") -> None:
    """A failure that nobody waited for (a read-ahead, or all waiters left) is no bug to complain of."""
    if not result.cancelled():
        result.exception()
