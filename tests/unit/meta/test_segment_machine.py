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
from hypothesis import Phase, settings
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
from sqlalchemy import Connection

from tests.catalogue import NOW_MS, advance_log_start_offset, create_topic, elect, open_ready, segment_plan
from tiered.errors import CorruptMetadata, FencedLeaderEpoch, LostRace
from tiered.meta import changes, cluster, partitions, segments
from tiered.meta.engine import Database
from tiered.meta.partitions import PartitionRow
from tiered.meta.segments import SegmentRow
from tiered.rules.segments.segment_states import TRANSITIONS, SegmentState

T = TypeVar("T")
LAGS = st.sampled_from([0, 0, 0, 0, 1, 2, -1])
SHIFTS = st.sampled_from([0, 0, 0, -1, -3, 2])
LENGTHS = st.integers(1, 6)
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
    """One partition. A `lag` of 0 is the leader of today, more is a zombie, less one from a future that was lost."""

    database: Database
    planned = Bundle("planned")

    def run(self, fn: Callable[[Connection], T]) -> T:
        return self.database.run_sync(fn)

    @initialize()
    def found(self) -> None:
        # Names may not repeat among the living, and the file is shared: earlier examples' topics are renamed.
        self.run(lambda conn: conn.exec_driver_sql("UPDATE topic SET name = 'old-' || hex(topic_id)").close())
        self.topic_id = self.run(create_topic).topic_id
        self.fed_segments: dict[UUID, SegmentRow] = {}
        self.founded_at = self.fed_to = self.run(cluster.load).change_number
        self.now = self.look()
        self.fed_partition = self.now.partition

    def look(self) -> Seen:
        def everything(conn: Connection) -> Seen:
            return Seen(
                partition=partitions.load(conn, self.topic_id, 0),
                rows={row.object_id: row for row in segments.changed_since(conn, self.founded_at)},
                news=changes.since(conn, self.fed_to),
            )

        return self.run(everything)

    @rule(target=planned, shift=SHIFTS, length=LENGTHS, lag=LAGS)
    def plan(self, shift: int, length: int, lag: int) -> object:
        """`shift` 0 begins where the last commit ended: what a correct leader does."""
        now = self.look().partition
        base = max(0, now.cold_end_offset + shift)
        wanted = segment_plan(self.topic_id, base, base + length, leader_epoch=now.leader_epoch - lag)
        try:
            row = self.run(lambda conn: segments.plan(conn, wanted))
        except (FencedLeaderEpoch, CorruptMetadata):
            assert lag
        except LostRace:
            assert base + length <= now.cold_end_offset
        else:
            assert lag == 0
            return row.object_id
        return multiple()

    @rule(object_id=planned, epoch=st.none() | LAGS)
    def commit(self, object_id: UUID, epoch: int | None) -> None:
        """`epoch` None is the row's own, with which its planner comes back however long that took."""
        before = self.look()
        row = before.rows[object_id]
        own = row.leader_epoch if epoch is None else before.partition.leader_epoch - epoch
        try:
            after = self.run(lambda conn: segments.commit(conn, object_id, leader_epoch=own, now_ms=NOW_MS))
        except (FencedLeaderEpoch, CorruptMetadata):
            assert own != before.partition.leader_epoch
        except LostRace:
            follows = row.base_offset == before.partition.cold_end_offset
            usable = row.state is SegmentState.PLANNED and row.abandoned_at_ms is None and row.leader_epoch == own
            assert not (follows and usable)
        else:
            assert after.committed_at_ms is not None
            assert row.leader_epoch == own
            if row.committed_at_ms is None:
                assert own == before.partition.leader_epoch
                assert self.look().partition.cold_end_offset == row.end_offset

    @rule(shift=SHIFTS, length=LENGTHS, meanwhile=st.sampled_from(["nothing", "elect", "abandon", "delete_records"]))
    def upload(self, shift: int, length: int, meanwhile: str) -> None:
        """A whole upload, and what can happen while it lasts."""
        object_id = self.plan(shift, length, 0)
        if not isinstance(object_id, UUID):
            return
        match meanwhile:
            case "elect":
                self.elect()
            case "abandon":
                self.abandon(object_id)
            case "delete_records":
                self.delete_records(length, 0)
        self.commit(object_id, None)

    @rule(by=st.integers(-2, 8), lag=LAGS)
    def retire(self, by: int, lag: int) -> None:
        now = self.look().partition
        to = max(0, now.log_start_offset + by)
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
            assert lag == 0
            after = self.look()
            assert after.partition.log_start_offset == max(to, now.log_start_offset)
            committed = [row for row in after.rows.values() if row.state is SegmentState.COMMITTED]
            assert all(row.end_offset > to for row in committed)

    @rule(by=st.integers(-2, 8), lag=LAGS)
    def delete_records(self, by: int, lag: int) -> None:
        now = self.look().partition
        to = max(0, now.log_start_offset + by)
        try:
            after = self.run(
                lambda conn: advance_log_start_offset(
                    conn, self.topic_id, 0, leader_epoch=now.leader_epoch - lag, new_log_start_offset=to
                )
            )
        except (FencedLeaderEpoch, CorruptMetadata):
            assert lag
        else:
            assert lag == 0
            assert after.log_start_offset == max(to, now.log_start_offset)

    @rule(object_id=planned)
    def abandon(self, object_id: UUID) -> None:
        was = self.look().rows[object_id].state
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
        self.run(lambda conn: elect(conn, self.topic_id))

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
    # Not shrunk: on a real database that would take longer than reading thirty steps.
    budget = settings(
        max_examples=settings().max_examples * 2 // 5,  # An example is some hundred transactions.
        stateful_step_count=30,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
    )
    run_state_machine_as_test(OnThisDatabase, settings=budget)
