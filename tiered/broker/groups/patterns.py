"""Topics by regular expression (KIP-848): which names a client's pattern matches, in RE2's syntax.

Owns what each pattern in use matches. RE2 takes time in proportion to a name's length, whatever the pattern, and its
memory is bounded: a client's pattern never reaches Python's `re`, where a short one can take hours.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import re2

from tiered.broker.groups.memory import GroupMemory
from tiered.errors import CoordinatorNotAvailable, InvalidRegularExpression
from tiered.runtime import in_turns

MAX_PATTERN_CHARS = 4096
MAX_PATTERNS = 1000
"""Of all groups together."""
REGEX_BYTES = 1 << 20
"""What RE2 may take for one pattern. Its binding keeps at most 128 compiled."""
# The memory that a pattern takes, and a reference to a name in its set.
_PATTERN_BYTES, _NAME_BYTES = 2_000, 40

_options: Any = re2.Options()
_options.max_mem = REGEX_BYTES
_options.log_errors = False
_options.never_capture = True


class Patterns:
    """The patterns in use. `in_use` tells all that some group's members subscribe to."""

    def __init__(self, memory: GroupMemory, in_use: Callable[[], set[str]]) -> None:
        self._memory = memory
        self._in_use = in_use
        self._known: dict[str, _Matches] = {}
        self._kept: Counter[str] = Counter()

    @contextmanager
    def kept(self, pattern: str) -> Iterator[None]:
        """Within it `learn` does not forget the pattern to make room, though no member uses it yet."""
        self._kept[pattern] += 1
        try:
            yield
        finally:
            self._kept[pattern] -= 1
            if not self._kept[pattern]:
                del self._kept[pattern]

    async def learn(self, pattern: str, names: frozenset[str]) -> None:
        """Afterwards `matches` knows the pattern. Raises InvalidRegularExpression, CoordinatorNotAvailable."""
        if pattern in self._known:
            return
        regex = compiled(pattern)
        matched = {name async for name in in_turns(names) if regex.fullmatch(name) is not None}
        self._make_room()
        if pattern in self._known:  # Somebody else was faster.
            return
        size_bytes = _PATTERN_BYTES + len(pattern) + _NAME_BYTES * len(matched)
        self._memory.take(size_bytes)
        self._known[pattern] = _Matches(frozenset(matched), names, size_bytes)

    def _make_room(self) -> None:
        if len(self._known) < MAX_PATTERNS:
            return
        used = self._in_use() | self._kept.keys()
        for pattern in [each for each in self._known if each not in used]:
            self._memory.take(-self._known.pop(pattern).size_bytes)
        if len(self._known) >= MAX_PATTERNS:
            raise CoordinatorNotAvailable(
                f"{MAX_PATTERNS} patterns are subscribed to already; subscribe to topics by name, or try again later"
            )

    def matches(self, pattern: str, names: frozenset[str]) -> frozenset[str]:
        """The names in `names` that a learnt pattern matches as a whole. Only new names are looked at."""
        known = self._known.get(pattern)
        if known is None:
            return frozenset()
        if known.names is not names:
            regex = compiled(pattern)
            new = {name for name in names - known.names if regex.fullmatch(name) is not None}
            known.matched = (known.matched & names) | new
            known.names = names
        return known.matched


class _Matches:
    """The names in `names` that one pattern matched."""

    __slots__ = ("matched", "names", "size_bytes")

    def __init__(self, matched: frozenset[str], names: frozenset[str], size_bytes: int) -> None:
        self.matched = matched
        self.names = names
        self.size_bytes = size_bytes


def compiled(pattern: str, options: Any = _options) -> Any:
    """RE2's object. Raises InvalidRegularExpression that says where the pattern is wrong, or that it takes more memory
    than the options allow."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidRegularExpression(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_CHARS} do")
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegularExpression(
            f"{pattern[:80]!r} is no regular expression of RE2's syntax ({told[:200]}); correct the pattern"
        ) from error
