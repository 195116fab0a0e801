"""Offsets in transactions and decisions that meet on real connections to PostgreSQL: none waits after the decision."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

import pytest
from sqlalchemy import Connection

from tests.contracts.stored_groups import commit, later, offsets, take, write
from tests.contracts.stored_transactions import PRODUCER, begin, decided, pend, pending_commit, waiting
from tests.contracts.waiting_locks import until_blocked
from tiered.errors import ConcurrentTransactions
from tiered.meta import group_offsets, groups, transaction_offsets
from tiered.meta.engine import Database

pytest_plugins = ["tests.meta_databases"]
T = TypeVar("T")


def committed(conn: Connection) -> None:
    decided(conn, committed=(PRODUCER,))


def aborted(conn: Connection) -> None:
    decided(conn, aborted=(PRODUCER,))


class Hung:
    """A transaction that has done all it does, and hangs before its COMMIT."""

    def __init__(self, database: Database, change: Callable[[Connection], object]) -> None:
        self._done, self._release = threading.Event(), threading.Event()

        def slowly(conn: Connection) -> object:
            value = change(conn)
            self._done.set()
            assert self._release.wait(10)
            return value

        self._task = asyncio.ensure_future(database.run(slowly))

    async def hangs(self) -> None:
        assert await asyncio.to_thread(self._done.wait, 10)

    async def goes_on(self) -> object:
        self._release.set()
        return await self._task


async def meet(
    two: Mapping[str, Database], first: Callable[[Connection], object], second: Callable[[Connection], T]
) -> T:
    """The result of `second`, which waits for `first` to be committed."""
    hung = Hung(two["old"], first)
    await hung.hangs()
    waits = asyncio.ensure_future(two["new"].run(second))
    await until_blocked(two["new"])
    await hung.goes_on()
    return await waits


@pytest.mark.parametrize(("decision", "left"), [(committed, {0: 7}), (aborted, {})])
async def test_a_decision_waits_for_an_offset_that_is_being_written_and_takes_it(
    two: Mapping[str, Database], decision: Callable[[Connection], None], left: dict[int, int]
) -> None:
    by = take(two["old"])
    begin(two["old"])
    await meet(two, lambda conn: transaction_offsets.pend(conn, [pending_commit(7)], by), decision)
    assert (offsets(two["new"]), waiting(two["new"])) == (left, set())


@pytest.mark.parametrize("decision", [committed, aborted])
async def test_an_offset_that_comes_while_its_transaction_is_being_decided_is_refused(
    two: Mapping[str, Database], decision: Callable[[Connection], None]
) -> None:
    by = take(two["old"])
    begin(two["old"])
    outcome = await meet(two, decision, lambda conn: transaction_offsets.pend(conn, [pending_commit(7)], by))
    assert isinstance(outcome.refused[0], ConcurrentTransactions)
    assert (offsets(two["new"]), waiting(two["new"])) == ({}, set())


async def test_a_plain_commit_that_is_newer_stays_though_the_decision_is_written_after_it(
    two: Mapping[str, Database],
) -> None:
    by = take(two["old"])
    begin(two["old"])
    write(two["old"], by, commit(1))
    pend(two["old"], later(by, number=2), pending_commit(7))
    newer = later(by, number=3)
    await meet(two, lambda conn: group_offsets.write(conn, [commit(3)], [], newer), committed)
    assert (offsets(two["new"]), waiting(two["new"])) == ({0: 3}, set())


async def test_deleting_a_group_waits_for_a_decision_and_takes_what_it_brought(two: Mapping[str, Database]) -> None:
    by = take(two["old"])
    begin(two["old"])
    pend(two["old"], by, pending_commit(7), pending_commit(8, partition=1))
    assert await meet(two, committed, lambda conn: groups.remove(conn, "billing"))
    assert (offsets(two["new"]), waiting(two["new"])) == ({}, set())


async def test_a_decision_that_waits_for_its_groups_deletion_brings_nothing_back(two: Mapping[str, Database]) -> None:
    by = take(two["old"])
    begin(two["old"])
    pend(two["old"], by, pending_commit(7))
    await meet(two, lambda conn: groups.remove(conn, "billing"), committed)
    assert (offsets(two["new"]), waiting(two["new"])) == ({}, set())
