"""Writes of committed offsets that meet each other on real connections to PostgreSQL: the newer one stays."""

import asyncio
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection

from tests.catalogue import register
from tests.contracts.stored_groups import SLOTS, commit, later, offsets, take, take_unheld, write
from tests.contracts.waiting_locks import until_blocked
from tiered.errors import NotCoordinator
from tiered.meta import brokers, group_offsets
from tiered.meta.engine import Database
from tiered.meta.group_offsets import WriteOutcome, WritingCoordinator

if TYPE_CHECKING:
    pass

pytest_plugins = ["tests.meta_databases"]


def held(by: WritingCoordinator, offset: int, written: threading.Event, release: threading.Event):  # type: ignore[no-untyped-def]
    """A batch that has been written and hangs before its COMMIT."""

    def fn(conn: Connection) -> WriteOutcome:
        result = group_offsets.write(conn, [commit(offset)], [], by)
        written.set()
        assert release.wait(10)
        return result

    return fn


async def test_a_newer_batch_waits_for_an_older_one_that_hangs_and_wins(two: Mapping[str, Database]) -> None:
    by = take(two["old"])
    written, release = threading.Event(), threading.Event()
    older = asyncio.create_task(two["old"].run(held(by, 100, written, release)))
    await asyncio.to_thread(written.wait, 10)
    newer = asyncio.create_task(
        two["new"].run(lambda conn: group_offsets.write(conn, [commit(50)], [], later(by, number=2)))
    )
    await until_blocked(two["new"])
    release.set()
    await asyncio.gather(older, newer)
    assert offsets(two["new"]) == {0: 50}


async def test_an_older_batch_that_was_blocked_by_a_newer_one_changes_nothing(two: Mapping[str, Database]) -> None:
    by = take(two["old"])
    written, release = threading.Event(), threading.Event()
    newer = asyncio.create_task(two["new"].run(held(later(by, number=2), 100, written, release)))
    await asyncio.to_thread(written.wait, 10)
    older = asyncio.create_task(two["old"].run(lambda conn: group_offsets.write(conn, [commit(50)], [], by)))
    await until_blocked(two["new"])
    release.set()
    await newer
    with pytest.raises(NotCoordinator):
        await older
    assert offsets(two["new"]) == {0: 100}


async def test_taking_the_slots_waits_for_a_write_that_hangs_and_then_sees_it(two: Mapping[str, Database]) -> None:
    by = take(two["old"])
    written, release = threading.Event(), threading.Event()
    older = asyncio.create_task(two["old"].run(held(by, 100, written, release)))
    await asyncio.to_thread(written.wait, 10)
    taking = asyncio.create_task(asyncio.to_thread(take, two["new"], broker_id=2))
    await until_blocked(two["new"])
    assert not taking.done(), "else it could read offsets that are about to change"
    release.set()
    await older
    await taking
    assert offsets(two["new"]) == {0: 100}
    assert isinstance(write(two["old"], later(by, number=2), commit(120)).refused[0], NotCoordinator)


async def test_a_write_that_waits_while_its_slot_is_taken_is_refused(two: Mapping[str, Database]) -> None:
    by = take(two["old"])
    taken, release = threading.Event(), threading.Event()

    def die_and_register(conn: Connection) -> int:
        brokers.fence(conn, broker_id=1, broker_epoch=by.broker_epoch)
        return register(conn, 2)

    epoch = two["new"].run_sync(die_and_register)

    def slowly(conn: Connection) -> None:
        assert take_unheld(conn, 2, epoch).keys() == set(range(SLOTS))
        taken.set()
        assert release.wait(10)

    taking = asyncio.create_task(two["new"].run(slowly))
    await asyncio.to_thread(taken.wait, 10)
    writing = asyncio.create_task(two["old"].run(lambda conn: group_offsets.write(conn, [commit(9)], [], by)))
    await until_blocked(two["new"])
    release.set()
    await taking
    assert isinstance((await writing).refused[0], NotCoordinator)
    assert offsets(two["new"]) == {}
