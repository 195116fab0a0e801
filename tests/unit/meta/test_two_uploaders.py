"""The same offsets are uploaded twice, and everything that can happen in between happens, in every order.

A model check: all states are visited that an old leader and its successor, or a leader that tries again, a sweep,
retention and a purge can reach together, one step of `broker.tiering.segment_lifecycle` at a time, where every step
may also fail, have its answer lost, or be the last one of its process. The catalogue is the real one: each step in it
is a transaction of `meta.segments` on SQLite. The store is a set of objects.

Some orders leave an object behind whose row is purged already: a sweep may delete before a slow upload stores. Such a
row is kept for a week, and `broker.reconcile` deletes what it names. So an object without a row is what must not be.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete, insert, select, update

from tests.catalogue import NOW_MS, create_topic, open_ready, segment_plan
from tiered.errors import FencedLeaderEpoch, LostRace
from tiered.meta import segments
from tiered.meta.engine import Database
from tiered.meta.tables import partition, segment
from tiered.rules.segments.segment_states import TRANSITIONS, SegmentState

PLANNED, COMMITTED, RETIRED, PURGED = (
    SegmentState.PLANNED,
    SegmentState.COMMITTED,
    SegmentState.RETIRED,
    SegmentState.PURGED,
)
END_OFFSET = 10
UPLOADS = ("first", "second")
EPOCH = {"first": 0, "second": 1}
"""The leader epochs in which the uploads are made, where another leader is elected."""
SAME_EPOCH = {"first": 0, "second": 0}
"""Where the leader tries again."""
MOVES = {(transition.before, transition.after) for transition in TRANSITIONS.values()}


@dataclass(frozen=True, slots=True)
class Row:
    """An upload's row: its state, whether it may still be committed, and whether it ever was."""

    upload: str
    state: SegmentState
    is_abandoned: bool = False
    was_committed: bool = False


@dataclass(frozen=True, slots=True)
class Sql:
    """What the catalogue says of the partition."""

    leader_epoch: int = 0
    log_start_offset: int = 0
    cold_end_offset: int = 0
    rows: tuple[Row, ...] = ()

    def row(self, upload: str) -> Row | None:
        return next((row for row in self.rows if row.upload == upload), None)


@dataclass(frozen=True, slots=True)
class State:
    """Everything: the catalogue, the store, and how far each process is."""

    sql: Sql = Sql()
    whole: frozenset[str] = frozenset()
    """Uploads whose objects are in the store as they should be."""
    half: frozenset[str] = frozenset()
    first: str = "begins"
    second: str = "begins"
    late_commits: frozenset[str] = frozenset()
    """Sent, and not carried out yet: their senders do not know what becomes of them."""
    sweep: tuple[str, str] | None = None
    """Which upload's remains it removes, and what it does next."""
    purge: str | None = None
    """Whose object it has deleted."""

    def at(self, upload: str) -> str:
        return self.first if upload == "first" else self.second

    def moved(self, upload: str, to: str, **changes: Any) -> "State":
        wanted: dict[str, Any] = {upload: to, **changes}
        return replace(self, **wanted)

    def stored(self, upload: str, *, is_whole: bool = True) -> "State":
        name = "whole" if is_whole else "half"
        return replace(self.without(upload), **{name: getattr(self, name) | {upload}})

    def without(self, upload: str) -> "State":
        return replace(self, whole=self.whole - {upload}, half=self.half - {upload})


