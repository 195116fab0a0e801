"""Removes transactional ids that nobody uses any more, and keys under which transactions were committed together.

Owns how many go at once. Must never remove what is open, nor anything of a slot that another broker holds: SQL looks.
"""

from collections.abc import Callable

from tiered.broker.groups.commit_writer import OffsetCommits
from tiered.broker.groups.slots import HeldSlots
from tiered.meta import transactions

EXPIRED_AT_ONCE = 1_000


async def remove_expired(
    commits: OffsetCommits, slots: HeldSlots, *, before_ms: int, forget: Callable[[str], None]
) -> None:
    """Those of these slots that were used before that time alone; `forget` is told each. Raises
    CoordinatorNotAvailable."""
    while held := tuple(slots.epochs):
        gone = await commits.in_turn(
            lambda conn, by, held=held: transactions.remove_expired(  # type: ignore[misc]
                conn, slots=held, before_ms=before_ms, limit=EXPIRED_AT_ONCE, by=by
            )
        )
        for name in gone:
            forget(name)
        if len(gone) < EXPIRED_AT_ONCE:
            break
    await commits.in_turn(lambda conn, _: transactions.remove_old_commits(conn, before_ms=before_ms))
