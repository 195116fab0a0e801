"""A job whose tasks write in transactions of their own, and which commits all of a batch in one step, once.

Owns the batches and what became of each. Where it does not know, it asks again, or has the tasks write the batch again
and commits that under the same key. Must never read a broker's state but through the network.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulation.clients import Client
from tests.simulation.network import Unanswered
from tests.simulation.transaction_book import Together
from tests.simulation.transactors import Over, Replaced, Transactor
from tiered.errors import TieredError
from tiered.ids import TopicPartition
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, RAISES_EPOCH, PreparedTransaction

if TYPE_CHECKING:
    from tests.simulation.world import World

TRIES = 3


class Job(Client):
    """One batch after the other."""

    def __init__(self, world: "World", number: int, keys: Sequence[TopicPartition]) -> None:
        super().__init__(world, f"c{number}", keys[0])
        self.tasks = [
            Transactor(world, number, f"task-{protocol}", keys, protocol=protocol)
            for protocol in (KEEPS_EPOCH, RAISES_EPOCH)
        ]

    async def run(self) -> None:
        world, batches = self.world, 0
        while not world.stops_producing:
            await asyncio.sleep(self.rng.expovariate(0.5))
            if await self._write_and_commit(f"batch-{batches}"):
                batches += 1
        for task in self.tasks:
            await task.leave_nothing_open()

    async def _write_and_commit(self, key: str) -> bool:
        """True when it knows that the batch is committed; now and then it forgets that."""
        try:
            together = Together(key, [await task.prepare() for task in self.tasks])
        except (Over, Replaced) as error:
            self.world.counts[f"batches: {error}"] += 1
            return False
        together.attempts = [each for each in together.attempts if each.batches]
        for attempt in together.attempts:
            attempt.together, attempt.asks_commit = together, True
        for _ in range(TRIES):
            try:
                commits = await self._commit(together)
            except (Unanswered, TieredError, OSError) as error:
                self.world.counts[f"batch: {type(error).__name__}"] += 1
                await self.rest()
                continue
            self.world.trace(self.name, f"{'has committed' if commits else 'had committed before'} {together}")
            self.world.counts["batches committed" if commits else "batches that were committed before"] += 1
            self.world.checker.transactions.told_together(together, commits=commits)
            return self.rng.random() < 0.7
        return False

    async def _commit(self, together: Together) -> bool:
        prepared = [
            PreparedTransaction(transactional_id=each.transactional_id, producer=each.producer)
            for each in together.attempts
        ]
        return await self.ask(
            self.rng.choice(sorted(self.world.machines)),
            lambda broker: broker.transactions.decide_together(prepared, commit_key=together.key),
        )
