"""How long a coordinator may answer with offsets that it has read before, and when its successor may change them (R12).

Owns the two times, the only ones that decide about safety. Pure. Whoever answers counts from before it asked SQL, which
said that the slot was its own; whoever gets a slot counts from after SQL has given it away. So the first time is over
before the second, in whatever way the slot changed hands and whoever knows of it, as long as two machines agree to a
fifth about how long a quarter of a second is.
"""

ANSWERS_MS = 200.0
ASKS_AGAIN_MS = 100.0
"""Before the time is over: one asks then, and the others need not wait for it."""
SUCCESSOR_WAITS_MS = 250.0


def may_answer(*, asked_ms: float, now_ms: float) -> bool:
    """Whether SQL's word of `asked_ms`, that a slot is the coordinator's, is enough to answer for its groups."""
    return now_ms - asked_ms < ANSWERS_MS


def is_to_be_asked_again(*, asked_ms: float, now_ms: float) -> bool:
    """Whether somebody should ask SQL for its word again."""
    return now_ms - asked_ms >= ASKS_AGAIN_MS


def successor_waits_ms(*, gained_ms: float, now_ms: float) -> float:
    """How long a coordinator that learned at `gained_ms` of a slot of its own changes nothing in it yet."""
    return max(0.0, gained_ms + SUCCESSOR_WAITS_MS - now_ms)
