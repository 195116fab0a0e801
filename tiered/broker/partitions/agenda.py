"""Which partitions the rounds have to look at: those that something happened to, and those whose time has come.

Owns that list: a partition says when something happens to it, and whoever has looked at it says when to look again if
nothing does. So a partition that nothing happens to costs nothing. Must never forget one before it was looked at.
"""

from tiered.broker.partitions.partition import Partition
from tiered.rules.partition.rolling import NEVER_MS

AT_ONCE = 0


class PartitionAgenda:
    """Of one broker, used from its event loop. In the order in which things happened, so that a run can be repeated."""

    def __init__(self) -> None:
        self._changed: dict[Partition, None] = {}
        self._due_ms: dict[Partition, int] = {}
        self._next_ms = NEVER_MS
        """None is due before this."""

    def changed(self, partition: Partition) -> None:
        """Something happened to it."""
        self._changed[partition] = None

    def look_again(self, partition: Partition, at_ms: int) -> None:
        """At `at_ms` by the clock on the wall, if nothing happens to it until then; AT_ONCE is in the next round, from
        NEVER_MS on it is never."""
        if at_ms == AT_ONCE:
            self._changed[partition] = None
        elif at_ms >= NEVER_MS:
            self._due_ms.pop(partition, None)
        else:
            self._due_ms[partition] = at_ms
            self._next_ms = min(self._next_ms, at_ms)

    def is_empty(self, now_ms: int) -> bool:
        """Nothing happened, and no time has come."""
        return not self._changed and now_ms < self._next_ms

    def take(self, now_ms: int) -> list[Partition]:
        """Those to look at now. One whose time has come stays due until somebody says when to look again."""
        found, self._changed = self._changed, {}
        if now_ms >= self._next_ms:
            found.update((each, None) for each, at_ms in self._due_ms.items() if at_ms <= now_ms)
            self._next_ms = min(self._due_ms.values(), default=NEVER_MS)
        return list(found)
