"""The bucket's checkpoints: what makes it enough by itself. Brokers write them, Spark and restore read them.

Owns the order in which a checkpoint's objects are written: pages first, because a head must never name a page
that is not there; the head last, by compare-and-swap, because a stale writer must never replace a newer one.
Every function blocks. Must never know a broker or an event loop.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from uuid import UUID

from tiered.cold.object_store import ObjectStore, listed
from tiered.errors import (
    Corrupt,
    CorruptObject,
    FencedLeaderEpoch,
    InvalidConfig,
    LostRace,
    ObjectExists,
    ObjectMissing,
    StoreUnavailable,
)
from tiered.formats import object_key, segment_check
from tiered.formats.checkpoint import (
    MAX_PARTITIONS,
    PAGE_ENTRIES,
    ClusterCheckpoint,
    CommittedSegment,
    PageRef,
    PartitionCheckpoint,
    decode_checkpoint_page,
    decode_cluster_checkpoint,
    decode_partition_checkpoint,
    encode_cluster_checkpoint,
    encode_cluster_checkpoint_in_pieces,
    encode_partition_checkpoint,
    sealed,
)
from tiered.formats.checkpoint_bytes import MAX_CHECKPOINT_BYTES
from tiered.formats.checkpoint_pages import with_pages_of
from tiered.formats.json_fields import MAX_VERSION
from tiered.runtime import with_rests

_WRITE_ATTEMPTS = 3
_READ_ATTEMPTS = 3
_KEYS_PER_PAGE = 1000
_MOST_LISTINGS = 1000
"""Of one partition's checkpoints: each names a thousand segments, so that no partition has as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A partition's head as the store has it. `etag` is what a writer must find again to replace it."""

    checkpoint: PartitionCheckpoint
    etag: str


Pages = Mapping[str, tuple[CommittedSegment, ...]]
"""Sealed pages by their keys, in order of offsets."""
_NO_PAGES: Pages = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartition:
    """A partition's head with all that it names: `pages` are those that reach above its log start."""

    head: PartitionCheckpoint
    etag: str
    pages: Pages

    @property
    def segments(self) -> tuple[CommittedSegment, ...]:
        """Segments above `log_start_offset`, oldest first. Between two of them offsets may be missing (deleted before
        they were uploaded), never twice."""
        rows = (*(row for page in self.pages.values() for row in page), *self.head.segments)
        return tuple(row for row in rows if row.end_offset > self.head.log_start_offset)


def read_partition_checkpoint(store: ObjectStore, topic_id: UUID, partition: int) -> StoredCheckpoint | None:
    """The partition's head; None when none was written yet. Raises CorruptObject naming the key."""
    key = object_key.partition_checkpoint_key(topic_id, partition)
    found = _get(store, key)
    if found is None:
        return None
    data, etag = found
    try:
        checkpoint = decode_partition_checkpoint(data)
        if (checkpoint.topic_id, checkpoint.partition) != (topic_id, partition):
            raise CorruptObject("it belongs to another partition")
    except CorruptObject as error:
        raise CorruptObject(f"checkpoint {key}: {error}; a broker writes it anew after its next commit") from error
    return StoredCheckpoint(checkpoint=checkpoint, etag=etag)


