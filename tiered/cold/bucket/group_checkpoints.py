"""Checkpoints of consumer groups in the bucket: one object for each coordinator slot.

Owns that an older holder of a slot never replaces what a newer one wrote: by the slot's epoch, and by
compare-and-swap. Every function blocks. Must never know a broker or an event loop.
"""

from tiered.cold.object_store import ObjectStore, listed
from tiered.errors import CorruptObject, FencedLeaderEpoch, InvalidConfig, LostRace, ObjectExists, ObjectMissing
from tiered.formats import object_key
from tiered.formats.checkpoint_bytes import MAX_CHECKPOINT_BYTES
from tiered.formats.group_checkpoint import GroupCheckpoint, decode_group_checkpoint, encode_group_checkpoint

_WRITE_ATTEMPTS = 3


def read_group_checkpoint(store: ObjectStore, slot: int) -> tuple[GroupCheckpoint, str] | None:
    """The slot's checkpoint and its etag; None where none was written. Raises CorruptObject naming the key."""
    key = object_key.group_checkpoint_key(slot)
    try:
        data, etag = store.get(key, max_bytes=MAX_CHECKPOINT_BYTES)
    except ObjectMissing:
        return None
    try:
        checkpoint = decode_group_checkpoint(data)
        if checkpoint.slot != slot:
            raise CorruptObject(f"it is that of slot {checkpoint.slot}")
    except CorruptObject as error:
        raise type(error)(f"checkpoint {key}: {error}; its coordinator writes it anew after the next commit") from error
    return checkpoint, etag


def list_slots(store: ObjectStore) -> list[int]:
    """The slots that have a checkpoint in the store."""
    slots = (
        object_key.parse_group_checkpoint_key(key) for key, _ in listed(store, object_key.GROUP_CHECKPOINTS_PREFIX)
    )
    return sorted(slot for slot in slots if slot is not None)


def write_group_checkpoint(store: ObjectStore, checkpoint: GroupCheckpoint) -> None:
    """Writes it, unless the store has the same, or nothing and there is nothing to say.

    Raises FencedLeaderEpoch when the store's comes from a newer holder of the slot, InvalidConfig when another cluster
    owns it, LostRace when others keep writing it.
    """
    key = object_key.group_checkpoint_key(checkpoint.slot)
    for _ in range(_WRITE_ATTEMPTS):
        try:
            found = read_group_checkpoint(store, checkpoint.slot)
        except CorruptObject:
            # Replaced: SQL, not the bucket, is the authority.
            info = store.head(key)
            before, etag = None, None if info is None else info.etag
        else:
            before, etag = (None, None) if found is None else found
        if before is not None:
            _require_own(before, checkpoint)
        if before == checkpoint or (etag is None and not checkpoint.groups):
            return
        try:
            store.put(key, encode_group_checkpoint(checkpoint), create_only=etag is None, if_match=etag)
        except (LostRace, ObjectExists):
            continue
        return
    raise LostRace(f"the checkpoint of group slot {checkpoint.slot} is being written by somebody else")


def _require_own(before: GroupCheckpoint, checkpoint: GroupCheckpoint) -> None:
    if before.cluster_id != checkpoint.cluster_id:
        raise InvalidConfig(
            f"the store holds group offsets of cluster {before.cluster_id}; use another prefix or bucket"
        )
    if before.slot_epoch > checkpoint.slot_epoch:
        raise FencedLeaderEpoch(
            f"the checkpoint of group slot {checkpoint.slot} comes from slot epoch {before.slot_epoch}, this is "
            f"{checkpoint.slot_epoch}"
        )
