"""Fresh producer ids, from blocks that SQL grants.

Owns the unused rest of the present block. Must never hand out an id twice: a block whose grant has an
unknown outcome is simply never used.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tiered.errors import CoordinatorLoading, MetadataUnavailable, Throttled
from tiered.meta import producer_ids
from tiered.meta.engine import Database


class ProducerIds:
    """Hands out ids one by one; asks SQL once every thousand."""

    def __init__(self, database: Database, *, note: Callable[[], Awaitable[None]] | None = None) -> None:
        self._database = database
        self._note = note
        """Returns when the folder knows of the grant, before anybody has an id of it."""
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next(self) -> int:
        """An id nobody has had.

        Raises CoordinatorLoading when a new block is needed and SQL is away. What MetadataUnavailable is on the wire,
        REQUEST_TIMED_OUT, older clients take for the end of an idempotent or transactional producer.
        """
        async with self._refill:
            try:
                if self._database.history is not None:
                    self._database.history.require()
                if self._next == self._end:
                    block = await self._database.run(producer_ids.allocate_block)
                    if self._note is not None:
                        await self._note()
                    self._next, self._end = block.start, block.stop
            except (MetadataUnavailable, Throttled) as error:
                raise CoordinatorLoading(f"SQL gives no producer ids: {error}") from error
            producer_id = self._next
            self._next += 1
            return producer_id
