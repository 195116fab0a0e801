"""Work that many ask for and that is done once: it goes on to its end even if all go away (T7).

Owns the tasks. Must never cancel work because a waiter gave up, and never remember a failure: who asks after
it begins anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
        """Begins nothing more; waiters get `ShuttingDown`."""
        self._group = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def flying(self) -> int:
        """Keys whose work is under way."""
        return len(self._results)

    def is_flying(self, key: K) -> bool:
        return key in self._results

    async def result(self, key: K, work: Callable[[], Awaitable[V]]) -> V:
        """The value of `work`, which is begun unless it is under way. Raises what it raises, to every waiter."""
        if self.is_flying(key):
            return await self.join(key)

        async def alone() -> Sequence[V | Exception]:
            return (await work(),)

        self.begin((key,), alone)
        return await self.landing(key)

    def join(self, key: K) -> "asyncio.Future[V]":
        """The result of the work under way for `key`, for a caller that came later."""
        self.joined += 1
        return self.landing(key)

    def landing(self, key: K) -> "asyncio.Future[V]":
        """The result of the work under way for `key`. A waiter that gives up changes nothing for the work."""
        return asyncio.shield(self._results[key])

    def begin(self, keys: Sequence[K], work: Callable[[], Awaitable[Sequence[V | Exception]]]) -> None:
        """Begins one piece of work for several keys, without a waiter; none of them may be under way.

        It ends with a value or a failure for each of them, in their order. An error that it raises is a failure of all.
        """
        if self._group is None:
            raise ShuttingDown("cold reads have stopped; ask again after the restart")
        loop = asyncio.get_running_loop()
        for key in keys:
            assert key not in self._results
            result: asyncio.Future[V] = loop.create_future()
            result.add_done_callback(_retrieve)
            self._results[key] = result
        task = self._group.create_task(self._fly(keys, work))
        self._tasks.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, keys))

    async def _fly(self, keys: Sequence[K], work: Callable[[], Awaitable[Sequence[V | Exception]]]) -> None:
        outcomes: Sequence[V | Exception]
        try:
            outcomes = await work()
        except Exception as error:  # noqa: BLE001 - given to every waiter as it is, not swallowed
            outcomes = [error] * len(keys)
        self._land(keys, outcomes)

    def _ended(self, task: "asyncio.Task[None]", keys: Sequence[K]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # Perhaps before its first step, so that nothing of it has run.
            self._land(keys, [ShuttingDown("cold reads have stopped; ask again after the restart") for _ in keys])

    def _land(self, keys: Sequence[K], outcomes: Sequence[V | Exception]) -> None:
        for key, outcome in zip(keys, outcomes, strict=True):
            result = self._results.pop(key)
            if isinstance(outcome, Exception):
                result.set_exception(outcome)
            else:
                result.set_result(outcome)


def _retrieve(result: "asyncio.Future[V]") -> None:
    """If no caller waited for it (a read-ahead, or all waiters left), its error is not reported as a bug."""
    if not result.cancelled():
        result.exception()
