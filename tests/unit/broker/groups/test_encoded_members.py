"""Groups' members on their way to SQL: when they are encoded, where, and what waits for that."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.unit.broker.context import SetClock
from tests.unit.broker.groups.coordinators import Coordinating, commit, coordinating
from tiered.broker.groups import commit_writer
from tiered.broker.groups.values import GroupKind

LARGE = b"m" * (commit_writer.ENCODED_BYTES_A_MS * 100_000)
"""What nothing is encoded after for longer than a test takes."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Coordinating]:
    async with coordinating(tmp_path) as made:
        yield made


async def scalar(broker: Coordinating, statement: str) -> object:
    return await broker.database.run(lambda conn: conn.execute(text(statement)).scalar_one())


class Encoding:
    """Of members, which takes so long by the broker's clock."""

    def __init__(self, broker: Coordinating, *, takes_ms: int = 0, members: bytes = b"members") -> None:
        self._broker = broker
        self._members = members
        self._takes_ms = takes_ms
        self._done: list[int] = []
        self._threads: set[threading.Thread] = set()

    def note(self, group_id: str, generation: int) -> None:
        """The group is stable, with other members than before."""

        def encode() -> bytes:
            clock = self._broker.context.clock
            assert isinstance(clock, SetClock)
            clock.waited_ms += self._takes_ms
            self._threads.add(threading.current_thread())
            self._done.append(generation)
            return self._members

        self._broker.groups.offsets.note_group(
            group_id,
            kind=GroupKind.CONSUMER,
            protocol_type="consumer",
            generation=generation,
            is_empty=False,
            members=encode,
        )

    async def done(self, count: int) -> list[int]:
        """The generations whose members were encoded, once they are so many."""
        async with asyncio.timeout(20):
            while len(self._done) < count:
                await asyncio.sleep(0.001)
        assert threading.main_thread() not in self._threads
        return self._done


async def test_members_are_encoded_once_for_a_write_however_often_they_change_and_not_on_the_loop(
    broker: Coordinating,
) -> None:
    encoding = Encoding(broker)
    for generation in range(100):
        encoding.note("g", generation)
    await commit(broker, "other")
    assert await encoding.done(1) == [99]
    assert await scalar(broker, "SELECT members FROM consumer_group WHERE group_id = 'g'") == b"members"


async def test_while_members_wait_for_their_turn_to_be_encoded_nothing_else_does(broker: Coordinating) -> None:
    encoding = Encoding(broker, members=LARGE)
    stored = "SELECT generation FROM consumer_group WHERE group_id = '{}'"
    encoding.note("g", 1)
    await encoding.done(1)
    encoding.note("g", 2)
    broker.groups.offsets.note_group(
        "unstable", kind=GroupKind.CONSUMER, protocol_type="consumer", generation=7, is_empty=False
    )
    await commit(broker, "other")
    assert await scalar(broker, stored.format("unstable")) == 7
    await broker.groups.offsets.delete_group("other")
    assert await scalar(broker, stored.format("g")) == 1
    await broker.groups.stop()
    assert await encoding.done(1) == [1, 2], "the last words"
    assert await scalar(broker, stored.format("g")) == 2


async def test_a_deleted_group_does_not_come_back_with_members_that_waited(broker: Coordinating) -> None:
    encoding = Encoding(broker, members=LARGE)
    encoding.note("g", 1)
    await encoding.done(1)
    encoding.note("g", 2)
    await broker.groups.offsets.delete_group("g")
    await broker.groups.stop()
    assert await encoding.done(1) == [1]
    assert await scalar(broker, "SELECT count(*) FROM consumer_group") == 0


async def test_small_groups_wait_for_a_moment_however_slow_the_machine_is(broker: Coordinating) -> None:
    encoding = Encoding(broker, takes_ms=600_000)
    for generation in range(3):
        encoding.note("g", generation)
        assert await encoding.done(generation + 1) == list(range(generation + 1))


async def test_groups_with_many_members_do_not_share_one_transaction(
    broker: Coordinating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they might take longer than its deadline, again and again, and with them everybody's commits."""
    monkeypatch.setattr(commit_writer, "MAX_ENCODING_MS", 1_000_000.0)
    encoding = Encoding(broker, takes_ms=600_000)
    for number in range(5):
        encoding.note(f"large-{number}", 7)
    await broker.groups.stop()
    assert await scalar(broker, "SELECT count(*) FROM consumer_group WHERE generation = 7") == 5
    assert await scalar(broker, "SELECT count(DISTINCT commit_number) FROM consumer_group") == 3
