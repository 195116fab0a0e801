"""Reconcile and scrub in a real broker whose rounds the test begins: each thing that is wrong is named, and nothing
that is right is touched.
"""

import asyncio
import logging
from pathlib import Path
from uuid import uuid4

import pytest

from tests.components.reconciling import (
    NEVER_MS,
    SEGMENTS,
    SETTINGS,
    WAIT_S,
    append,
    broker,
    eventually,
    flip,
    found,
    only,
    options,
    path_of,
    store_away,
    uploaded,
)
from tiered.broker.broker import Broker
from tiered.broker.people.partition_totals import PartitionTotals
from tiered.broker.reconcile.findings import FindingKind
from tiered.broker.reconcile.scrub import PLACE_FILE
from tiered.config import BrokerSettings
from tiered.formats.object_key import parse_segment_key, segment_key
from tiered.meta import segments
from tiered.rules.segments.segment_states import SegmentState
from tiered.runtime import SystemClock

__all__ = ["broker"]


# The bucket


async def test_a_broker_with_nothing_wrong_finds_nothing_and_says_nothing(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await uploaded(broker)
    with caplog.at_level(logging.INFO, logger="tiered.broker.reconcile"):
        for _ in range(3):
            assert await found(broker) == []
    assert caplog.records == []
    assert broker.counters.reconcile_objects == 3 * SEGMENTS
    assert broker.counters.scrubbed_chunks >= SEGMENTS
    assert broker.health(PartitionTotals())["findings"] == dict.fromkeys(FindingKind, 0)
    assert partition.cold_end_offset == SEGMENTS


async def test_a_missing_object_is_named_until_it_is_back(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await uploaded(broker)
    segment = partition.committed[2]
    path = path_of(tmp_path, segment)
    data = path.read_bytes()
    path.unlink()
    with caplog.at_level(logging.WARNING, logger="tiered.broker.reconcile"):
        for _ in range(2):
            assert len(await found(broker)) == 1
        finding = await only(broker)
    assert (finding.kind, finding.topic, finding.partition) == (FindingKind.MISSING, "orders", 0)
    assert (finding.first_offset, finding.last_offset, finding.name) == (2, 2, segment.object_key)
    assert finding.found_at_ms <= finding.seen_at_ms
    (said,) = [each.getMessage() for each in caplog.records]
    assert segment.object_key in said
    assert "put the object back" in said

    path.write_bytes(data)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="tiered.broker.reconcile"):
        assert await found(broker) == []
    assert "well again" in caplog.text


async def test_a_truncated_object_is_named(broker: Broker, tmp_path: Path) -> None:
    partition = await uploaded(broker)
    path = path_of(tmp_path, partition.committed[4])
    path.write_bytes(path.read_bytes()[:-1])
    findings = await found(broker)
    assert {each.kind for each in findings} == {FindingKind.WRONG_SIZE}
    assert {each.name for each in findings} == {partition.committed[4].object_key}


async def test_what_was_retired_meanwhile_is_not_missed(broker: Broker, tmp_path: Path) -> None:
    partition = await uploaded(broker)
    path_of(tmp_path, partition.committed[0]).unlink()
    assert (await only(broker)).kind is FindingKind.MISSING
    await broker.lifecycle.move_log_start(partition, 1, is_explicit=True)
    await eventually(lambda: partition.log_start_offset == 1)
    assert await found(broker) == []


async def test_an_object_that_nobody_knows_is_told_and_left(broker: Broker, tmp_path: Path) -> None:
    partition = await uploaded(broker)
    where = partition.topic_partition
    key = segment_key("orders", where.topic_id, 0, 1, 3, 0, uuid4())
    (tmp_path / "objects" / key).write_bytes(b"somebody else's")
    finding = await only(broker)
    assert (finding.kind, finding.name) == (FindingKind.UNKNOWN_OBJECT, key)
    assert (tmp_path / "objects" / key).exists()


async def test_objects_of_a_topic_that_the_catalogue_has_not_are_told_and_left(broker: Broker, tmp_path: Path) -> None:
    await eventually(lambda: broker.controller.is_leading)
    partition = await uploaded(broker)
    folders = set()
    for number in range(2):
        key = segment_key("lost", uuid4(), number, 0, 3, 0, uuid4())
        path = tmp_path / "objects" / key
        path.parent.mkdir(parents=True)
        path.write_bytes(b"somebody else's")
        folders.add(key.rpartition("/")[0] + "/")
    (tmp_path / "objects" / "segments" / "readme.txt").write_bytes(b"nothing of ours")
    for _ in range(2):
        told = await found(broker)
        assert {each.name for each in told} == folders
        assert {each.kind for each in told} == {FindingKind.UNKNOWN_OBJECT}
    assert len(list((tmp_path / "objects").rglob("*.seg"))) == SEGMENTS + 2
    for path in (tmp_path / "objects").rglob("lost_*/*/*.seg"):
        path.unlink()
    assert await found(broker) == []
    assert partition.cold_end_offset == SEGMENTS


async def test_objects_of_a_deleted_topic_are_not_told_of_while_they_wait_for_their_end(broker: Broker) -> None:
    await eventually(lambda: broker.controller.is_leading)
    await uploaded(broker)
    await broker.admin.delete_topic(broker.topics.by_name("orders"))
    assert await found(broker) == []
    assert broker.reconciler.unknown_topics.turns == 1


async def test_an_object_that_came_back_after_its_deletion_is_swept(broker: Broker, tmp_path: Path) -> None:
    partition = await uploaded(broker, **{"tiered.purge.grace.ms": "0"})
    segment = partition.committed[0]
    data = path_of(tmp_path, segment).read_bytes()
    await broker.lifecycle.move_log_start(partition, 1, is_explicit=True)
    await eventually(lambda: partition.log_start_offset == 1)
    await broker.lifecycle.sweep()
    assert not path_of(tmp_path, segment).exists()

    path_of(tmp_path, segment).write_bytes(data)
    assert await found(broker) == []
    assert not path_of(tmp_path, segment).exists()
    assert broker.counters.orphans_swept == 1


async def test_an_upload_that_is_under_way_and_a_retired_object_are_left_alone(broker: Broker, tmp_path: Path) -> None:
    partition = await uploaded(broker)
    where = partition.topic_partition
    await broker.lifecycle.move_log_start(partition, 1, is_explicit=True)
    row = partition.committed[-1]
    object_id = uuid4()
    key = segment_key("orders", where.topic_id, 0, 5, 6, partition.leader_epoch, object_id)
    values = {name: getattr(row, name) for name in ("size_bytes", "log_bytes", "record_count", "root_sha256")}
    plan = segments.SegmentPlan(
        object_id=object_id,
        topic_id=where.topic_id,
        partition=0,
        base_offset=5,
        end_offset=6,
        leader_epoch=partition.leader_epoch,
        owner=broker.broker_id,
        object_key=key,
        min_timestamp_ms=0,
        max_timestamp_ms=0,
        previous_root_sha256="0" * 64,
        planned_at_ms=0,
        deadline_ms=0,
        **values,
    )
    await broker.database.run(lambda conn: segments.plan(conn, plan))
    (tmp_path / "objects" / key).write_bytes(b"half of it")
    before = sorted((tmp_path / "objects").rglob("*.seg"))
    assert await found(broker) == []
    assert sorted((tmp_path / "objects").rglob("*.seg")) == before
    assert parse_segment_key(key).object_id == object_id
    known = await broker.database.run(lambda conn: segments.load_some(conn, [object_id]))
    assert known[object_id].state is SegmentState.PLANNED


async def test_a_round_keeps_to_its_requests_and_the_next_ones_go_on(broker: Broker, tmp_path: Path) -> None:
    broker.state.settings = BrokerSettings.of(
        SETTINGS | {"tiered.reconcile.max.requests": "3", "tiered.reconcile.period.ms": str(NEVER_MS)}
    )
    partition = await uploaded(broker)
    for segment in partition.committed:
        path_of(tmp_path, segment).unlink()
    rounds = 0
    while broker.reconciler.bucket.turns == 0:
        before = broker.counters.reconcile_requests
        await broker.reconciler.bucket.round()
        assert broker.counters.reconcile_requests - before <= 3
        rounds += 1
        assert rounds < 10
    missing = [each.first_offset for each in broker.reconciler.findings.all()]
    assert missing == list(range(SEGMENTS))
    before = broker.counters.reconcile_requests
    await broker.reconciler.bucket.round()
    assert broker.counters.reconcile_requests == before, "the next turn is not due yet"


async def test_a_store_that_is_away_is_no_finding(broker: Broker, tmp_path: Path) -> None:
    await uploaded(broker)
    with store_away(tmp_path):
        for _ in range(2):
            assert await found(broker) == []
    assert await found(broker) == []
    assert broker.counters.housekeeping_failures >= 2


# Scrub


async def test_a_flipped_bit_is_found_and_forgotten_once_it_is_mended(broker: Broker, tmp_path: Path) -> None:
    partition = await uploaded(broker)
    segment = partition.committed[3]
    flip(path_of(tmp_path, segment), 300)
    finding = await only(broker)
    assert (finding.kind, finding.name, finding.chunk) == (FindingKind.DAMAGED, segment.object_key, 0)
    assert (finding.first_offset, finding.last_offset) == (3, 3)
    flip(path_of(tmp_path, segment), 300)
    assert await found(broker) == []


async def test_scrubbing_reads_everything_in_parts_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    slow = {"tiered_scrub_period_ms": str(10**13)}
    reached = []
    for life in range(SEGMENTS + 2):
        broker = Broker(options(tmp_path, **slow), SystemClock())
        async with asyncio.TaskGroup() as tasks:
            await broker.start(tasks, advertised=("127.0.0.1", 9092))
            if life == 0:
                await uploaded(broker)
            await broker.reconciler.scrub.round()
            reached.append((broker.counters.scrubbed_chunks, broker.reconciler.scrub.turn_ended_at_ms > 0))
            broker.begin_stop()
            await broker.stop()
    assert all(chunks == 1 for chunks, _ in reached[:SEGMENTS]), "one part for each life of the broker"
    assert [ended for _, ended in reached] == [False] * SEGMENTS + [True, True]
    assert (tmp_path / "data" / PLACE_FILE).exists()


async def test_a_damaged_place_begins_the_turn_anew(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "data" / PLACE_FILE).write_text('{"version": 1, "cluster')
    await uploaded(broker)
    assert await found(broker) == []
    assert broker.counters.scrubbed_chunks >= SEGMENTS


async def test_scrubbing_can_be_switched_off(broker: Broker, tmp_path: Path) -> None:
    broker.state.settings = BrokerSettings.of(SETTINGS | {"tiered.scrub.max.bytes.per.second": "0"})
    await uploaded(broker)
    assert await found(broker) == []
    assert broker.counters.scrubbed_chunks == 0


# The disk


async def test_an_overdue_upload_is_told_while_it_lasts(broker: Broker, tmp_path: Path) -> None:
    partition = await uploaded(broker)
    broker.state.settings = BrokerSettings.of(SETTINGS | {"tiered.upload.timeout.ms": "1000"})

    async def kinds() -> set[FindingKind]:
        await broker.reconciler.disk.look_at_uploads()
        return {each.kind for each in broker.reconciler.findings.all()}

    with store_away(tmp_path):
        append(broker, partition, 2)
        assert await kinds() == set(), "they are not late yet"
        async with asyncio.timeout(WAIT_S):
            while await kinds() != {FindingKind.OVERDUE_UPLOAD}:
                await asyncio.sleep(0.05)
        (finding,) = broker.reconciler.findings.all()
        assert (finding.first_offset, finding.topic) == (SEGMENTS, "orders")
    async with asyncio.timeout(WAIT_S):
        while await kinds():
            await asyncio.sleep(0.05)


async def test_local_files_that_nobody_uses_or_that_are_gone_are_told_and_left(broker: Broker) -> None:
    partition = await uploaded(broker, **{"retention.ms": "-1"})
    folder = Path(partition.log.directory)
    stranger, lost = folder / "00000000000000000777.log", folder / "00000000000000000001.log"
    stranger.write_bytes(b"put here by hand")
    lost.unlink()
    topic = folder.parent.parent / str(uuid4())
    topic.mkdir()
    await broker.reconciler.disk.round()
    told = {each.name: each for each in broker.reconciler.findings.all()}
    assert {name: each.kind for name, each in told.items()} == {
        str(stranger): FindingKind.UNUSED_FILE,
        str(lost): FindingKind.LACKING_FILE,
        str(topic): FindingKind.UNUSED_FILE,
    }
    assert "restart this broker" in told[str(lost)].advice
    assert stranger.exists()
    assert topic.exists()
