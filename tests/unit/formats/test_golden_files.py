"""Files that were written once stay readable, and today's writers still write them."""

import pytest

from tests.golden import regenerate as golden
from tiered.formats import record_batch
from tiered.formats.checkpoint import (
    decode_checkpoint_page,
    decode_cluster_checkpoint,
    decode_partition_checkpoint,
)
from tiered.formats.disk_report import decode_disk_report
from tiered.formats.group_checkpoint import decode_group_checkpoint
from tiered.formats.group_members import decode_classic_group, decode_consumer_group
from tiered.formats.leader_epoch_file import decode_leader_epochs
from tiered.formats.offset_index import OffsetIndex
from tiered.formats.producer_snapshot import decode_producers
from tiered.formats.record_batch import Compression
from tiered.formats.segment_object import ChunkTable, read_tail
from tiered.formats.time_index import TimeIndex
from tiered.formats.transaction_index import TransactionIndex


def content(name: str) -> bytes:
    return (golden.FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", golden.written_today())
def test_todays_writers_write_the_golden_bytes(name: str) -> None:
    assert golden.written_today()[name] == content(name)


@pytest.mark.parametrize("codec", Compression)
def test_golden_batches_give_their_records(codec: Compression) -> None:
    data = content(f"record_batch.{codec.name.lower()}.bin")
    header = record_batch.read_header(data, 0, len(data))
    record_batch.verify_crc(data, 0, header.size_bytes)
    assert (header.compression, header.base_offset, header.record_count) == (codec, golden.BASE_OFFSET, 4)
    assert list(record_batch.records(data)) == golden.records()


def test_golden_indexes_are_read() -> None:
    offsets = OffsetIndex.from_bytes(golden.BASE_OFFSET, content("offset_index.bin"))
    times = TimeIndex.from_bytes(golden.BASE_OFFSET, content("time_index.bin"))
    assert offsets.to_bytes(golden.BASE_OFFSET) == golden.offset_index().to_bytes(golden.BASE_OFFSET)
    assert times.to_bytes(golden.BASE_OFFSET) == golden.time_index().to_bytes(golden.BASE_OFFSET)
    aborted = TransactionIndex.from_bytes(content("transaction_index.bin"))
    assert aborted.to_bytes(2**62) == golden.transaction_index().to_bytes(2**62)
    assert offsets.lookup(golden.BASE_OFFSET + 91) == 4100
    assert times.lookup(golden.NOON_MS) == golden.BASE_OFFSET + 90


def test_golden_leader_epochs_are_read() -> None:
    assert decode_leader_epochs(content("leader_epochs.txt")) == golden.LEADER_EPOCHS


def test_golden_producer_snapshot_is_read() -> None:
    assert decode_producers(content("producer_snapshot.v1.bin")) == golden.producers()


@pytest.mark.parametrize(
    ("name", "table", "proven_ms"),
    [
        ("segment_object.v1.bin", golden.table_without_crcs(), None),
        ("segment_object.v1.crcs.bin", golden.table(), None),
        ("segment_object.v1.times.bin", golden.proven_table(), golden.NOON_MS + 77),
    ],
)
def test_golden_segment_objects_are_read(name: str, table: ChunkTable, proven_ms: int | None) -> None:
    data = content(name)
    tail = read_tail(data, len(data))
    assert tail.chunks == table.chunks
    assert len(tail.chunks) == 3
    assert [row.proven_min_timestamp_ms for row in tail.chunks] == [None, None, proven_ms]
    assert tail.chunks[-1].proven_max_timestamp_ms == proven_ms
    assert tail.footer.headers_are_proven == tail.footer.max_timestamp_is_proven == (proven_ms is not None)
    assert data[: tail.footer.log_bytes] == golden.log()
    assert tail.leader_epochs == tail.footer.leader_epochs == golden.LEADER_EPOCHS
    assert tail.aborted == golden.ABORTED
    assert decode_producers(tail.producer_snapshot) == golden.producers()
    assert (tail.footer.topic, tail.footer.topic_id, tail.footer.partition) == (golden.TOPIC, golden.TOPIC_ID, 3)
    assert tail.footer.cluster_id == golden.CLUSTER_ID
    assert (tail.footer.base_offset, tail.footer.end_offset) == (golden.BASE_OFFSET, golden.BASE_OFFSET + 12)
    assert (tail.footer.record_count, tail.footer.batch_count) == (12, 3)
    assert tail.footer.previous_root_sha256 == golden.PREVIOUS_ROOT


def test_golden_checkpoints_are_read() -> None:
    head = decode_partition_checkpoint(content("partition_checkpoint.v1.json"))
    assert head == golden.partition_checkpoint()
    assert decode_checkpoint_page(content("checkpoint_page.v1.json"), head.pages[0]) == golden.page()
    assert decode_cluster_checkpoint(content("cluster_checkpoint.v1.json")) == golden.cluster_checkpoint()
    full = decode_partition_checkpoint(content("partition_checkpoint.v1.full.json"))
    assert full == golden.full_partition_checkpoint()
    assert decode_cluster_checkpoint(content("cluster_checkpoint.v1.full.json")) == golden.full_cluster_checkpoint()
    with_acls = decode_cluster_checkpoint(content("cluster_checkpoint.v1.acls.json"))
    assert with_acls == golden.cluster_checkpoint_with_acls()
    with_configs = decode_cluster_checkpoint(content("cluster_checkpoint.v1.resource_configs.json"))
    assert with_configs == golden.cluster_checkpoint_with_resource_configs()
    with_pins = decode_cluster_checkpoint(content("cluster_checkpoint.v1.pins.json"))
    assert with_pins == golden.cluster_checkpoint_with_pins()
    assert decode_group_checkpoint(content("group_checkpoint.v1.json")) == golden.group_checkpoint()
    assert decode_disk_report(content("disk_report.v1.json")) == golden.disk_report()


def test_golden_members_of_groups_are_read() -> None:
    assert decode_classic_group(content("classic_group.v1.bin")) == golden.classic_group()
    assert decode_consumer_group(content("consumer_group.v1.bin")) == golden.consumer_group()
