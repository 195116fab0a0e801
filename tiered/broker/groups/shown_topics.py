"""The topics that a subscriber by pattern gets: matching topics that it may describe.

Owns the results, for each pattern and its principal. Rights are asked for in turns, with the heartbeats of that member,
for there may be many topics. Must never show a topic before the right to it was checked: until then a new topic is not
among them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tiered.broker.groups.memory import GroupMemory
from tiered.broker.security.access import Access
from tiered.errors import CoordinatorNotAvailable
from tiered.rules.groups.consumer_member import Pattern
from tiered.rules.security.acl import Operation, ResourceType
from tiered.runtime import in_turns

MAX_SHOWN = 10_000
"""Patterns and who sent them, of all groups together."""
_ENTRY_BYTES, _NAME_BYTES = 500, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The topics in `matched` that were `allowed` by this version of the rules."""

    rules: int
    matched: frozenset[str]
    allowed: frozenset[str]

    @property
    def size_bytes(self) -> int:
        return _ENTRY_BYTES + (0 if self.allowed is self.matched else _NAME_BYTES * len(self.allowed))


class ShownTopics:
    """Nothing is kept where authorization is off: everybody gets all that matches."""

    def __init__(self, access: Access, memory: GroupMemory, in_use: Callable[[], set[Pattern]]) -> None:
        self._access = access
        self._memory = memory
        self._in_use = in_use
        self._known: dict[Pattern, _Shown] = {}
        self._kept: Counter[Pattern] = Counter()
        self.version = 0
        """Another one whenever a pattern that was known shows other topics than before."""

    @contextmanager
    def kept(self, pattern: Pattern) -> Iterator[None]:
        """Within it the pattern is not forgotten to make room, though no member uses it yet."""
        self._kept[pattern] += 1
        try:
            yield
        finally:
            self._kept[pattern] -= 1
            if not self._kept[pattern]:
                del self._kept[pattern]

    async def look(self, pattern: Pattern, matched: frozenset[str]) -> None:
        """Afterwards `of` goes by the rights of now. Raises CoordinatorNotAvailable."""
        rights = self._access.rights(pattern.principal, pattern.host)
        if rights is None:
            return
        rules, known, found, new = self._access.version, self._known.get(pattern), set[str](), matched
        if known is not None and known.rules == rules:
            if known.matched is matched:
                return
            found, new = set(known.allowed & matched), matched - known.matched
        may = rights.by_name(Operation.DESCRIBE, ResourceType.TOPIC)
        found.update([name async for name in in_turns(new) if may[name]])
        allowed = matched if len(found) == len(matched) else frozenset(found)
        self._put(pattern, _Shown(rules=rules, matched=matched, allowed=allowed))

    def of(self, pattern: Pattern, matched: frozenset[str]) -> frozenset[str]:
        """The topics in `matched` that are shown, as far as rights were checked."""
        if not self._access.is_on:
            return matched
        known = self._known.get(pattern)
        if known is None:
            return frozenset()
        return known.allowed if known.matched is matched else known.allowed & matched

    def _put(self, pattern: Pattern, shown: _Shown) -> None:
        before = self._known.get(pattern)
        if before is None and len(self._known) >= MAX_SHOWN:
            self._make_room()
        self._memory.take(shown.size_bytes - (0 if before is None else before.size_bytes))
        self._known[pattern] = shown
        if before is not None and before.allowed != shown.allowed:
            self.version += 1

    def _make_room(self) -> None:
        used = self._in_use() | self._kept.keys()
        for pattern in [each for each in self._known if each not in used]:
            self._memory.take(-self._known.pop(pattern).size_bytes)
        if len(self._known) >= MAX_SHOWN:
            raise CoordinatorNotAvailable(
                f"{MAX_SHOWN} members subscribe by patterns already; subscribe to topics by name, or try again later"
            )
