"""The one writer of transactional ids' rows: what comes while one SQL transaction runs goes together in the next.

Owns the queue. Takes turns with the writer of offset commits, which settles unknown outcomes for both. Must never
decide what a transition is.
"""

import asyncio
import logging
from collections import deque
from typing import NamedTuple

from tiered.broker.groups.commit_writer import OffsetCommits, fail, retrieve
from tiered.errors import CoordinatorNotAvailable, NotCoordinator, TieredError
from tiered.meta import transactions
from tiered.meta.transactions import TransactionChange
from tiered.runtime import Worker

log = logging.getLogger(__name__)

MAX_BATCH = 500
MAX_WAITING = 20_000


class _Waiting(NamedTuple):
    transition: TransactionChange
    done: "asyncio.Future[None]"


class TransitionWriter:
    """Between `start` and `stop` one task writes."""

    def __init__(self, *, commits: OffsetCommits) -> None:
        self._commits = commits
        self._waiting: deque[_Waiting] = deque()
        self._last: dict[str, asyncio.Future[None]] = {}
        """By transactional id, what is not written yet."""
        self._something = asyncio.Event()
        self._worker = Worker()
        self._stopped = False
        self._most = MAX_BATCH
        """How many go into one SQL transaction."""

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._worker.start(tasks, self._write_for_ever())

    async def stop(self) -> None:
        """What waits fails with NotCoordinator: nothing of it is written."""
        self._stopped = True
        await self._worker.stop()
        while self._waiting:
            fail(self._waiting.popleft().done, NotCoordinator("the broker is stopping: find the coordinator again"))

    def submit(self, transition: TransactionChange) -> "asyncio.Future[None]":
        """Done once SQL has the transition. The one before it of the same transactional id must be done.

        Cancelling the future takes nothing back. Raises CoordinatorNotAvailable when too much waits; the future raises
        NotCoordinator (nothing was written) or CoordinatorNotAvailable (nobody knows whether it was).
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(retrieve)
        if self._stopped:
            raise NotCoordinator("the broker is stopping: find the coordinator again")
        if len(self._waiting) >= MAX_WAITING:
            raise CoordinatorNotAvailable("too many transactions wait for SQL; try again later")
        name = transition.after.transactional_id
        self._waiting.append(_Waiting(transition, done))
        self._last[name] = done
        done.add_done_callback(lambda _: self._forget_last(name, done))
        self._something.set()
        stored = asyncio.shield(done)
        stored.add_done_callback(retrieve)
        return stored

    def has(self, transactional_id: str) -> bool:
        """Whether a transition of the transactional id is on its way to SQL."""
        return transactional_id in self._last

    async def settled(self, transactional_id: str) -> None:
        """Returns when no transition of the transactional id is on its way to SQL, also none whose asker went away."""
        while (last := self._last.get(transactional_id)) is not None:
            await asyncio.wait([last])

    def _forget_last(self, transactional_id: str, done: "asyncio.Future[None]") -> None:
        if self._last.get(transactional_id) is done:
            del self._last[transactional_id]

    async def _write_for_ever(self) -> None:
        while True:
            await self._something.wait()
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            if not self._waiting:
                self._something.clear()
            if batch:
                await self._write(batch)

    async def _write(self, batch: list[_Waiting]) -> None:
        transitions = [waiting.transition for waiting in batch]
        try:
            written = await self._commits.in_turn(lambda conn, by: transactions.write(conn, transitions, by))
        except TieredError as error:
            # Decisions of many offsets may be too much for one: where they come again, fewer go together.
            self._most = max(1, len(batch) // 2)
            for waiting in batch:
                fail(waiting.done, error)
        except Exception:
            # A tick boundary: what SQL cannot digest of one must not end all others.
            self._most = max(1, len(batch) // 2)
            log.exception("transactions could not be written")
            for waiting in batch:
                fail(waiting.done, CoordinatorNotAvailable("the transaction could not be written; try again"))
        except BaseException:
            for waiting in batch:
                fail(waiting.done, CoordinatorNotAvailable("the write was interrupted; try again"))
            raise
        else:
            self._most = min(MAX_BATCH, 2 * self._most)
            for number, waiting in enumerate(batch):
                error_of_one = written.refused.get(number)
                if error_of_one is not None:
                    fail(waiting.done, error_of_one)
                elif not waiting.done.done():
                    waiting.done.set_result(None)
