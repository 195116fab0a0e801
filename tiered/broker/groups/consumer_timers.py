"""How long a KIP-848 group has patience with each of its members.

Owns the members' sessions, and the time they have to follow a rebalance. Must never decide what follows from a
time-out: it says which member it was, and why.
"""

from collections.abc import Callable

from tiered.broker.groups.timer import Deadline
from tiered.runtime import Clock


class MemberTimers:
    """`passed(member_id, reason)` is called when one has run out; it is expected to forget the member."""

    def __init__(self, clock: Clock, passed: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._passed = passed
        self._sessions: dict[str, Deadline] = {}
        self._heard_ms: dict[str, float] = {}
        self._duties: dict[str, tuple[int, Deadline]] = {}
        """What members have to do, and the epoch in which they were told."""

    def touch(self, member_id: str, timeout_ms: int) -> None:
        """The member lives: its session begins anew."""
        session = self._sessions.get(member_id)
        if session is None:
            session = self._sessions[member_id] = Deadline(
                lambda: self._passed(member_id, "was silent for its session time-out"), patient=True
            )
        session.set(timeout_ms)
        self._heard_ms[member_id] = self._clock.monotonic_ms()

    def longest_silence_ms(self) -> float:
        """Of the member that was not heard of for the longest time; 0 where nobody is."""
        now_ms = self._clock.monotonic_ms()
        return now_ms - min(self._heard_ms.values(), default=now_ms)

    def expect(self, member_id: str, epoch: int, timeout_ms: int) -> None:
        """It has to give up partitions, join again or fetch its assignment. Being told again in the same epoch gives
        no more time."""
        known = self._duties.get(member_id)
        if known is not None and known[0] == epoch:
            return
        self.met(member_id)
        reason = "did not follow a rebalance within its rebalance time-out"
        deadline = Deadline(lambda: self._passed(member_id, reason), patient=True)
        deadline.set(timeout_ms)
        self._duties[member_id] = (epoch, deadline)

    def met(self, member_id: str) -> None:
        """It has done what it had to."""
        known = self._duties.pop(member_id, None)
        if known is not None:
            known[1].clear()

    def forget(self, member_id: str) -> None:
        """The member has left."""
        self.met(member_id)
        self._heard_ms.pop(member_id, None)
        session = self._sessions.pop(member_id, None)
        if session is not None:
            session.clear()

    def end(self) -> None:
        """The group has ended: nobody is missed any more, and this holds the group no longer."""
        for member_id in list(self._sessions):
            self.forget(member_id)
        self._passed = _nobody_misses


def _nobody_misses(member_id: str, reason: str) -> None:
    """In the place of a group that has ended."""
