"""Whether this broker reaches the object store, for all brokers to know, and to lead in its place.

    reaches it --(no look is answered for REPORT_AFTER_MS, or one, while another broker reports the same)--> reported
    reported --(PASS_ON_AFTER_MS later, while another broker that serves reports nothing)--> others lead
    reported, others lead --(a look is answered)--> reaches it

Where the store is away for all, leadership must stay where it is. So each broker looks as soon as one reports, and that
one waits until the others can have looked. Owns the looks, and this broker's word in SQL (column `store_trouble`). Must
never change who leads: `failed_replicas` does, and elections prefer who reaches the store.
"""

import asyncio
import logging
from collections.abc import Iterator

from tiered.broker.context import BrokerContext
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import StoreTrouble, StoreUnavailable, TieredError
from tiered.formats import object_key
from tiered.meta import brokers

log = logging.getLogger(__name__)

TICK_MS = 500.0
LOOK_MS = 10_000.0
"""A look without an answer for so long has failed."""
LOOK_AGAIN_MS = 10_000.0
REPORT_AFTER_MS = 10_000.0
PASS_ON_AFTER_MS = 30_000.0
"""Longer than the others take to hear of a report, to look, and to report themselves."""


class StoreReach:
    """`tick` is called every now and then; without trouble it costs nothing."""

    def __init__(self, *, context: BrokerContext, feed: ChangeFeed, image: ClusterImage) -> None:
        self._context = context
        self._feed = feed
        self._image = image
        self._trouble: StoreTrouble | None = None
        """Of the last look; None where it was answered."""
        self._failing_since_ms = 0.0
        self._reported: StoreTrouble | None = None
        self._reported_ms = 0.0
        self._look_due_ms = 0.0
        self._is_looking = False

    def is_others_turn(self) -> bool:
        """Whether others should lead what this broker leads: they reach the store, and it alone does not."""
        now_ms = self._context.clock.monotonic_ms()
        return (
            self._reported is not None
            and now_ms - self._reported_ms >= PASS_ON_AFTER_MS
            and any(trouble is None for trouble in self._others_troubles())
        )

    async def tick(self) -> None:
        """Looks where there is a reason to, and reports what has changed. Raises MetadataUnavailable."""
        others_report = any(trouble is not None for trouble in self._others_troubles())
        if not others_report and self._context.store.trouble is None and self._trouble is self._reported is None:
            return
        now_ms = self._context.clock.monotonic_ms()
        if now_ms >= self._look_due_ms:
            self._look_due_ms = now_ms + LOOK_AGAIN_MS
            before, self._trouble = self._trouble, await self._look()
            if before is None:
                self._failing_since_ms = now_ms
        is_lasting = self._context.clock.monotonic_ms() - self._failing_since_ms >= REPORT_AFTER_MS
        if self._trouble is None or self._reported is not None or is_lasting or others_report:
            await self._report(self._trouble)

    def _others_troubles(self) -> Iterator[str | None]:
        """The words of the other brokers in service."""
        own_id = self._context.broker_id
        return (row.store_trouble for row in self._image.brokers.values() if row.broker_id != own_id and not row.fenced)

    async def _look(self) -> StoreTrouble | None:
        """None where the store answers, or asks for fewer requests."""
        if self._is_looking:
            return StoreTrouble.AWAY  # The last look has had no answer yet.
        self._is_looking = True
        try:
            async with asyncio.timeout(LOOK_MS / 1000.0):
                trouble = await self._context.uploads.run(self._asked)
        except TimeoutError:
            return StoreTrouble.AWAY
        except TieredError:  # No thread is free, and no look was begun.
            self._is_looking = False
            return None
        return None if trouble is StoreTrouble.SLOW else trouble

    def _asked(self) -> StoreTrouble | None:
        """In a thread. What the store says to a request for the cluster's checkpoint, which every broker may read."""
        try:
            self._context.store.head(object_key.cluster_checkpoint_key())
        except (TieredError, OSError) as error:
            return error.trouble if isinstance(error, StoreUnavailable) else StoreTrouble.AWAY
        finally:
            self._is_looking = False
        return None

    async def _report(self, trouble: StoreTrouble | None) -> None:
        if trouble is self._reported:
            return
        state = self._context.state
        await self._feed.commit(
            lambda conn: brokers.report_store_trouble(
                conn, broker_id=self._context.broker_id, broker_epoch=state.broker_epoch, trouble=trouble
            )
        )
        if self._reported is None:
            self._reported_ms = self._context.clock.monotonic_ms()
            log.warning("this broker does not reach the object store: others that do will lead what it leads")
        elif trouble is None:
            log.warning("this broker reaches the object store again: it may lead again")
        self._reported = trouble
