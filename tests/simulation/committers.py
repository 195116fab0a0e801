"""A member of nothing that commits ever larger offsets for one group, and asks what is committed.

Owns what the group's coordinators have promised: an offset whose commit was acknowledged never goes back (R10), not
by a coordinator that was replaced and does not know it, and not by a transaction that comes late.
"""

import asyncio
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from tests.simulation.clients import Client
from tests.simulation.network import Unanswered
from tiered.broker.broker import Broker
from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.errors import NotCoordinator, TieredError
from tiered.ids import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.world import World


class Committer(Client):
    """One group's only client: it knows what it was told."""

    def __init__(self, world: "World", number: int, key: TopicPartition) -> None:
        super().__init__(world, f"c{number}", key)
        self._group_id = f"group-{number}"
        self._coordinator: int | None = None
        self.tried = 0
        self.promised = 0

    async def run(self) -> None:
        while not self.world.stops_producing:
            await asyncio.sleep(self.rng.expovariate(1.4))
            try:
                coordinator = await self._find()
                if self.rng.random() < 0.6:
                    await self._commit(coordinator)
                else:
                    await self._look(coordinator)
            except (Unanswered, TieredError, OSError) as error:
                self.world.counts[f"group: {type(error).__name__}"] += 1
                self._coordinator = None

    async def check(self) -> bool:
        """At the end: whether what was promised can be had; a violation where it is less."""
        try:
            await self._look(await self._find())
        except (Unanswered, TieredError, OSError):
            self._coordinator = None
            return False
        return True

    def check_stored(self, conn: Connection) -> None:
        """In a transaction that is about to be committed."""
        found = conn.exec_driver_sql(
            "SELECT max(committed_offset) FROM group_offset WHERE group_id = ?", (self._group_id,)
        ).scalar()
        if self.promised and (found or 0) < self.promised:
            self.world.violate(
                f"R10: {self._group_id}: a coordinator writes the committed offset {found}, where {self.promised} was "
                "acknowledged"
            )

    async def _find(self) -> int:
        if self._coordinator is None:
            self._coordinator = await self.find_coordinator(self._group_id)
        return self._coordinator

    async def _commit(self, coordinator: int) -> None:
        self.tried += 1
        offset = self.tried

        async def commit(broker: Broker) -> None:
            fence = await broker.groups.check_commit(self._group_id, "", None, -1)
            entry = OffsetEntry(
                topic_id=self.key.topic_id, partition=self.key.partition, offset=offset, leader_epoch=-1, metadata=""
            )
            await broker.groups.offsets.commit(fence, [entry])

        await self.ask(coordinator, commit)
        self.promised = offset
        self.world.counts["commits of offsets"] += 1

    async def _look(self, coordinator: int) -> None:
        async def look(broker: Broker) -> int:
            if not broker.groups.is_ours(self._group_id):
                raise NotCoordinator("not here")
            rows = await broker.groups.offsets.fetch(self._group_id, [self.key])
            return max((row.committed_offset for row in rows.values()), default=0)

        promised = self.promised
        found = await self.ask(coordinator, look)
        if not promised <= found <= self.tried:
            self.world.violate(
                f"R10: {self._group_id}: the committed offset is {found}, where {promised} was acknowledged and "
                f"{self.tried} was the last that was tried"
            )
