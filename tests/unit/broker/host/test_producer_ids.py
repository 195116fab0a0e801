"""Producer ids come from blocks: nobody gets one twice, also where many ask at the same time."""

import asyncio
from pathlib import Path

from tests.unit.broker.context import surroundings
from tiered.broker.host.producer_ids import ProducerIds


async def test_nobody_gets_an_id_twice_from_two_brokers_at_once(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        ids = ProducerIds(made.context.database), ProducerIds(made.context.database)
        found = await asyncio.gather(*(each.next() for _ in range(1_100) for each in ids))
        assert len(set(found)) == len(found)
