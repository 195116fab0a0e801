"""Signs of life in the bucket: an object for each broker of a cluster, which it writes again every minute.

The object's age is what counts, by the store's own clock; it holds nothing. So whoever has only the bucket can tell
that a cluster still serves: a checkpoint is written when something changes, and a cluster that nobody writes to
changes nothing. Owns how old a sign may be. A broker that was stopped removes its own. Every function blocks. Must
never be what a decision about safety rests on: checkpoints are taken over by compare-and-swap.
"""

from tiered.cold.object_store import ObjectStore, listed
from tiered.formats import object_key

SIGN_INTERVAL_MS = 60_000.0
ALIVE_MS = 3 * SIGN_INTERVAL_MS
"""A sign that is younger is one of a broker that lives, or was killed just now."""


def leave(store: ObjectStore, cluster_id: str, broker_id: int) -> None:
    """Raises StoreUnavailable."""
    store.put(object_key.sign_of_life_key(cluster_id, broker_id), b"")


def remove(store: ObjectStore, cluster_id: str, broker_id: int) -> None:
    """Raises StoreUnavailable."""
    store.delete(object_key.sign_of_life_key(cluster_id, broker_id))


def live_brokers(store: ObjectStore, cluster_id: str) -> tuple[int, ...]:
    """The brokers of the cluster whose sign is young, or of unknown age. Raises StoreUnavailable."""
    live = []
    for key, _ in listed(store, object_key.signs_of_life_prefix(cluster_id)):
        broker_id = object_key.parse_sign_of_life_key(key)
        info = None if broker_id is None else store.head(key)
        if broker_id is not None and info is not None and (info.age_ms is None or info.age_ms < ALIVE_MS):
            live.append(broker_id)
    return tuple(sorted(live))
