"""A person who aborts open transactions now and then, as `tiered transactions abort` does.

Owns what that person was told. Must never read a broker's state but through the network.
"""

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.clients import Client
from tests.simulation.network import Unanswered
from tiered.errors import TieredError
from tiered.ids import TopicPartition
from tiered.rules.transactions.transaction_state import ProducerIdAndEpoch

if TYPE_CHECKING:
    from tests.simulation.world import World

_ONE_OPEN = (
    "SELECT transactional_id, producer_id, producer_epoch FROM transactional_producer WHERE state = 'Ongoing' "
    "ORDER BY started_at_ms LIMIT 1"
)


class Administrator(Client):
    """Looks into SQL for what is open for longest."""

    def __init__(self, world: "World", number: int, key: TopicPartition) -> None:
        super().__init__(world, f"c{number}", key)

    async def run(self) -> None:
        world = self.world
        while not world.stops_producing:
            await asyncio.sleep(self.rng.expovariate(0.3))
            found = world.sql.catalogue.driver.execute(_ONE_OPEN).fetchone()
            if found is None:
                continue
            name, producer = found[0], ProducerIdAndEpoch(found[1], found[2])
            attempt = world.checker.transactions.open_attempt(name, producer)
            try:
                coordinator = await self.find_coordinator(name)
                await self.ask(coordinator, lambda broker, name=name: broker.transactions.abort(name))  # type: ignore[misc]
            except (Unanswered, TieredError, OSError) as error:
                world.counts[f"abort: {type(error).__name__}"] += 1
                continue
            world.trace(self.name, f"has had aborted what was open of {name}")
            world.counts["aborts by a person"] += 1
            if attempt is not None:
                world.checker.transactions.told_of_abort(attempt)
