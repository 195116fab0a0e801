"""Whether what this broker believes to lead is what it leads, asked of SQL where a wrong answer would hurt.

Owns that question. A leader that was deposed and cannot reach SQL does not know it; a consumer that comes from its
successor asks for offsets beyond its end. Told that these are out of range, the consumer would begin anew somewhere.
Must never decide who leads.
"""

import asyncio

from tiered.broker.view.feed import ChangeFeed
from tiered.errors import NotLeader, TieredError

PATIENCE_S = 1.0


class LeadershipCheck:
    """One question at a time, however many wait for its answer."""

    def __init__(self, *, feed: ChangeFeed) -> None:
        self._feed = feed
        self._turn = asyncio.Lock()
        self._begun = 0
        self._done = 0

    async def confirm(self) -> None:
        """Returns when this broker has applied whatever was committed before the call.

        Raises NotLeader when it cannot find out within a second: somebody else may lead by now.
        """
        begun = self._begun
        try:
            async with asyncio.timeout(PATIENCE_S), self._turn:
                if self._done > begun:
                    return  # Somebody's question, which was asked after this call, was answered.
                self._begun += 1
                asked = self._begun
                await self._feed.refresh()
                self._done = asked
        except (TieredError, TimeoutError):
            raise NotLeader(
                "this broker cannot ask the metadata database whether it still leads the partition; refresh metadata "
                "and retry"
            ) from None
