"""Whose the object store is: this cluster's, or another's that was there first or has taken it over.

    unknown --(head names this cluster, or there is none and we write it)--> ours
    unknown, ours --(head names another cluster)--> another's
    another's --(head names this cluster again, or is gone and we write it)--> ours

The head is the cluster's checkpoint in the bucket. Who writes it first has the store: the first one is written by a
put that replaces nothing. Before a broker is ready another's store ends its start; later the broker serves from its
disks alone. Owns the answer (`OwnStore` acts on it) and the sign of life that a broker leaves in its store. Must never
keep a broker from its start because the store is away.
"""

import asyncio
import logging
import threading

from tiered.broker.context import BrokerContext
from tiered.broker.tiering.checkpoints import CheckpointWriter
from tiered.broker.tiering.store_look import LOOK_MS, StoreLook
from tiered.cold.bucket import checkpoints, signs_of_life
from tiered.cold.bucket.signs_of_life import SIGN_INTERVAL_MS
from tiered.errors import Corrupt, InvalidConfig, StoreRefused, TieredError
from tiered.formats import object_key
from tiered.formats.checkpoint import ClusterCheckpoint
from tiered.meta import cluster

log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 500.0


class StoreOwner:
    """What one broker knows of its store's owner."""

    def __init__(self, *, context: BrokerContext, checkpoints: CheckpointWriter) -> None:
        self._context = context
        self._checkpoints = checkpoints
        self._etag = ""
        """Of the head that was read last: a head that has not changed is not read again."""
        self._pause_ms = FIRST_PAUSE_MS
        self._refusal = ""
        """Why the store is not this cluster's, and what to do."""
        self._sign_lock = threading.Lock()
        self._has_left = False

    def interval_ms(self) -> float:
        """Until the next look; while the owner is not known each pause is twice the one before."""
        return self._pause_ms

    async def check_before_registration(self, look: StoreLook) -> None:
        """Returns when the store may be this database's. Raises InvalidConfig, with nothing changed, where the store's
        head names another cluster."""
        if look.head is not None:
            row = await self._context.database.read(cluster.find)
            own_id = "" if row is None else row.cluster_id
            if look.head.cluster_id != own_id:
                raise InvalidConfig(_refusal(self._context.store.url, look.head, own_id))

    async def check_before_ready(self, look: StoreLook) -> None:
        """Takes a store that has no head yet. Raises InvalidConfig where another cluster was quicker, StoreRefused."""
        if not look.has_answered:
            return
        try:
            if look.head is not None:
                self._settle(look.head)
            else:
                async with asyncio.timeout(LOOK_MS / 1000.0):
                    await self._refresh()
        except (StoreRefused, InvalidConfig):
            raise
        except (TieredError, TimeoutError) as error:
            log.warning("whether the store is this cluster's is not known yet, uploads wait for that: %s", error)
        if self._refusal:
            raise InvalidConfig(self._refusal)

    async def tick(self) -> None:
        """Looks whose the store is, and leaves a sign of life in this cluster's. Raises TieredError."""
        if not self._context.store.is_ours:
            self._pause_ms = min(SIGN_INTERVAL_MS, 2 * self._pause_ms)
        before = self._refusal
        await self._refresh()
        self._pause_ms = SIGN_INTERVAL_MS
        if self._refusal and not before:
            log.error("nothing is uploaded any more, and no local copy deleted: %s", self._refusal)
        elif before and not self._refusal:
            log.warning("the store is this cluster's again: uploads go on")
        if self._context.store.is_ours:
            await self._context.uploads.run(self._write_sign)

    async def leave(self) -> None:
        """Takes the sign of life back: a stopped cluster may be restored at once. Raises StoreUnavailable."""
        store = self._context.store
        if store.is_ours and not store.times.is_failing:
            await self._context.uploads.run(self._remove_sign)

    # In threads. A write whose task was cancelled still runs when the broker stops: the removal waits for it.

    def _write_sign(self) -> None:
        with self._sign_lock:
            if not self._has_left:
                context = self._context
                signs_of_life.leave(context.store, context.state.cluster_id, context.broker_id)

    def _remove_sign(self) -> None:
        with self._sign_lock:
            self._has_left = True
            context = self._context
            signs_of_life.remove(context.store, context.state.cluster_id, context.broker_id)

    async def _refresh(self) -> None:
        """Reads the head, where there is none it is written first. Raises TieredError."""
        if self._etag:
            info = await self._context.uploads.run(self._context.store.head, object_key.cluster_checkpoint_key())
            if info is not None and info.etag == self._etag:
                return
        stored = await self._read()
        if stored is None:
            await self._checkpoints.create_cluster_checkpoint()
            stored = await self._read()
        if stored is not None:  # Else somebody removes it as we write it: the next look sees.
            head, self._etag = stored
            self._settle(head)

    async def _read(self) -> tuple[ClusterCheckpoint, str] | None:
        try:
            return await self._context.uploads.run(checkpoints.read_stored_cluster_checkpoint, self._context.store)
        except Corrupt as error:
            if self._context.store.is_ours:
                raise
            raise type(error)(
                f"{error}. Until then nobody can tell whose the store is, and nothing is uploaded or deleted: put the "
                "object back, or remove it if no other cluster has this prefix"
            ) from error

    def _settle(self, head: ClusterCheckpoint) -> None:
        store, own_id = self._context.store, self._context.state.cluster_id
        store.is_ours = head.cluster_id == own_id
        store.other_cluster_id = "" if store.is_ours else head.cluster_id
        self._refusal = "" if store.is_ours else _refusal(store.url, head, own_id)


def _refusal(url: str, head: ClusterCheckpoint, own_id: str) -> str:
    """Why the store that has `head` is not for cluster `own_id` ("" for a new database), and what to do."""
    if own_id in head.previous_cluster_ids:
        return (
            f"the store {url} belongs to cluster {head.cluster_id}, which was restored from this one, {own_id}: "
            "what is uploaded by this one would be lost. Stop its brokers for good, and start brokers with the --meta "
            "of the restored cluster and with empty data folders (docs/restore.md)"
        )
    database = f"--meta is that of cluster {own_id}" if own_id else "the database of --meta is a new one"
    return (
        f"the store {url} belongs to cluster {head.cluster_id}, and {database}: no restore would find what is uploaded "
        f"there. Give --store another prefix; or the --meta of cluster {head.cluster_id}; or, where that database is "
        "lost, bring the cluster back with `tiered restore`. To use the prefix for a cluster of its own, remove "
        "all objects below it first (docs/operations.md, One prefix for one cluster)"
    )
