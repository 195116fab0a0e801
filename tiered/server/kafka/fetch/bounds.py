"""How long a Fetch may wait and what it may take, at a broker as at a read replica.

Owns these numbers alone.
"""

from tiered.errors import MalformedRequest

# A longer wait than any client asks for; it bounds how long a vanished client's wait can last.
MAX_WAIT_MS = 600_000
# What a cold partition takes of the request's budget at the least: each one costs a read from the store.
LEAST_COLD_BYTES = 64 << 10
COLD_READS_AT_ONCE = 16
# Partitions in all fetches that wait at one time: each takes half a KiB. One more fetch is answered at once.
MAX_WAITING_PARTITIONS = 1_000_000


def too_many_partitions(limit: int) -> MalformedRequest:
    """Why a connection ends whose Fetch asks for more partitions than there can be."""
    return MalformedRequest(f"a Fetch asks for more than {limit} partitions; more cannot be (tiered.max.partitions)")
