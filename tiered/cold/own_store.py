"""A broker's object store, which takes no write before it is known to be its cluster's.

Owns the refusal. Must never let an object be written or deleted below a prefix that may be another cluster's: no
restore would look for what is written there, and what is deleted may be theirs. One write decides whose the store is,
and passes: the first checkpoint of a cluster, which is written only where there is none.
"""

from tiered.cold.object_store import ObjectInfo, ObjectStore
from tiered.cold.timed_store import TimedStore
from tiered.errors import StoreUnavailable
from tiered.formats.object_key import cluster_checkpoint_key
from tiered.runtime import Clock


class OwnStore(TimedStore):
    """`store`, measured. Reads always pass."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        super().__init__(store, clock)
        self.is_ours = False
        """Whether the store was seen to be this cluster's. `broker.tiering.store_owner` alone sets it."""
        self.other_cluster_id = ""
        """The cluster that the store was seen to belong to instead."""

    def put(self, key: str, data: bytes, *, create_only: bool = False, if_match: str | None = None) -> ObjectInfo:
        if not (create_only and key == cluster_checkpoint_key()):
            self._require_ours(key)
        return super().put(key, data, create_only=create_only, if_match=if_match)

    def put_segment(
        self, key: str, fd: int, log_bytes: int, tail: bytes, *, timeout_ms: float | None = None
    ) -> ObjectInfo:
        self._require_ours(key)
        return super().put_segment(key, fd, log_bytes, tail, timeout_ms=timeout_ms)

    def delete(self, key: str) -> None:
        self._require_ours(key)
        super().delete(key)

    def abort_abandoned_uploads(self, prefix: str, *, started_before_ms: int) -> tuple[str, ...]:
        self._require_ours(prefix)
        return super().abort_abandoned_uploads(prefix, started_before_ms=started_before_ms)

    def _require_ours(self, key: str) -> None:
        """Raises StoreUnavailable: what is refused may be allowed later."""
        if self.is_ours:
            return
        if self.other_cluster_id:
            raise StoreUnavailable(f"{key}: the store belongs to cluster {self.other_cluster_id}")
        raise StoreUnavailable(f"{key}: it is not known yet whether the store is this cluster's")