class RealCatalogue:
    """Answers what a transaction makes of a catalogue, by carrying it out; each question once."""

    def __init__(self, database: Database, epochs: Mapping[str, int]) -> None:
        self.epochs = epochs
        self._database = database
        self._known: dict[tuple[Sql, str, str], tuple[Sql, bool]] = {}
        self._topic_id = database.run_sync(create_topic).topic_id

    @cached_property
    def _plans(self) -> dict[str, Any]:
        return {
            name: segment_plan(self._topic_id, 0, END_OFFSET, leader_epoch=epoch) for name, epoch in self.epochs.items()
        }

    def after(self, before: Sql, what: str, upload: str = "") -> tuple[Sql, bool]:
        """The catalogue afterwards, and whether the caller got what it wanted."""
        key = (before, what, upload)
        if key not in self._known:
            self._known[key] = self._database.run_sync(lambda conn: self._carry_out(conn, *key))
        return self._known[key]

    def _carry_out(self, conn: Connection, before: Sql, what: str, upload: str) -> tuple[Sql, bool]:
        self._write(conn, before)
        savepoint = conn.begin_nested()
        try:
            is_granted = self._transactions[what](conn, upload)
        except (FencedLeaderEpoch, LostRace):
            savepoint.rollback()
            is_granted = False
        return self._read(conn), is_granted

    @cached_property
    def _transactions(self) -> dict[str, Callable[[Connection, str], bool]]:
        ids = {name: plan.object_id for name, plan in self._plans.items()}

        def retire(conn: Connection, _: str) -> bool:
            epoch = conn.execute(select(partition.c.leader_epoch)).scalar_one()
            return bool(
                segments.retire_before(
                    conn, self._topic_id, 0,
                    leader_epoch=epoch, new_log_start_offset=END_OFFSET, now_ms=NOW_MS, purge_after_ms=NOW_MS,
                )
            )  # fmt: skip

        return {
            "plan": lambda conn, name: bool(segments.plan(conn, self._plans[name])),
            "commit": lambda conn, name: bool(
                segments.commit(conn, ids[name], leader_epoch=self.epochs[name], now_ms=NOW_MS)
            ),
            "abandon": lambda conn, name: bool(segments.abandon(conn, [ids[name]], now_ms=NOW_MS)),
            "fail": lambda conn, name: bool(segments.fail_planned(conn, [ids[name]], now_ms=NOW_MS)),
            "purge": lambda conn, name: bool(segments.mark_purged(conn, [ids[name]], now_ms=NOW_MS)),
            "retire": retire,
        }

    def _write(self, conn: Connection, wanted: Sql) -> None:
        conn.execute(delete(segment))
        for row in wanted.rows:
            is_retired = row.was_committed and row.state is not COMMITTED
            plan = self._plans[row.upload]
            values = {name: getattr(plan, name) for name in type(plan).__slots__}
            conn.execute(
                insert(segment).values(
                    **values,
                    state=row.state,
                    change_number=1,
                    abandoned_at_ms=NOW_MS if row.is_abandoned else None,
                    committed_at_ms=NOW_MS if row.was_committed else None,
                    retired_at_ms=NOW_MS if is_retired else None,
                    purge_after_ms=NOW_MS if is_retired else None,
                    purged_at_ms=NOW_MS if row.state is PURGED else None,
                )
            )
        conn.execute(
            update(partition).values(
                leader_epoch=wanted.leader_epoch,
                log_start_offset=wanted.log_start_offset,
                cold_end_offset=wanted.cold_end_offset,
            )
        )

    def _read(self, conn: Connection) -> Sql:
        where = conn.execute(select(partition)).mappings().one()
        names = {plan.object_id: name for name, plan in self._plans.items()}
        rows = [
            Row(
                names[row["object_id"]],
                SegmentState(row["state"]),
                row["abandoned_at_ms"] is not None,
                row["committed_at_ms"] is not None,
            )
            for row in conn.execute(select(segment)).mappings()
        ]
        return Sql(
            where["leader_epoch"],
            where["log_start_offset"],
            where["cold_end_offset"],
            tuple(sorted(rows, key=lambda row: row.upload)),
        )


