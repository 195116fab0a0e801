"""Any order of uploads, elections, retention and sweeps, by leaders of any epoch, keeps the catalogue whole.

Hypothesis drives the real functions on a real SQLite file; after every step the invariants T3 and T5 are
checked, and a mirror that knows only the change feed has to equal the tables.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, select

from tests.catalogue import NOW_MS, create_topic, open_ready, segment_plan
from tiered.errors import CorruptMetadata, FencedLeaderEpoch, LostRace
from tiered.meta import changes, partitions, segments
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.meta.segments import SegmentRow
from tiered.meta.tables import segment
from tiered.rules.segment_states import TRANSITIONS, SegmentState

T = TypeVar("T")
OFFSETS = st.integers(0, 12)
MOVES = {(transition.before, transition.after) for transition in TRANSITIONS.values()}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_ready(f"sqlite:///{tmp_path / 'meta.db'}")
    yield opened
    opened.close_sync()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The catalogue at one moment, and what the feed says since the moment before."""

    partition: PartitionRow
    rows: dict[UUID, SegmentRow]
    news: changes.ChangeSet


class Catalogue(RuleBasedStateMachine):
    """One partition. A `lag` of 0 is the leader of today, more is a zombie, less one from a lost future."""

    database: Database
    planned = Bundle("planned")
    lags = st.sampled_from([0, 0, 0, 0, 1, 2, -1])

    def run(self, fn: Callable[[Connection], T]) -> T:
        return self.database.run_sync(fn)

    @initialize()
    def found(self) -> None:
        # Names may not repeat among the living, and the file is shared: earlier examples' topics are renamed.
        self.run(lambda conn: conn.exec_driver_sql("UPDATE topic SET name = 'old-' || hex(topic_id)") and None)
        self.topic_id = self.run(create_topic).topic_id
        self.fed_segments: dict[UUID, SegmentRow] = {}
        self.fed_to = self.run(lambda conn: changes.since(conn, 0)).number
        self.now = self.look()
        self.fed_partition = self.now.partition

    def look(self) -> Seen:
        def everything(conn: Connection) -> Seen:
            of_topic = select(segment.c.object_id).where(segment.c.topic_id == self.topic_id)
            return Seen(
                partition=partitions.load(conn, self.topic_id, 0),
                rows={object_id: segments.load(conn, object_id) for object_id in conn.execute(of_topic).scalars()},
                news=changes.since(conn, self.fed_to),
            )

        return self.run(everything)

    @rule(target=planned, base=st.none() | OFFSETS, length=st.integers(1, 6), lag=lags)
    def plan(self, base: int | None, length: int, lag: int) -> object:
        """`base` None is where the last commit ended: what a correct leader does."""
        now = self.now.partition
        start = now.cold_end_offset if base is None else base
        wanted = segment_plan(self.topic_id, start, start + length, leader_epoch=now.leader_epoch - lag)
        try:
            return self.run(lambda conn: segments.plan(conn, wanted)).object_id
        except (FencedLeaderEpoch, CorruptMetadata):
            assert lag
        except LostRace:
            assert start + length <= now.cold_end_offset
        return multiple()

    @rule(object_id=planned, lag=lags)
    def commit(self, object_id: UUID, lag: int) -> None:
        now, row = self.now.partition, self.now.rows[object_id]
        epoch = now.leader_epoch - lag
        try:
            after = self.run(lambda conn: segments.commit(conn, object_id, leader_epoch=epoch, now_ms=NOW_MS))
        except (FencedLeaderEpoch, CorruptMetadata):
            assert lag
        except LostRace:
            follows = row.base_offset == now.cold_end_offset
            usable = row.state is SegmentState.PLANNED and row.abandoned_at_ms is None and row.leader_epoch == epoch
            assert not (follows and usable)
        else:
            assert after.committed_at_ms is not None
            assert row.leader_epoch == epoch
            if row.committed_at_ms is None:
                assert lag == 0
                assert self.look().partition.cold_end_offset == row.end_offset

    @rule(to=OFFSETS, lag=lags)
    def retire(self, to: int, lag: int) -> None:
        now = self.now.partition
        try:
            self.run(
                lambda conn: segments.retire_before(
                    conn,
                    self.topic_id,
                    0,
                    leader_epoch=now.leader_epoch - lag,
                    new_log_start_offset=to,
                    now_ms=NOW_MS,
                    purge_after_ms=NOW_MS,
                )
            )
        except (FencedLeaderEpoch, CorruptMetadata):
            assert lag
        else:
            assert self.look().partition.log_start_offset == max(to, now.log_start_offset)

    @rule(by=st.integers(0, 4), lag=lags)
    def delete_records(self, by: int, lag: int) -> None:
        now = self.now.partition
        to = now.log_start_offset + by
        try:
            self.run(
                lambda conn: partitions.advance_log_start_offset(
                    conn, self.topic_id, 0, leader_epoch=now.leader_epoch - lag, new_log_start_offset=to
                )
            )
        except (FencedLeaderEpoch, CorruptMetadata):
            assert lag

    @rule(object_id=planned)
    def abandon(self, object_id: UUID) -> None:
        was = self.now.rows[object_id].state
        found = self.run(lambda conn: segments.abandon(conn, [object_id], now_ms=NOW_MS))
        assert bool(found) == (was is SegmentState.PLANNED)

    @rule(object_id=planned)
    def fail(self, object_id: UUID) -> None:
        self.run(lambda conn: segments.fail_planned(conn, [object_id], now_ms=NOW_MS))

    @rule(object_id=planned)
    def purge(self, object_id: UUID) -> None:
        self.run(lambda conn: segments.mark_purged(conn, [object_id], now_ms=NOW_MS))

    @rule()
    def elect(self) -> None:
        now = self.now.partition
        self.run(
            lambda conn: partitions.elect_leader(
                conn, self.topic_id, 0, expected_partition_epoch=now.partition_epoch, leader=1
            )
        )

    @invariant()
    def invariants_hold(self) -> None:
        before, self.now = self.now, self.look()
        self.offsets_only_grow(before)
        self.committed_rows_tile_the_log()
        self.rows_move_only_as_the_table_says(before)
        self.the_feed_tells_everything()

    def offsets_only_grow(self, before: Seen) -> None:
        now = self.now.partition
        assert 0 <= before.partition.log_start_offset <= now.log_start_offset <= now.cold_end_offset
        assert before.partition.cold_end_offset <= now.cold_end_offset

    def committed_rows_tile_the_log(self) -> None:
        now = self.now.partition
        committed = sorted(
            (row.base_offset, row.end_offset) for row in self.now.rows.values() if row.state is SegmentState.COMMITTED
        )
        for (_, end), (base, _) in pairwise(committed):
            assert end <= base, "overlap"
        readable = [(base, end) for base, end in committed if end > now.log_start_offset]
        assert not readable or readable[0][0] <= now.log_start_offset, "gap at the start"
        reached = readable[0][0] if readable else now.log_start_offset
        for base, end in readable:
            assert base == reached, "gap"
            reached = end
        assert reached == now.cold_end_offset, "gap at the end"

    def rows_move_only_as_the_table_says(self, before: Seen) -> None:
        assert before.rows.keys() <= self.now.rows.keys()
        for object_id, old in before.rows.items():
            row = self.now.rows[object_id]
            if old.state is row.state:
                continue
            assert (old.state, row.state) in MOVES
            if row.state is SegmentState.COMMITTED:
                assert row.leader_epoch == self.now.partition.leader_epoch, "a zombie committed"
                assert old.abandoned_at_ms is None, "an abandoned upload was committed"
            if old.state is SegmentState.PLANNED and row.state is SegmentState.PURGED:
                assert old.abandoned_at_ms is not None, "an object was deleted that could still be committed"

    def the_feed_tells_everything(self) -> None:
        news = self.now.news
        self.fed_to = news.number
        self.fed_segments |= {row.object_id: row for row in news.segments}
        self.fed_partition = next(iter(news.partitions), self.fed_partition)
        assert self.fed_segments == self.now.rows
        assert self.fed_partition == self.now.partition


def test_no_order_of_events_breaks_the_catalogue(database: Database) -> None:
    class OnThisDatabase(Catalogue):
        pass

    OnThisDatabase.database = database
    run_state_machine_as_test(OnThisDatabase, settings=settings(max_examples=50, stateful_step_count=40, deadline=None))
