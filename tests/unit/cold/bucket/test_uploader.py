"""What is checked before an upload, and after it."""

import os
from pathlib import Path

import pytest

from tests.unit.cold.stored_segments import NO_ROOT, PARTITION, TOPIC, TOPIC_ID, batches, store_segment
from tiered.cold.bucket import uploader
from tiered.cold.bucket.uploader import DescribedSegment
from tiered.cold.local import LocalStore
from tiered.errors import CorruptBatch, CorruptFile, CorruptObject, ObjectMissing
from tiered.formats import segment_object


def describe(path: Path, size_bytes: int) -> DescribedSegment:
    with path.open("rb") as file:
        return uploader.describe(
            file.fileno(),
            size_bytes,
            cluster_id="cluster-1",
            topic_id=TOPIC_ID,
            topic=TOPIC,
            partition=PARTITION,
            leader_epochs=((1, 0),),
            producer_snapshot=b"snapshot",
            previous_root_sha256=bytes.fromhex(NO_ROOT),
        )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(batches(tuple(range(3000)), base_offset=0, records_per_batch=10, value_bytes=1000)))
    return path


def test_description_is_of_exactly_the_bytes_asked_for(log: Path) -> None:
    size_bytes = log.stat().st_size
    described = describe(log, size_bytes)
    with log.open("ab") as file:
        file.write(b"appended meanwhile")
    assert describe(log, size_bytes) == described
    tail = segment_object.read_tail(described.tail, described.object_bytes)
    assert tail.footer.log_bytes == size_bytes
    assert tail.footer.end_offset == 3000
    assert tail.producer_snapshot == b"snapshot"
    assert len(tail.chunks) > 2


def test_corrupt_batch_is_never_described(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptBatch):
        describe(log, len(data))


def test_cut_batch_is_never_described(log: Path) -> None:
    with pytest.raises(CorruptBatch):
        describe(log, log.stat().st_size - 1)


def test_file_shorter_than_its_segment_is_named(log: Path) -> None:
    with pytest.raises(CorruptFile, match="orders-3"):
        describe(log, log.stat().st_size + 1)


def test_what_the_store_holds_is_compared_with_what_was_sent(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    store = LocalStore(tmp_path / "objects")
    stored = store_segment(store, tmp_path, range(100))
    key, size_bytes = stored.committed.object_key, stored.committed.size_bytes
    whole, _ = store.get(key, max_bytes=size_bytes)
    tail = whole[stored.committed.log_bytes :]
    uploader.verify_stored(store, key, size_bytes, tail)
    store.put(key, whole[:-1])
    with pytest.raises(CorruptObject, match="bytes where"):
        uploader.verify_stored(store, key, size_bytes, tail)
    store.put(key, whole[:-20] + os.urandom(20))
    with pytest.raises(CorruptObject, match="does not end"):
        uploader.verify_stored(store, key, size_bytes, tail)
    store.delete(key)
    with pytest.raises(ObjectMissing):
        uploader.verify_stored(store, key, size_bytes, tail)
