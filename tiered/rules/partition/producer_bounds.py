"""How many idempotent producers a broker remembers: ids are the clients' choice, and each costs half a KiB.

Owns the decision whose producers are forgotten. Pure. Whoever has few loses none, whatever others have: what a client
makes up in one topic must not cost another topic its producers.
"""

from collections.abc import Sequence


def most_each(counts: Sequence[int], limit: int) -> int:
    """How many each partition may keep, so that all of them keep `limit` at the most, where `counts` is what they have.

    The largest number that will do, and 1 at the least: the last producer of a partition is the one that writes.
    """
    left = limit
    ordered = sorted(counts)
    for position, count in enumerate(ordered):
        share = left // (len(ordered) - position)
        if count > share:
            return max(1, share)
        left -= count
    return max(ordered, default=1)
