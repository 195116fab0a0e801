"""Sweeps of the object store: what failed uploads and deleted topics left behind.

Owns when a broker sweeps for itself, and when for all of them. How an object goes is the work of `segment_lifecycle`.
"""

from tiered.broker.context import BrokerContext
from tiered.broker.one_by_one import OneByOne
from tiered.broker.tiering.segment_lifecycle import SegmentLifecycle

FORGET_INTERVAL_MS = 3_600_000


class Sweeps:
    """The sweeps of one broker."""

    def __init__(self, *, context: BrokerContext, lifecycle: SegmentLifecycle) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._swept = False
        self._forgot_ms: float | None = None
        self._steps = OneByOne("sweeping for all brokers", counters=context.counters)

    async def own(self) -> None:
        """The first round takes everything that an earlier process left; it does not hold up the start."""
        await self._lifecycle.sweep(at_start=not self._swept)
        self._swept = True

    async def for_all(self) -> None:
        """The broker that does the work of one for all: the controller."""
        if not self._context.state.is_controller:
            return
        steps = [self._lifecycle.forget_deleted_topics, self._lifecycle.sweep_of_the_dead]
        now_ms = self._context.clock.monotonic_ms()
        if self._forgot_ms is None or now_ms - self._forgot_ms >= FORGET_INTERVAL_MS:
            self._forgot_ms = now_ms
            steps += [self._lifecycle.forget_purged, self._lifecycle.abort_abandoned_uploads]
        await self._steps.run(steps, lambda step: step(), name=lambda step: step.__name__)
