"""The one look at the object store before a broker registers: what only a person can put right is said at once.

Owns how long it may take. Must never keep a broker from its start because the store is away.
"""

import asyncio
import logging
from dataclasses import dataclass

from tiered.cold.bucket import checkpoints
from tiered.cold.object_store import ObjectStore
from tiered.errors import InvalidConfig, StoreRefused, StoreTrouble, TieredError
from tiered.formats.checkpoint import ClusterCheckpoint
from tiered.formats.object_key import CHECKPOINTS_PREFIX
from tiered.runtime import BlockingPool

log = logging.getLogger(__name__)

LOOK_MS = 3_000.0
_PASSES = (StoreTrouble.EXPIRED, StoreTrouble.FULL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLook:
    """Whether the store answered, and the cluster's checkpoint in it, if there is one."""

    has_answered: bool
    head: ClusterCheckpoint | None = None


async def look_at_store(store: ObjectStore, pool: BlockingPool) -> StoreLook:
    """Returns when the store answers, or is away. Raises StoreRefused where there is no such bucket, or not for us;
    credentials that have expired, or room, come without a restart."""

    def look() -> ClusterCheckpoint | None:
        listed = store.list(CHECKPOINTS_PREFIX, limit=1)
        return checkpoints.read_cluster_checkpoint(store) if listed else None

    try:
        async with asyncio.timeout(LOOK_MS / 1000.0):
            return StoreLook(has_answered=True, head=await pool.run(look))
    except InvalidConfig:
        raise
    except (TieredError, TimeoutError) as error:
        if isinstance(error, StoreRefused) and error.trouble not in _PASSES:
            raise
        reason = str(error) or f"{store.url} did not answer in {LOOK_MS / 1000:g} s"
        log.warning("starting without the store, uploads wait for it: %s", reason)
        return StoreLook(has_answered=False)
