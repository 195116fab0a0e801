"""A partition's segments as people ask for them: each range once, with its tier."""

from dataclasses import replace
from pathlib import Path

from tests.golden import regenerate as golden
from tests.support.partition_appends import batch
from tests.unit.broker.replication.replicas import replica, row, tell
from tiered.broker.people.segment_listing import segments_of


def test_what_is_on_disk_alone_is_hot_and_the_last_one_is_written_to(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    tell(partition, row())
    (only,) = segments_of(partition, start_offset=-1, limit=10)
    assert (only.base_offset, only.tier, only.state, only.object_key) == (0, "hot", "active", None)
    assert segments_of(partition, start_offset=0, limit=10) == []


def test_what_was_joined_is_shown_once_though_the_disk_has_it_in_pieces(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    tell(partition, row())
    for _ in range(4):
        data = batch("v")
        partition.append(memoryview(data), 0, len(data), acks=1, now_ms=2**41)
        partition.log.roll(1)
    one = replace(golden.committed(0), end_offset=3)
    partition.apply_segments([one])
    shown = segments_of(partition, start_offset=0, limit=10)
    assert [(each.base_offset, each.end_offset, each.tier) for each in shown] == [
        (0, 3, "both"),
        (3, 4, "hot"),
        (4, 4, "hot"),
    ]
    partition.log.delete_local_before(2)
    shown = segments_of(partition, start_offset=0, limit=10)
    assert [(each.base_offset, each.end_offset, each.tier) for each in shown] == [
        (0, 3, "both"),
        (3, 4, "hot"),
        (4, 4, "hot"),
    ]