class Steps:
    """What can happen next in a state. A process that never goes on has died: that needs no step of its own."""

    def __init__(self, catalogue: RealCatalogue) -> None:
        self._catalogue = catalogue
        self.epochs = catalogue.epochs
        self.elects = self.epochs["first"] != self.epochs["second"]

    def after(self, state: State) -> Iterator[tuple[str, State]]:
        for upload in UPLOADS:
            for what, then in self._upload(state, upload):
                yield f"{upload}: {what}", then
        yield from self._others(state)

    def cleaned(self, state: State) -> State:
        """When every process has died: what the next start's sweep leaves, and then the comparison with the bucket."""
        for row in state.sql.rows:
            then, is_granted = self._sql(state, "abandon", row.upload)
            if is_granted:
                state, _ = self._sql(then.without(row.upload), "fail", row.upload)
        for row in state.sql.rows:
            if row.state is PURGED:
                state = state.without(row.upload)
        return state

    def _sql(self, state: State, what: str, upload: str = "") -> tuple[State, bool]:
        sql, is_granted = self._catalogue.after(state.sql, what, upload)
        return replace(state, sql=sql), is_granted

    def _upload(self, state: State, upload: str) -> Iterator[tuple[str, State]]:
        match state.at(upload):
            case "begins":
                if upload == "second" and not self.elects:
                    if state.first == "begins":
                        return
                    state = state.moved("first", "ended")  # By itself, or with its process.
                if state.sql.leader_epoch == self.epochs[upload]:
                    then, is_granted = self._sql(state, "plan", upload)
                    yield "plan", then.moved(upload, "stores" if is_granted else "ended")
                    yield "plan, answer lost", then.moved(upload, "ended")
            case "stores":
                yield "store", state.stored(upload).moved(upload, "verifies")
                yield "store half of it", state.stored(upload, is_whole=False).moved(upload, "verifies")
                yield "store, answer lost", state.stored(upload).moved(upload, "abandons")
                yield "store fails", state.moved(upload, "abandons")
            case "verifies":
                yield "verify", state.moved(upload, "commits" if upload in state.whole else "abandons")
                yield "verify fails", state.moved(upload, "abandons")
            case "commits":
                then, is_granted = self._sql(state, "commit", upload)
                yield "commit", then.moved(upload, "done" if is_granted else "abandons")
                late = state.late_commits | {upload}
                if upload not in state.late_commits:
                    yield "commit, answer lost", replace(state, late_commits=late)
                    yield "commit, given up", state.moved(upload, "ended", late_commits=late)
            case "abandons":
                then, is_granted = self._sql(state, "abandon", upload)
                yield "abandon", then.moved(upload, "deletes" if is_granted else "ended")
                yield "abandon fails", state.moved(upload, "left")
            case "deletes":
                yield "delete", state.without(upload).moved(upload, "fails")
                yield "delete fails", state.moved(upload, "left")
            case "fails":
                yield "fail", self._sql(state, "fail", upload)[0].moved(upload, "ended")

    def _others(self, state: State) -> Iterator[tuple[str, State]]:
        for upload in sorted(state.late_commits):
            done = replace(state, late_commits=state.late_commits - {upload})
            yield f"late commit of {upload}", self._sql(done, "commit", upload)[0]
            yield f"late commit of {upload} is lost", done
        if self.elects and state.sql.leader_epoch == 0:
            yield "election", replace(state, sql=replace(state.sql, leader_epoch=1))
        yield from self._sweep(state)
        yield from self._retention(state)

    def _sweep(self, state: State) -> Iterator[tuple[str, State]]:
        """Of a broker that has started anew, or of the controller: whatever uploads may still be doing."""
        if state.sweep is None:
            for row in state.sql.rows:
                if row.state is PLANNED:
                    then, is_granted = self._sql(state, "abandon", row.upload)
                    yield (
                        f"sweep: abandon {row.upload}",
                        replace(then, sweep=(row.upload, "deletes") if is_granted else None),
                    )
            return
        upload, step = state.sweep
        yield "sweep dies", replace(state, sweep=None)
        if step == "deletes":
            yield "sweep: delete", replace(state.without(upload), sweep=(upload, "fails"))
        else:
            yield "sweep: fail", replace(self._sql(state, "fail", upload)[0], sweep=None)

    def _retention(self, state: State) -> Iterator[tuple[str, State]]:
        if state.sql.cold_end_offset and not state.sql.log_start_offset:
            yield "retire", self._sql(state, "retire")[0]
        if state.purge is not None:
            yield "purge", replace(self._sql(state, "purge", state.purge)[0], purge=None)
            yield "purge dies", replace(state, purge=None)
            return
        for row in state.sql.rows:
            if row.state is RETIRED:
                yield f"purge: delete {row.upload}", replace(state.without(row.upload), purge=row.upload)


