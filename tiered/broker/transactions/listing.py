"""Lists of transactional ids, for people and tools.

Owns their bound. SQL gives a part at a time, of which only what is wanted is kept. Must never leave any out silently.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence

from tiered.errors import PolicyViolation
from tiered.meta import transactions
from tiered.meta.engine import Database
from tiered.rules.security.authorization import NameScope
from tiered.rules.transactions.transaction_state import Transaction

MAX_LISTED = 100_000
LISTED_AT_ONCE = 100


async def listed(
    database: Database,
    slots: Collection[int],
    scope: NameScope,
    is_wanted: Callable[[Transaction], bool],
    *,
    open_only: bool,
    with_partitions: bool,
) -> AsyncIterator[Transaction]:
    """The transactional ids of these slots that are wanted, by id; the scope holds them all. Without `with_partitions`
    they seem to have none.

    With `open_only` those that have nothing open, nor decided and not carried out, are not looked at.

    Raises MetadataUnavailable, and PolicyViolation where more than MAX_LISTED are wanted.
    """
    left = MAX_LISTED
    page: Sequence[Transaction] = ()
    while slots and not scope.is_nothing:
        after = page[-1].transactional_id if page else ""
        page = await database.read_part(
            lambda conn, after=after: transactions.load_some(  # type: ignore[misc]
                conn,
                slots=slots,
                after=after,
                limit=LISTED_AT_ONCE,
                open_only=open_only,
                with_partitions=with_partitions,
                scope=scope,
            )
        )
        for each in filter(is_wanted, page):
            left -= 1
            if left < 0:
                raise PolicyViolation(
                    f"more than {MAX_LISTED} transactional ids would be listed: ask for some of them, by their state, "
                    "producer or name"
                )
            yield each
        if len(page) < LISTED_AT_ONCE:
            return