def write_partition_checkpoint(
    store: ObjectStore,
    checkpoint: PartitionCheckpoint,
    *,
    page_entries: int = PAGE_ENTRIES,
    known: Collection[PageRef] = (),
) -> PartitionCheckpoint:
    """Writes the head that says what `checkpoint` does, and the pages it needs; answers with it as written.

    `checkpoint` holds all committed segments and no pages. Its `version` is raised above that of the head it
    replaces; nothing is written when the head says the same already. `known` are the pages of what was written last:
    others that the head names are compared with the segments. Raises FencedLeaderEpoch when the head comes from a newer
    leader, LostRace when others keep writing it, InvalidConfig when another cluster owns it.
    """
    for _ in range(_WRITE_ATTEMPTS):
        # A head that cannot be read is replaced: SQL, not the bucket, is the authority.
        before, etag = _head_to_replace(store, checkpoint)
        _require_own(before, checkpoint)
        # No writer counts so far: one that wrote such a number would make our next one unreadable.
        seen = 0 if before is None or before.version >= MAX_VERSION else before.version
        version = max(checkpoint.version, seen + 1)
        taken_over = with_pages_of(
            before, replace(checkpoint, version=version), partial(_page_of, store, before), known=known
        )
        result = sealed(taken_over, page_entries)
        if before is not None and _says_the_same(before, result.checkpoint):
            return before
        for reference, data in result.pages:
            _put_page(store, reference.key, data)
        key = object_key.partition_checkpoint_key(checkpoint.topic_id, checkpoint.partition)
        try:
            store.put(key, encode_partition_checkpoint(result.checkpoint), create_only=etag is None, if_match=etag)
        except (LostRace, ObjectExists):
            continue
        return result.checkpoint
    raise LostRace(
        f"the checkpoint of {checkpoint.topic}-{checkpoint.partition} is being written by somebody else; "
        "is another leader alive?"
    )


def _head_to_replace(
    store: ObjectStore, checkpoint: PartitionCheckpoint
) -> tuple[PartitionCheckpoint | None, str | None]:
    """The part of the present head that can be taken over, and its etag, None where there is no head."""
    try:
        stored = read_partition_checkpoint(store, checkpoint.topic_id, checkpoint.partition)
    except CorruptObject:
        found = store.head(object_key.partition_checkpoint_key(checkpoint.topic_id, checkpoint.partition))
        return None, found.etag if found is not None else None
    return (None, None) if stored is None else (stored.checkpoint, stored.etag)


def _require_own(before: PartitionCheckpoint | None, checkpoint: PartitionCheckpoint) -> None:
    if before is None:
        return
    name = f"{checkpoint.topic}-{checkpoint.partition}"
    if before.cluster_id != checkpoint.cluster_id:
        raise InvalidConfig(f"the store holds {name} of cluster {before.cluster_id}; use another prefix or bucket")
    if before.leader_epoch > checkpoint.leader_epoch:
        raise FencedLeaderEpoch(
            f"the checkpoint of {name} comes from leader epoch {before.leader_epoch}, this is {checkpoint.leader_epoch}"
        )


def _says_the_same(before: PartitionCheckpoint, after: PartitionCheckpoint) -> bool:
    return replace(after, version=before.version, high_watermark=before.high_watermark) == before


def _page_of(store: ObjectStore, head: PartitionCheckpoint | None, reference: PageRef) -> tuple[CommittedSegment, ...]:
    """The segments in a page of the head; empty when the page is lost or damaged: it is sealed anew then."""
    assert head is not None, "whoever has a page has its head"
    try:
        return read_page(store, reference, head.topic_id, head.partition)
    except Corrupt:
        return ()


def _put_page(store: ObjectStore, key: str, data: bytes) -> None:
    try:
        store.put(key, data, create_only=True)
    except ObjectExists:
        # The key carries the content's hash: every writer of this key wrote the same, unless it is damaged.
        if store.get(key, max_bytes=MAX_CHECKPOINT_BYTES)[0] != data:
            store.put(key, data)


def read_partition(
    store: ObjectStore, topic_id: UUID, partition: int, *, known: Pages = _NO_PAGES
) -> StoredPartition | None:
    """The partition's head, and its pages above the log start; None when there is no head. A page's key has its hash:
    those that are `known` are not read again.

    Raises CorruptObject or ObjectMissing naming the object.
    """
    for attempt in range(_READ_ATTEMPTS):
        stored = read_partition_checkpoint(store, topic_id, partition)
        if stored is None:
            return None
        head = stored.checkpoint
        wanted = [page for page in head.pages if page.end_offset > head.log_start_offset]
        try:
            pages = {
                page.key: known.get(page.key) or read_own_page(store, page, topic_id, partition) for page in wanted
            }
        except ObjectMissing:
            # The head may have moved on, and the page been removed, since it was read.
            if attempt == _READ_ATTEMPTS - 1:
                raise
            continue
        require_own(head.segments, topic_id, partition)
        return StoredPartition(head=head, etag=stored.etag, pages=pages)
    raise AssertionError("unreachable")


