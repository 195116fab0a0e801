"""Which slot a group belongs to, and which broker a slot: the unit in which groups go from one broker to another.

Owns the hash and the spreading over brokers. Pure. The hash is Kafka's, so that tools that compute a group's
partition of `__consumer_offsets` are right about the slot.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache


@lru_cache(1024)  # Each request of a coordinator asks several times.
def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, wrapped to a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8) + units[position + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def coordinator_slot(group_id: str, slots: int) -> int:
    """0 to `slots` - 1; `slots` is `offsets.topic.num.partitions`."""
    assert slots > 0, "there is at least one slot"
    return (java_string_hash(group_id) & 0x7FFFFFFF) % slots


def assigned(
    holders: Mapping[int, int | None], live: Collection[int], *, may_move: Collection[int] | None = None
) -> Mapping[int, int]:
    """The slots that get a broker, and which: as few as possible. Empty where nobody lives.

    `holders` has every slot; one that nobody alive holds (None, or none of `live`) goes to a broker that has the
    fewest. Then those with the most give to those with the fewest until all have equally many, or one more. Only
    slots of `may_move` are taken from the living (None: any): their groups lose their members.
    """
    slots_of: dict[int, list[int]] = {broker_id: [] for broker_id in sorted(live)}
    if not slots_of:
        return {}
    changes: dict[int, int] = {}
    orphans = []
    for slot, broker_id in sorted(holders.items()):
        if broker_id in slots_of:
            assert broker_id is not None, "a broker has an id"
            slots_of[broker_id].append(slot)
        else:
            orphans.append(slot)
    count_of = Counter({broker_id: len(held) for broker_id, held in slots_of.items()})

    def give(slot: int) -> None:
        poorest = min(slots_of, key=lambda broker_id: (count_of[broker_id], broker_id))
        changes[slot] = poorest
        count_of[poorest] += 1

    for slot in orphans:
        give(slot)
    movable = {
        broker_id: [slot for slot in held if may_move is None or slot in may_move]
        for broker_id, held in slots_of.items()
    }
    while True:
        # A broker that has just been given a slot is among the poorest, and gives none away.
        givers = [broker_id for broker_id, held in movable.items() if held]
        richest = max(givers, key=lambda broker_id: (count_of[broker_id], broker_id), default=None)
        if richest is None or count_of[richest] - min(count_of.values()) < 2:
            return changes
        count_of[richest] -= 1
        give(movable[richest].pop())
