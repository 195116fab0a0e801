"""This broker's heartbeat: it says that it lives, and looks who else does.

Owns the rhythm, the watch over all others, and the end of a process that was replaced. Every broker watches, so that
whoever takes the controller's lease knows already who has fallen silent. Must never fence or elect: the controller
does. While SQL is away no broker's silence counts, and none is fenced for it afterwards.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from tiered.broker.context import BrokerContext
from tiered.broker.control.controller import Controller
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.broker.view.store_reach import StoreReach
from tiered.config import BrokerSettings
from tiered.errors import StaleBrokerEpoch, TieredError
from tiered.ids import InSyncReplica
from tiered.meta import liveness
from tiered.meta.liveness import NO_CONTROLLER, Pulse
from tiered.rules.replication.heartbeat_watch import HeartbeatWatchState
from tiered.runtime import QuietFailures, Worker, every

log = logging.getLogger(__name__)

ALONE_INTERVAL_MS = 2_000
"""Nobody waits for the heartbeat of a broker that has its catalogue for itself, and each is a write to the disk."""
SHORTEST_DEADLINE_MS = 500
CLOCKS_APART_MS = 60_000
"""So far from the database's clock this broker's own is worth a warning."""


def interval_ms(settings: BrokerSettings, *, is_alone: bool) -> float:
    """How often a broker with these settings beats."""
    given_ms = float(settings.cluster.broker_heartbeat_interval_ms)
    return max(given_ms, ALONE_INTERVAL_MS) if is_alone else given_ms


class Heartbeats:
    """Beats between `start` and `stop`."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        controller: Controller,
        feed: ChangeFeed,
        image: ClusterImage,
        reach: StoreReach,
        was_replaced: Callable[[StaleBrokerEpoch], None],
    ) -> None:
        self._context = context
        self._controller = controller
        self._feed = feed
        self._image = image
        self._reach = reach
        self._was_replaced = was_replaced
        settings = self._context.settings
        session_ms = float(settings.cluster.broker_session_timeout_ms)
        self._interval_ms = interval_ms(settings, is_alone=self._context.is_alone)
        self._lease_ms = int(max(2.0 * self._interval_ms, session_ms - self._interval_ms))
        # As late as it may still prevent that this broker is fenced.
        self._deadline_ms = int(max(SHORTEST_DEADLINE_MS, self._interval_ms, session_ms))
        self._watch = HeartbeatWatchState(
            session_timeout_ms=session_ms,
            interval_ms=self._interval_ms,
            recovery_ms=self._context.database.slowest_connect_ms,
        )
        self.ages_ms: Mapping[int, int] = {}
        """How old the newest heartbeat of each other registered broker was, by the database's clock, when this broker's
        last heartbeat saw it; empty while SQL is away."""
        self._clocks_are_apart = False
        self._worker = Worker()
        self._failures = QuietFailures(
            log, "heartbeat failed and is tried again and again: %(error)s", "heartbeat: works again"
        )

    def start(self, group: asyncio.TaskGroup) -> None:
        self._worker.start(group, every(self._interval_ms, self.beat, name="heartbeat"))

    async def stop(self) -> None:
        """No heartbeat is under way any more, and none follows."""
        await self._worker.stop()

    def late(self) -> frozenset[int]:
        """The brokers in service whose heartbeats are late, as this broker's last heartbeat saw them."""
        return self._watch.late()

    async def beat(self) -> None:
        """One heartbeat, and what it saw."""
        # The controller writes the cluster's checkpoint to the store. Where nobody else is it, this broker must be.
        wants_lease = not self._reach.is_others_turn() or self._image.controller_id == NO_CONTROLLER
        try:
            pulse = await self._context.database.run(
                lambda conn: liveness.beat(
                    conn,
                    broker_id=self._context.broker_id,
                    broker_epoch=self._context.state.broker_epoch,
                    lease_ms=self._lease_ms,
                    wants_lease=wants_lease,
                ),
                deadline_ms=self._deadline_ms,
                ahead=True,
            )
        except StaleBrokerEpoch as error:
            self._was_replaced(error)
        except TieredError as error:
            self._watch.missed()
            self.ages_ms = {}
            self._reach.wait_anew()
            self._controller.resign()
            self._context.counters.heartbeat_failures += 1
            self._failures.failed(error)
        else:
            self._failures.worked()
            self._took(pulse)

    def _took(self, pulse: Pulse) -> None:
        if pulse.was_fenced:
            log.warning("this broker was silent for too long, and others took over; it serves again")
        history = self._context.database.history
        if pulse.went_back is not None and history is not None:
            history.refuse(pulse.went_back)
        self._image.controller_id = pulse.controller_id
        self._context.counters.newest_change_number = max(
            self._context.counters.newest_change_number, pulse.change_number
        )
        self._feed.seen(pulse.change_number)
        if not self._context.is_alone:
            me = self._context.broker_id
            own_ms = next(beat.heartbeat_at_ms for beat in pulse.beats if beat.broker_id == me)
            self._compare_clocks(own_ms)
            self.ages_ms = {
                beat.broker_id: max(0, own_ms - beat.heartbeat_at_ms) for beat in pulse.beats if beat.broker_id != me
            }
        in_service = [
            (InSyncReplica(each.broker_id, each.broker_epoch), each.heartbeat_at_ms)
            for each in pulse.beats
            if not each.fenced and each.broker_id != self._context.broker_id
        ]
        self._watch.look(in_service, self._context.clock.monotonic_ms())
        if pulse.is_controller:
            self._controller.lead(self._watch.silent())
        else:
            self._controller.resign()

    def _compare_clocks(self, database_ms: int) -> None:
        clock = self._context.clock
        self._context.state.database_clock_ms = database_ms - clock.elapsed_ms()
        ahead_ms = self._context.counters.clock_ahead_ms = clock.now_ms() - database_ms
        were_apart, self._clocks_are_apart = self._clocks_are_apart, abs(ahead_ms) >= CLOCKS_APART_MS
        if self._clocks_are_apart and not were_apart:
            log.warning(
                "this broker's clock is %d s %s the database's. Times that it gives to records (LogAppendTime, "
                "segment.ms) are off by that; let NTP set both clocks (chronyc tracking, timedatectl)",
                abs(ahead_ms) // 1000,
                "ahead of" if ahead_ms > 0 else "behind",
            )
