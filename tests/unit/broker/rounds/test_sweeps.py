"""A broker sweeps up behind its own uploads, and the controller behind everybody's."""

from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select, update

from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tiered.broker.rounds.sweeps import FORGET_INTERVAL_MS, Sweeps
from tiered.broker.tiering.segment_lifecycle import SegmentLifecycle
from tiered.errors import StoreRefused
from tiered.formats.object_key import SEGMENTS_PREFIX
from tiered.meta.tables import segment

TIMEOUT_MS = 60_000
MONTH_MS = 31 * 24 * 3_600_000


class Killed(BaseException):
    pass


async def killed_upload(made: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves an object and a planned row."""

    def killed(name: str) -> None:
        if name == "upload.stored":
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("tiered.broker.tiering.segment_lifecycle.crash_point", killed)
        await made.lifecycle.upload(made.partition, made.partition.cold_end_offset)


def objects(made: Tiers) -> int:
    return len(made.context.store.list(SEGMENTS_PREFIX))


def rows(conn: Connection) -> int:
    return int(conn.execute(select(func.count()).select_from(segment)).scalar_one())


async def test_the_first_sweep_takes_all_that_was_left_and_later_ones_what_is_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiers(tmp_path, tiered_upload_timeout_ms=str(TIMEOUT_MS)) as made:
        sweeps = Sweeps(context=made.context, lifecycle=made.lifecycle)
        left = []
        await killed_upload(made, monkeypatch)
        await sweeps.own()
        left.append(objects(made))
        await killed_upload(made, monkeypatch)
        await sweeps.own()
        left.append(objects(made))
        made.clock.set_by_ms += TIMEOUT_MS + 1
        await sweeps.own()
        left.append(objects(made))
        assert left == [0, 1, 0]


async def test_only_the_controller_sweeps_behind_brokers_that_are_out_of_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiers(tmp_path, tiered_upload_timeout_ms=str(TIMEOUT_MS)) as made:
        sweeps = Sweeps(context=made.context, lifecycle=made.lifecycle)
        await killed_upload(made, monkeypatch)
        await made.context.database.run(lambda conn: conn.execute(update(segment).values(owner=9)))
        made.clock.set_by_ms += TIMEOUT_MS + 1
        made.context.state.is_controller = False
        await sweeps.own()
        await sweeps.for_all()
        assert objects(made) == 1
        made.context.state.is_controller = True
        await sweeps.for_all()
        assert objects(made) == 0


async def test_rows_of_what_is_long_gone_are_forgotten_once_in_an_hour(tmp_path: Path) -> None:
    async with tiers(tmp_path, {"tiered.purge.grace.ms": "0", "retention.ms": "-1"}) as made:
        sweeps = Sweeps(context=made.context, lifecycle=made.lifecycle)
        made.context.state.is_controller = True
        await made.upload_all()
        await sweeps.for_all()
        await made.lifecycle.move_log_start(made.partition, SEGMENTS)
        made.clock.set_by_ms += 1
        await sweeps.own()
        made.clock.set_by_ms += MONTH_MS
        await sweeps.for_all()
        assert await made.context.database.run(rows) == SEGMENTS
        made.clock.waited_ms += FORGET_INTERVAL_MS
        await sweeps.for_all()
        assert await made.context.database.run(rows) == 0


async def test_a_deleted_topic_that_cannot_be_forgotten_holds_up_no_sweep_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiers(tmp_path, tiered_upload_timeout_ms=str(TIMEOUT_MS)) as made:
        sweeps = Sweeps(context=made.context, lifecycle=made.lifecycle)
        await killed_upload(made, monkeypatch)
        await made.context.database.run(lambda conn: conn.execute(update(segment).values(owner=9)))
        made.clock.set_by_ms += TIMEOUT_MS + 1
        made.context.state.is_controller = True

        async def forget_deleted_topics(_: SegmentLifecycle) -> None:
            raise StoreRefused("no permission")

        monkeypatch.setattr(SegmentLifecycle, "forget_deleted_topics", forget_deleted_topics)
        await sweeps.for_all()
        assert objects(made) == 0
        assert made.context.counters.failing_items["sweeping for all brokers"] == 1
