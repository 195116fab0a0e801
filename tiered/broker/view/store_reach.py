"""Whether this broker reaches the object store, for all brokers to know, and to lead in its place.

    reaches it --(no look is answered for REPORT_AFTER_MS, or one, while another broker reports the same)--> reported
    reported --(another broker in service has reported nothing for PASS_ON_AFTER_MS)--> others lead
    reported, others lead --(a look is answered)--> reaches it

Where the store is away for all, or has just come back, leadership must stay where it is. So each broker looks as soon
as another one reports, and one that has reported waits until the others can have looked. Owns the looks, and this
broker's word in SQL (column `store_trouble`). Must never change who leads: `failed_replicas` does, and elections prefer
who reaches the store.
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
"""A look has failed when the store has answered nothing for so long."""
LOOK_AGAIN_MS = 10_000.0
REPORT_AFTER_MS = 10_000.0
PASS_ON_AFTER_MS = 30_000.0
"""Longer than another broker takes to hear of a report, to look, and to report itself."""
OF_ALL_REQUESTS = frozenset(StoreTrouble) - {
    StoreTrouble.SLOW, StoreTrouble.FULL, StoreTrouble.LOCKED, StoreTrouble.ARCHIVED,
}  # fmt: skip
"""What a look may meet, too. The others are of all brokers, or of one object."""


class StoreReach:
    """`tick` is called every now and then; without trouble it costs nothing."""

    def __init__(self, *, context: BrokerContext, feed: ChangeFeed, image: ClusterImage) -> None:
        self._context = context
        self._feed = feed
        self._image = image
        self._trouble: StoreTrouble | None = None
        """Why the last look failed; None where the store answered it."""
        self._failing_since_ms = 0.0
        self._alone_since_ms: float | None = None
        """Since when this broker's word is that it does not reach the store, and another one's that it does."""
        self._look_due_ms = 0.0
        self._is_looking = False
        self._seen_timeouts = 0

    @property
    def trouble(self) -> StoreTrouble | None:
        """Why the last look failed; None where the store answered it, or there was no reason to look."""
        return self._trouble

    def is_others_turn(self) -> bool:
        """Whether others should lead what this broker leads: they reach the store, and it alone does not."""
        since_ms = self._alone_since_ms
        return since_ms is not None and self._context.clock.monotonic_ms() - since_ms >= PASS_ON_AFTER_MS

    def wait_anew(self) -> None:
        """SQL does not answer: what the others say may be old."""
        self._alone_since_ms = None

    async def tick(self) -> None:
        """Looks where there is a reason to, and reports what has changed. Raises MetadataUnavailable."""
        others = list(self._others_words())
        others_report = any(word is not None for word in others)
        # An operation fails only after six requests without an answer, which takes minutes.
        hangs = self._context.store.timeouts > self._seen_timeouts
        self._seen_timeouts = self._context.store.timeouts
        has_reason = others_report or hangs or self._context.store.trouble in OF_ALL_REQUESTS
        if not has_reason and self._trouble is None and self._own_word() is None:
            self._alone_since_ms = None
            return
        now_ms = self._context.clock.monotonic_ms()
        if now_ms >= self._look_due_ms:
            self._look_due_ms = now_ms + LOOK_AGAIN_MS
            before, self._trouble = self._trouble, await self._look(now_ms)
            if before is None:
                self._failing_since_ms = now_ms
        is_lasting = self._context.clock.monotonic_ms() - self._failing_since_ms >= REPORT_AFTER_MS
        if self._trouble is None or is_lasting or others_report:
            await self._report(self._trouble)
        if self._own_word() is None or None not in others:
            self._alone_since_ms = None
        elif self._alone_since_ms is None:
            self._alone_since_ms = self._context.clock.monotonic_ms()

    def _own_word(self) -> str | None:
        """What SQL says of this broker: why it does not reach the store, or None."""
        row = self._image.brokers.get(self._context.broker_id)
        return None if row is None else row.store_trouble

    def _others_words(self) -> Iterator[str | None]:
        """What the other brokers in service say: why they do not reach the store, or None."""
        own_id = self._context.broker_id
        return (row.store_trouble for row in self._image.brokers.values() if row.broker_id != own_id and not row.fenced)

    async def _look(self, now_ms: float) -> StoreTrouble | None:
        """None where the store answers, or has answered anybody here since `now_ms`."""
        store = self._context.store
        if not self._is_looking:  # Else the last look has had no answer yet.
            self._is_looking = True
            try:
                async with asyncio.timeout(LOOK_MS / 1000.0):
                    return await self._context.uploads.run(self._look_once)
            except TimeoutError:
                pass
            except TieredError:  # There is no room among those who wait for a thread.
                self._is_looking = False
                return self._trouble
        return None if store.answered_ms >= now_ms else StoreTrouble.AWAY

    def _look_once(self) -> StoreTrouble | None:
        """In a thread. What the store says to a request for the cluster's checkpoint, which every broker may read."""
        try:
            self._context.store.look(object_key.cluster_checkpoint_key())
        except (TieredError, OSError) as error:
            trouble = error.trouble if isinstance(error, StoreUnavailable) else StoreTrouble.AWAY
            return trouble if trouble in OF_ALL_REQUESTS else None
        finally:
            self._is_looking = False
        return None

    async def _report(self, trouble: StoreTrouble | None) -> None:
        """Until SQL has it: of a COMMIT without an answer nobody knows whether it was carried out."""
        before = self._own_word()
        if before == (None if trouble is None else trouble.value):
            return
        broker_id, broker_epoch = self._context.broker_id, self._context.state.broker_epoch
        await self._feed.commit(
            lambda conn: brokers.report_store_trouble(
                conn, broker_id=broker_id, broker_epoch=broker_epoch, trouble=trouble
            )
        )
        if trouble is not None and before is None:
            log.warning(
                "this broker does not reach the object store (%s): if others do, look at its network, credentials and "
                "clock",
                trouble.value,
            )
        elif trouble is None:
            log.warning("this broker reaches the object store again: it may lead again")
