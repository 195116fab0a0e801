"""Nothing is written to a store or deleted from it before it is known to be the cluster's, but for its first head."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tiered.cold.local import LocalStore
from tiered.cold.own_store import OwnStore
from tiered.errors import ObjectExists, StoreUnavailable
from tiered.formats.object_key import cluster_checkpoint_key
from tiered.runtime import SystemClock

HEAD = cluster_checkpoint_key()


def put_segment(store: OwnStore) -> None:
    fd = os.open("/dev/null", os.O_RDONLY)
    try:
        store.put_segment("a", fd, 0, b"tail")
    finally:
        os.close(fd)


WRITES: dict[str, Callable[[OwnStore], object]] = {
    "put": lambda store: store.put("a", b"1"),
    "first object": lambda store: store.put("a", b"1", create_only=True),
    "head": lambda store: store.put(HEAD, b"2"),
    "put_segment": put_segment,
    "delete": lambda store: store.delete("there"),
    "abort": lambda store: store.abort_abandoned_uploads("", started_before_ms=0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_waits_until_the_store_is_ours(tmp_path: Path, write: Callable[[OwnStore], object]) -> None:
    inner = LocalStore(tmp_path / "objects")
    inner.put("there", b"1")
    store = OwnStore(inner, SystemClock())
    with pytest.raises(StoreUnavailable, match="not known yet"):
        write(store)
    store.other_cluster_id = "another"
    with pytest.raises(StoreUnavailable, match="belongs to cluster another"):
        write(store)
    assert store.list("") == [("there", 1)]
    assert store.times.failures() == {"list": 0}, "a refusal of ours is no failure of the store"
    store.is_ours = True
    write(store)


def test_the_first_head_is_written_whoever_has_the_store(tmp_path: Path) -> None:
    store = OwnStore(LocalStore(tmp_path / "objects"), SystemClock())
    store.put(HEAD, b"1", create_only=True)
    with pytest.raises(ObjectExists):
        store.put(HEAD, b"2", create_only=True)
    assert store.get(HEAD, max_bytes=10)[0] == b"1"
