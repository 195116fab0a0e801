"""What reconciling tells of a broker and a database that disagree, and of uploads that can never happen: a real broker
whose rounds the test begins.
"""

from pathlib import Path

from sqlalchemy import Connection, delete, update

from tests.components.reconciling import SEGMENTS, append, broker, eventually, found, only, store_away, uploaded
from tiered.broker.broker import Broker
from tiered.broker.people.partition_totals import PartitionTotals
from tiered.broker.reconcile.findings import Finding, FindingKind
from tiered.formats.checkpoint import CommittedSegment
from tiered.meta import cluster
from tiered.meta.tables import segment
from tiered.rules.segments.segment_states import SegmentState

__all__ = ["broker"]


async def retire_behind_the_back(broker: Broker, row: CommittedSegment, *, change_number: int) -> None:
    """What no code does: a row that changes without taking the next change number."""

    def retire(conn: Connection) -> None:
        conn.execute(
            update(segment)
            .where(segment.c.object_id == row.object_id)
            .values(state=SegmentState.RETIRED, retired_at_ms=1, purge_after_ms=1 << 60, change_number=change_number)
        )

    await broker.database.run(retire)


# The catalogue


async def test_a_segment_that_the_database_has_retired_unheard_is_a_contradiction(broker: Broker) -> None:
    partition = await uploaded(broker)
    row = partition.committed[2]
    await retire_behind_the_back(broker, row, change_number=1)
    finding = await only(broker)
    assert (finding.kind, finding.name) == (FindingKind.CATALOGUE, row.object_key)
    assert (finding.first_offset, finding.last_offset) == (2, 2)
    assert finding.message == "this broker takes it for committed, the database says retired"
    assert "restart" in finding.advice
    assert broker.health(PartitionTotals())["findings"][FindingKind.CATALOGUE] == 1


async def test_a_change_that_is_still_on_its_way_here_is_no_contradiction(broker: Broker) -> None:
    partition = await uploaded(broker)
    later = broker.image.change_number + 1_000
    await retire_behind_the_back(broker, partition.committed[2], change_number=later)
    assert await found(broker) == []


async def test_a_row_that_the_database_has_lost_is_a_contradiction_and_its_object_stays(
    broker: Broker, tmp_path: Path
) -> None:
    partition = await uploaded(broker)
    row = partition.committed[3]
    await broker.database.run(lambda conn: conn.execute(delete(segment).where(segment.c.object_id == row.object_id)))
    told = {each.kind: each for each in await found(broker)}
    assert set(told) == {FindingKind.CATALOGUE, FindingKind.UNKNOWN_OBJECT}
    assert told[FindingKind.CATALOGUE].message == "this broker takes it for committed, the database says nothing"
    assert {each.name for each in told.values()} == {row.object_key}
    assert (tmp_path / "objects" / row.object_key).exists()


async def test_a_row_that_this_broker_does_not_know_is_a_contradiction(broker: Broker) -> None:
    partition = await uploaded(broker)
    row = partition.committed[1]
    # What this broker has not heard of yet, it need not know.
    await broker.feed.caught_up((await broker.database.read(cluster.load)).change_number)
    partition._committed.remove(row)
    finding = await only(broker)
    assert (finding.kind, finding.name) == (FindingKind.CATALOGUE, row.object_key)
    assert finding.message == "the database has it for committed, this broker does not know it"
    partition._committed.insert(1, row)
    assert await found(broker) == []


# Uploads that can never happen


async def test_offsets_that_are_neither_here_nor_in_the_store_are_told_until_they_are_given_up(
    broker: Broker, tmp_path: Path
) -> None:
    partition = await uploaded(broker)

    async def uploads() -> list[Finding]:
        await broker.reconciler.disk.look_at_uploads()
        return broker.reconciler.findings.all()

    with store_away(tmp_path):
        append(broker, partition, 4)
        # Not by retention, which never takes what is not uploaded: as a disk loses files.
        partition.log.delete_local_before(SEGMENTS + 2)
        assert await uploads() == [], "a new leader may not have heard yet of all that is committed"
        (finding,) = await uploads()
    assert finding.kind is FindingKind.STUCK_UPLOAD
    assert "delete nothing" in finding.advice, "the bucket may have what the database forgot"
    assert (finding.topic, finding.partition) == ("orders", 0)
    assert (finding.first_offset, finding.last_offset) == (SEGMENTS, SEGMENTS + 3)
    assert "offsets in between are lost here" in finding.message
    assert [each.found_at_ms for each in await uploads()] == [finding.found_at_ms]
    assert broker.health(PartitionTotals())["findings"][FindingKind.STUCK_UPLOAD] == 1

    await broker.admin.delete_records(partition, SEGMENTS + 2)
    await eventually(lambda: partition.cold_end_offset == SEGMENTS + 4)
    assert await uploads() == []