def read_own_page(store: ObjectStore, page: PageRef, topic_id: UUID, partition: int) -> tuple[CommittedSegment, ...]:
    """As `read_page`, with segments that are the partition's own."""
    return require_own(read_page(store, page, topic_id, partition), topic_id, partition)


def require_own(segments: tuple[CommittedSegment, ...], topic_id: UUID, partition: int) -> tuple[CommittedSegment, ...]:
    """`segments` of a head or a page, if the objects that they name are the partition's. Raises CorruptObject.

    Objects named under one topic are read with that topic's rights, and deleted with its retention.
    """
    for segment in segments:
        foreign = segment_check.check_key(segment, topic_id, partition)
        if foreign is not None:
            raise CorruptObject(
                f"the checkpoint of partition {partition} of topic {topic_id} has a fault at offsets "
                f"{foreign.first_offset} to {foreign.last_offset}, object {segment.object_key}: {foreign.message}; "
                "`tiered verify` tells more"
            )
    return segments


def read_page(store: ObjectStore, page: PageRef, topic_id: UUID, partition: int) -> tuple[CommittedSegment, ...]:
    """The segments of a page that the partition's head names. Raises CorruptObject or ObjectMissing naming it."""
    data, _ = store.get(page.key, max_bytes=MAX_CHECKPOINT_BYTES)
    try:
        found = decode_checkpoint_page(data, page)
        if (found.topic_id, found.partition) != (topic_id, partition):
            raise CorruptObject("it belongs to another partition")
    except CorruptObject as error:
        raise CorruptObject(
            f"checkpoint page {page.key}, offsets {page.first_base_offset} to {page.end_offset - 1} of partition "
            f"{partition} of topic {topic_id}: {error}; restore it, or rebuild the checkpoint"
        ) from error
    return found.segments


def delete_partition_checkpoint(store: ObjectStore, topic_id: UUID, partition: int) -> None:
    """Removes the head, then its pages: of a deleted topic nothing stays behind. Idempotent.

    Raises StoreUnavailable, also where the store lists more after each deletion: it would never be done.
    """
    store.delete(object_key.partition_checkpoint_key(topic_id, partition))
    prefix = object_key.partition_checkpoint_prefix(topic_id, partition)
    for _ in range(_MOST_LISTINGS):
        keys = store.list(prefix, limit=_KEYS_PER_PAGE)
        if not keys:
            return
        for key, _ in keys:
            store.delete(key)
    raise StoreUnavailable(f"the store has ever more objects below {prefix}; look what writes them")


def list_partitions(store: ObjectStore, topic_id: UUID | None = None) -> list[tuple[UUID, int]]:
    """Topic id and partition of every head in the store, or of one topic's."""
    prefix = object_key.PARTITION_CHECKPOINTS_PREFIX + (f"{topic_id}/" if topic_id is not None else "")
    found: list[tuple[UUID, int]] = []
    for key, _ in listed(store, prefix):
        parsed = object_key.parse_partition_checkpoint_key(key)
        found.extend([] if parsed is None else [parsed])
        if len(found) > MAX_PARTITIONS:
            raise CorruptObject(f"the store has checkpoints of more than {MAX_PARTITIONS} partitions")
    return sorted(found)


def read_cluster_checkpoint(store: ObjectStore) -> ClusterCheckpoint | None:
    """The cluster's topics and configs; None when nothing was written yet. Raises CorruptObject naming the key."""
    found = read_stored_cluster_checkpoint(store)
    return None if found is None else found[0]


