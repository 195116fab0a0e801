"""A partition's segments as people ask for them: each range once, with its tier."""

from pathlib import Path

from tests.unit.broker.replication.replicas import replica, row, tell
from tiered.broker.people.segment_listing import segments_of


def test_what_is_on_disk_alone_is_hot_and_the_last_one_is_written_to(tmp_path: Path) -> None:
    partition = replica(tmp_path, 1)
    tell(partition, row())
    (only,) = segments_of(partition, start_offset=-1, limit=10)
    assert (only.base_offset, only.tier, only.state, only.object_key) == (0, "hot", "active", None)
    assert segments_of(partition, start_offset=0, limit=10) == []