def check(state: State) -> None:
    """What must hold in every state. Raises AssertionError."""
    sql = state.sql
    committed = [row for row in sql.rows if row.state is COMMITTED]
    ever = [row for row in sql.rows if row.was_committed]
    assert len(ever) <= 1, "two uploads of the same offsets were committed (T3)"
    assert sql.cold_end_offset == (END_OFFSET if ever else 0), "cold_end_offset is not where the commits end (T3)"
    assert sql.log_start_offset <= sql.cold_end_offset, "T5"
    for row in committed:
        assert row.upload in state.whole, "what is committed is not whole in the store (T2)"
    for upload in state.whole | state.half:
        assert sql.row(upload) is not None, "an object that no row names (T2)"


def check_step(before: State, after: State, epochs: Mapping[str, int]) -> None:
    """What must hold of every step. Raises AssertionError."""
    assert after.sql.log_start_offset >= before.sql.log_start_offset, "T5"
    assert after.sql.cold_end_offset >= before.sql.cold_end_offset, "T5"
    for row in after.sql.rows:
        was = before.sql.row(row.upload)
        if was is None or was.state is row.state:
            continue
        assert (was.state, row.state) in MOVES, f"{was.state} became {row.state}"
        if row.state is COMMITTED:
            assert epochs[row.upload] == after.sql.leader_epoch, "a zombie has committed (T3)"
            assert not was.is_abandoned, "what may be deleted was committed (T2)"


@pytest.fixture(params=[EPOCH, SAME_EPOCH], ids=["two leaders", "one leader"])
def steps(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Steps]:
    database = open_ready(f"sqlite:///{tmp_path / 'meta.db'}")
    yield Steps(RealCatalogue(database, request.param))
    database.close_sync()


def path_to(state: State, reached_by: dict[State, tuple[State, str] | None]) -> str:
    words: list[str] = []
    while (last := reached_by[state]) is not None:
        state, what = last
        words.append(what)
    return "; ".join(reversed(words))


def explore(steps: Steps) -> dict[State, tuple[State, str] | None]:
    """Every state that can be reached, with the step that reached it first; the shortest way to a broken one fails."""
    first = State()
    reached_by: dict[State, tuple[State, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for what, then in steps.after(state):
            is_new = then not in reached_by
            if is_new:
                reached_by[then] = (state, what)
            try:
                check_step(state, then, steps.epochs)
                check(then)
            except AssertionError as error:
                pytest.fail(f"{error}: after {path_to(state, reached_by)}; {what}")
            if is_new:
                queue.append(then)
    return reached_by


def test_no_order_of_two_uploads_with_faults_at_every_step_breaks_t1_to_t9(steps: Steps) -> None:
    reached = explore(steps)
    for state in reached:
        left = steps.cleaned(state)
        check_step(state, left, steps.epochs)
        kept = {row.upload for row in left.sql.rows if row.state in (COMMITTED, RETIRED)}
        assert left.half == frozenset()
        assert left.whole <= kept, f"an orphan stays: after {path_to(state, reached)}"
        assert not any(row.state is PLANNED for row in left.sql.rows)
    # That the model does what it should: each end of an upload is among the states.
    ends = {(state.first, state.second) for state in reached}
    assert {("done", "begins"), ("ended", "done"), ("ended", "ended")} <= ends
    assert not any(state.first == state.second == "done" for state in reached)
    assert any(row.state is PURGED and row.was_committed for state in reached for row in state.sql.rows)
