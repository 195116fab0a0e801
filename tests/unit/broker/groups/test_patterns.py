"""Patterns of topics: what is learnt of each, and what is forgotten to make room."""

import pytest

from tiered.broker.groups import patterns
from tiered.broker.groups.memory import GroupMemory
from tiered.broker.groups.patterns import Patterns
from tiered.errors import CoordinatorNotAvailable, InvalidRegularExpression

NAMES = frozenset({"orders", "orders-2", "bills"})


async def test_a_pattern_matches_whole_names_and_new_ones_too() -> None:
    known = Patterns(GroupMemory(lambda: 1 << 20), set)
    assert known.matches("orders.*", NAMES) == frozenset(), "nobody has learnt it"
    await known.learn("orders.*", NAMES)
    assert known.matches("orders.*", NAMES) == {"orders", "orders-2"}
    assert known.matches("orders.*", (NAMES | {"orders-3", "old-orders"}) - {"orders"}) == {"orders-2", "orders-3"}
    with pytest.raises(InvalidRegularExpression, match="RE2"):
        await known.learn("(", NAMES)


async def test_room_is_made_by_what_nobody_uses_or_is_about_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MAX_PATTERNS", 2)
    memory, used = GroupMemory(lambda: 1 << 20), {"used"}
    known = Patterns(memory, lambda: used)
    for pattern in ("used", "kept"):
        await known.learn(pattern, NAMES)
    before = memory.taken_bytes
    with known.kept("kept"), pytest.raises(CoordinatorNotAvailable):
        await known.learn("orders", NAMES)
    await known.learn("bills", NAMES)
    assert known.matches("bills", NAMES) == {"bills"}
    assert memory.taken_bytes > before, "with what it matches"
    assert known.matches("kept", NAMES | {"kept"}) == frozenset(), "forgotten"
