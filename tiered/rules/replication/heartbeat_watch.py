"""Finds silent brokers: by repeated looks at all heartbeats, and the looker's own clock.

Owns that judgement. Heartbeats are compared with each other, never with a clock, because clocks of two machines differ.
A broker is silent when its heartbeat stood still through a session of looks. The time between two looks counts only up
to a part of the session: this process may have been paused together with all others. After a look that was not possible
the watch begins anew, because the others could not beat either, and some of them may find out later than this one that
they can again. Liveness only: no safety depends on it (R11).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tiered.ids import InSyncReplica


@dataclass(slots=True, kw_only=True)
class _SeenState:
    registration: InSyncReplica
    heartbeat_at_ms: int
    silent_ms: float = 0.0


class HeartbeatWatchState:
    """One broker's observations of the others, which it looks at every `interval_ms`."""

    def __init__(self, *, session_timeout_ms: float, interval_ms: float, recovery_ms: float = 0.0) -> None:
        """After a look that was not possible, who has not been heard of again is given `recovery_ms` besides."""
        self._session_timeout_ms = session_timeout_ms
        self._recovery_ms = recovery_ms
        self._most_a_look_ms = max(session_timeout_ms / 2.0, 2.0 * interval_ms)
        self._seen: dict[int, _SeenState] = {}
        self._looked_ms: float | None = None
        self._has_missed = False

    def look(self, beats: Iterable[tuple[InSyncReplica, int]], now_ms: float) -> None:
        """Takes note of registrations that are in service, each with its newest heartbeat."""
        passed_ms = 0.0 if self._looked_ms is None else min(now_ms - self._looked_ms, self._most_a_look_ms)
        self._looked_ms = now_ms
        before, self._seen = self._seen, {}
        allowed_ms = self._recovery_ms if self._has_missed else 0.0
        self._has_missed = False
        for registration, heartbeat_at_ms in beats:
            known = before.get(registration.broker_id)
            if known is None or (known.registration, known.heartbeat_at_ms) != (registration, heartbeat_at_ms):
                known = _SeenState(registration=registration, heartbeat_at_ms=heartbeat_at_ms, silent_ms=-allowed_ms)
            else:
                known.silent_ms += passed_ms
            self._seen[registration.broker_id] = known

    def missed(self) -> None:
        """A look was not possible: nothing can be held against anybody."""
        self._looked_ms = None
        self._seen.clear()
        self._has_missed = True

    def late(self) -> frozenset[int]:
        """The brokers whose heartbeat stood still for half a session, as of the last look: shown, never acted upon."""
        return frozenset(
            broker_id for broker_id, seen in self._seen.items() if seen.silent_ms >= self._session_timeout_ms / 2.0
        )

    def silent(self) -> tuple[InSyncReplica, ...]:
        """The brokers whose heartbeat stood still for a session, as of the last look."""
        return tuple(each.registration for each in self._seen.values() if each.silent_ms >= self._session_timeout_ms)
