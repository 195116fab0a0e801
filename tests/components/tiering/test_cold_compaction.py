"""The cold tier compacted beside a broker that serves it: what consumers read, and what else happens meanwhile."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.raw import RawConnection
from tests.components.read_replicas import ReplicaThread
from tests.support.cold_compaction import (
    COMPACT,
    SETTINGS,
    catalogue,
    committed,
    eventually,
    in_the_bucket,
    is_purged,
)
from tests.support.cold_passes import compact
from tests.support.compacted_topics import Read, expected, read_confluent, write
from tiered.broker.tiering.cold_compaction import ColdCompaction
from tiered.cli import main
from tiered.cold.opening import open_store
from tiered.errors import InvalidConfig
from tiered.formats import record_batch
from tiered.meta import pins, segments
from tiered.meta.engine import Database
from tiered.meta.segments import SegmentRow
from tiered.rules.segments.segment_states import SegmentState
from tiered.testing import LocalCluster, cluster


@pytest.fixture(scope="module")
def c() -> Iterator[LocalCluster]:
    with cluster(settings=SETTINGS) as made:
        yield made


def fill(c: LocalCluster, topic: str, seed: int, count: int = 120) -> Read:
    """Records of few keys, some of them tombstones; all of them in the store, and nowhere else, when it returns."""
    chance = random.Random(seed)
    content: list[tuple[bytes | None, bytes | None]] = [
        (b"key-%d" % chance.randrange(12), None if chance.random() < 0.15 else b"%d:" % number + b"v" * 150)
        for number in range(count)
    ]
    written = write(c, topic, content)
    c.tier(topic, keep_local=False)
    return written


def test_consumers_read_the_newest_of_each_key_at_its_offset_and_nothing_older(
    c: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = c.create_topic(configs=COMPACT)
    written = fill(c, topic, 1)
    before = committed(c, topic)
    state = compact(c, topic)
    assert (state.failed, state.looked_at_segments) == ({}, len(before))
    assert state.replaced_segments > 3
    newest = {key: (offset, key, value) for offset, key, value in written}
    eventually(lambda: read_confluent(c, topic) == sorted(newest.values()), "tombstones stay for the next pass")
    # The same offsets, in smaller objects; the old ones are gone once no checkpoint names them.
    assert [(row.base_offset, row.end_offset) for row in committed(c, topic)] == [
        (row.base_offset, row.end_offset) for row in before
    ]
    eventually(lambda: is_purged(c, topic), "old objects are purged")

    # Uploads go on behind it, and what was compacted once is compacted again.
    more = fill(c, topic, 2, count=40)
    both = [*written, *more]
    assert {*expected(both)} <= {*read_confluent(c, topic)} <= {*both}
    compact(c, topic)
    compact(c, topic)
    eventually(lambda: read_confluent(c, topic) == expected(both), "tombstones have outlived delete.retention.ms")
    eventually(lambda: is_purged(c, topic), "old objects are purged")
    assert compact(c, topic).replaced_segments == 0

    # The bucket proves itself, the chain across what was replaced included.
    assert main(["verify", c.store_url, "--orphans"]) == 0
    assert "orphan" not in capsys.readouterr().out


def test_a_read_replica_that_has_not_looked_since_reads_on_where_objects_were_replaced(
    c: LocalCluster, tmp_path: Path
) -> None:
    topic = c.create_topic(configs=COMPACT)
    written = fill(c, topic, 5)
    store = open_store(c.store_url)
    newest = {key: (offset, key, value) for offset, key, value in written}
    with ReplicaThread(tmp_path / "replica", store) as replica, RawConnection(replica) as connection:
        first = connection.fetch(topic, 0, partition_max_bytes=2_000)
        assert first.error_code == 0
        compact(c, topic)
        eventually(lambda: is_purged(c, topic), "the objects that the replica knows are gone")
        offsets, next_offset = set[int](), 0
        while next_offset < first.high_watermark:
            answer = connection.fetch(topic, next_offset)
            assert answer.error_code == 0, answer
            data = bytes(answer.records or b"")  # type: ignore[arg-type]
            for position, header in record_batch.whole_batches(data, 0, len(data)):
                offsets |= {record.offset for record in record_batch.records(data, position)}
                next_offset = header.end_offset
        assert offsets == {offset for offset, _, _ in newest.values()}


def test_a_restart_and_a_restore_find_what_was_compacted(tmp_path: Path) -> None:
    with cluster(settings=SETTINGS) as c:
        topic = c.create_topic(configs=COMPACT)
        written = fill(c, topic, 3, count=60)
        compact(c, topic)
        newest = {key: (offset, key, value) for offset, key, value in written}
        c.brokers[0].kill()
        c.brokers[0].start()
        eventually(lambda: read_confluent(c, topic) == sorted(newest.values()), "the newest of each key")
        more = write(c, topic, [(b"key-1", b"again")])
        assert read_confluent(c, topic) == sorted([*newest.values(), *more])
        before = committed(c, topic)
        eventually(lambda: is_purged(c, topic), "the bucket knows")
        c.brokers[0].stop()
        sql = f"sqlite:///{tmp_path}/restored.db"
        assert main(["restore", "--from", c.store_url, "--meta", sql, "--apply", "--brokers", "1"]) == 0
        database = Database.open(sql)
        try:
            rows = database.run_sync(lambda conn: segments.list_committed(conn, before[0].topic_id, 0))
        finally:
            database.close_sync()
        assert [(row.object_id, row.uploaded_root_sha256) for row in rows] == [
            (row.object_id, row.uploaded_root_sha256) for row in before
        ]
        assert any(row.uploaded_root_sha256 for row in rows)


def test_what_a_dead_job_left_is_swept_and_a_second_run_goes_on(c: LocalCluster) -> None:
    topic = c.create_topic(configs=COMPACT)
    written = fill(c, topic, 4, count=80)

    def die(wave: int) -> None:
        if wave == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(c, topic, before_swap=die)
    assert any(row.uploaded_root_sha256 for row in committed(c, topic))
    assert {*expected(written)} <= {*read_confluent(c, topic)} <= {*written}
    eventually(lambda: is_purged(c, topic), "the controller sweeps what nobody owns")
    assert compact(c, topic).failed == {}
    newest = {key: (offset, key, value) for offset, key, value in written}
    eventually(lambda: {*read_confluent(c, topic)} <= {*newest.values()}, "nothing older than the newest")


def test_a_snapshot_is_read_as_it_was_and_a_pin_keeps_its_objects(c: LocalCluster) -> None:
    topic = c.create_topic(configs=COMPACT)
    written = fill(c, topic, 7, count=80)
    rows = committed(c, topic)
    database, store = Database.open(c.sql_url), open_store(c.store_url)
    try:

        def take(name: str | None, first: SegmentRow, last: SegmentRow) -> None:
            wanted = pins.WantedRange(partition=0, start_offset=first.base_offset, end_offset=last.end_offset)
            database.run_sync(
                lambda conn: pins.take(
                    conn,
                    pin_id=first.object_id,
                    name=name,
                    topic_id=first.topic_id,
                    owner="",
                    ttl_ms=3_600_000,
                    ranges=[wanted],
                    max_pins=10,
                )
            )

        take("kept", rows[2], rows[3])
        take(None, rows[0], rows[0])
        (found,) = ColdCompaction(database, store).look([topic]).partitions
        assert (found.held_by, [row.object_id for row in found.rows]) == ("kept", [row.object_id for row in rows[:2]])
        compact(c, topic)
        held = [row for row in written if row[0] >= rows[2].base_offset]
        eventually(lambda: read_confluent(c, topic, rows[2].base_offset) == held, "the snapshot, and what follows it")
        database.run_sync(lambda conn: pins.delete_snapshot(conn, "kept"))
        compact(c, topic)
        eventually(lambda: len(in_the_bucket(c, topic)) == len(rows), "the bucket knows")
        gone = {SegmentState.PURGED}
        old = {row.object_id for row in rows}
        eventually(
            lambda: {row.state for row in catalogue(c, topic) if row.object_id in old - {rows[0].object_id}} == gone,
            "what nothing pins is purged",
        )
        assert store.head(rows[0].object_key) is not None
        with pytest.raises(InvalidConfig, match=r"no cleanup\.policy=compact"):
            ColdCompaction(database, store).look([c.create_topic()])
    finally:
        store.close()
        database.close_sync()
