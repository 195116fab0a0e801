"""Which slot a group belongs to: the unit in which groups are handed from one broker to another.

Owns the hash. Pure. It is Kafka's, so that tools that compute a group's partition of `__consumer_offsets`
are right about the slot.
"""


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