def read_stored_cluster_checkpoint(store: ObjectStore) -> tuple[ClusterCheckpoint, str] | None:
    """As `read_cluster_checkpoint`, with the etag that a writer must find again to replace it."""
    found = _get(store, object_key.cluster_checkpoint_key())
    return None if found is None else (_decode_cluster(found[0]), found[1])


def create_cluster_checkpoint(store: ObjectStore, checkpoint: ClusterCheckpoint) -> None:
    """Writes it where the store has none. Raises ObjectExists."""
    store.put(object_key.cluster_checkpoint_key(), encode_cluster_checkpoint(checkpoint), create_only=True)


def write_cluster_checkpoint(
    store: ObjectStore, checkpoint: ClusterCheckpoint, known: tuple[ClusterCheckpoint, str] | None = None
) -> tuple[ClusterCheckpoint, str]:
    """(the checkpoint that the store has now, its etag). Writes it, unless the store has the same. `known` is what the
    last write gave: what is still there is not read again, as that takes much time where there are many topics.

    Raises LostRace when the store has a newer version, InvalidConfig when it belongs to another cluster.
    """
    key = object_key.cluster_checkpoint_key()
    if known is not None and _replaces(known[0], checkpoint):
        try:
            return _put_cluster(store, _continuing(known[0], checkpoint), known[1])
        except (LostRace, ObjectExists):
            pass  # It was changed since.
    for _ in range(_WRITE_ATTEMPTS):
        found = _get(store, key)
        etag = None if found is None else found[1]
        if found is not None:
            try:
                before = _decode_cluster(found[0])
            except CorruptObject:
                before = None
            if before is not None:
                if not _replaces(before, checkpoint):
                    return before, found[1]
                checkpoint = _continuing(before, checkpoint)
        try:
            return _put_cluster(store, checkpoint, etag)
        except (LostRace, ObjectExists):
            continue
    raise LostRace("the cluster's checkpoint is being written by somebody else; it is tried again")


def _put_cluster(store: ObjectStore, checkpoint: ClusterCheckpoint, etag: str | None) -> tuple[ClusterCheckpoint, str]:
    """In the place of the object that has the etag; None where there is none."""
    data = with_rests(encode_cluster_checkpoint_in_pieces(checkpoint))
    written = store.put(object_key.cluster_checkpoint_key(), data, create_only=etag is None, if_match=etag)
    return checkpoint, written.etag


def _replaces(before: ClusterCheckpoint, checkpoint: ClusterCheckpoint) -> bool:
    if before.cluster_id != checkpoint.cluster_id:
        raise InvalidConfig(
            f"the store belongs to cluster {before.cluster_id}, this one is {checkpoint.cluster_id}; use another "
            "prefix or bucket, or the database that belongs to this store"
        )
    if before.version > checkpoint.version:
        raise LostRace(
            f"the cluster's checkpoint has version {before.version}, newer than {checkpoint.version}; was the "
            "database restored from a backup?"
        )
    return before != _continuing(before, checkpoint)


def _continuing(before: ClusterCheckpoint, checkpoint: ClusterCheckpoint) -> ClusterCheckpoint:
    """With the ids that the cluster had before it was restored: the bucket alone knows them."""
    return replace(checkpoint, previous_cluster_ids=before.previous_cluster_ids)


def _decode_cluster(data: bytes) -> ClusterCheckpoint:
    try:
        return decode_cluster_checkpoint(data)
    except CorruptObject as error:
        raise CorruptObject(
            f"checkpoint {object_key.cluster_checkpoint_key()}: {error}; a broker writes it anew after the next change"
        ) from error


def _get(store: ObjectStore, key: str) -> tuple[bytes, str] | None:
    try:
        return store.get(key, max_bytes=MAX_CHECKPOINT_BYTES)
    except ObjectMissing:
        return None
