"""Offsets of many groups that are asked for at once: how often SQL is asked, and what each is told. On a real
catalogue."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from sqlalchemy import Connection

from tests.unit.broker.groups.coordinators import Coordinating, coordinating
from tiered.broker.groups import offset_memory, offset_reader
from tiered.broker.groups.committed_offsets import OffsetEntry
from tiered.broker.groups.offset_reader import OffsetReader
from tiered.broker.groups.values import Fence
from tiered.errors import CoordinatorNotAvailable, MetadataUnavailable
from tiered.ids import TopicId
from tiered.meta.engine import Database

T = TypeVar("T")
GROUPS = [f"group-{number}" for number in range(40)]


class _Counted(Database):
    """A catalogue that counts reads, holds what they found, and goes away."""

    count = 0
    may_answer = asyncio.Event()
    is_away = False

    async def read(self, fn: Callable[[Connection], T], *, deadline_ms: int | None = None) -> T:
        _Counted.count += 1
        if _Counted.is_away:
            await asyncio.sleep(0)
            raise MetadataUnavailable("SQL is away")
        found = await super().read(fn, deadline_ms=deadline_ms)
        await _Counted.may_answer.wait()
        return found


@dataclass(slots=True)
class Reading:
    broker: Coordinating
    reader: OffsetReader

    @property
    def topic_id(self) -> TopicId:
        return self.broker.topics.by_name("orders").topic_id

    async def commit(self, group_id: str, offset: int) -> None:
        slot = self.broker.groups.slot(group_id)
        fence = Fence(group_id=group_id, slot=slot, tenure=self.broker.groups.slots.tenure(slot), generation=0)
        await self.broker.groups.offsets.commit(
            fence, [OffsetEntry(topic_id=self.topic_id, partition=0, offset=offset)]
        )

    async def read(self, group_id: str, *others: UUID) -> int:
        found = await self.reader.offsets(group_id, {self.topic_id, *others}, limit=10)
        assert not found.waiting
        (row,) = found.rows.values()
        return row.committed_offset

    def ask(self, *group_ids: str) -> "list[asyncio.Task[int]]":
        return [asyncio.create_task(self.read(each)) for each in group_ids]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Reading]:
    """Each of `GROUPS` has committed its number."""
    _Counted.is_away, _Counted.may_answer = False, asyncio.Event()
    _Counted.may_answer.set()
    async with coordinating(tmp_path, sql=_Counted) as broker:
        found = Reading(broker, broker.groups.offsets._reader)
        await asyncio.gather(*(found.commit(group_id, number) for number, group_id in enumerate(GROUPS)))
        _Counted.count = 0
        yield found
        _Counted.may_answer.set()


async def until_asked(count: int) -> None:
    while _Counted.count < count:
        await asyncio.sleep(0)


async def test_groups_that_ask_at_once_or_while_sql_is_being_asked_share_a_question(made: Reading) -> None:
    _Counted.may_answer.clear()
    early = made.ask(*GROUPS[:9])
    await until_asked(1)
    late = made.ask(*GROUPS[9:])
    await asyncio.sleep(0)
    _Counted.may_answer.set()
    assert await asyncio.gather(*early, *late) == list(range(len(GROUPS)))
    assert _Counted.count == 2


async def test_whoever_asks_is_told_what_was_committed_before_that(made: Reading) -> None:
    _Counted.may_answer.clear()
    (early,) = made.ask("group-7")
    await until_asked(1)
    await made.commit("group-7", 700)
    late = made.ask("group-7", "group-8")
    await asyncio.sleep(0)
    _Counted.may_answer.set()
    assert (await early, *await asyncio.gather(*late)) == (7, 700, 8)


async def test_nobody_waits_for_the_one_that_has_what_all_remember_confirmed(
    made: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*made.ask(*GROUPS))
    asked = _Counted.count
    monkeypatch.setattr(offset_memory, "is_to_be_asked_again", lambda **_: True)
    _Counted.may_answer.clear()
    (first,) = made.ask("group-7")
    await until_asked(asked + 1)
    async with asyncio.timeout(5):
        assert [await made.read(each) for each in GROUPS[:5]] == list(range(5))
    assert not first.done()
    _Counted.may_answer.set()
    assert await first == 7


async def test_an_outage_is_told_to_all_that_were_asked_for_together(made: Reading) -> None:
    _Counted.is_away = True
    asked = made.ask(*GROUPS)
    for each in asked:
        with pytest.raises(CoordinatorNotAvailable, match="SQL is away"):
            await each
    assert _Counted.count == 1
    _Counted.is_away = False
    assert await made.read("group-3") == 3


async def test_others_are_answered_when_the_one_that_asks_for_them_goes_away(made: Reading) -> None:
    _Counted.may_answer.clear()
    first, second, *others = made.ask(*GROUPS)
    await until_asked(1)
    first.cancel()
    await until_asked(2)
    second.cancel()
    _Counted.may_answer.set()
    assert await asyncio.gather(*others) == list(range(2, len(GROUPS)))


async def test_groups_with_very_many_offsets_are_asked_for_one_by_one(
    made: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_reader, "MAX_ROWS_TOGETHER", 2)
    assert await asyncio.gather(*made.ask(*GROUPS[:5])) == list(range(5))


async def test_what_would_be_too_many_topics_together_goes_with_the_next_question(made: Reading) -> None:
    topics = [UUID(int=number) for number in range(1, 181)]
    asked = [asyncio.create_task(made.read("group-1", *topics[first : first + 90])) for first in (0, 90, 0, 90)]
    assert await asyncio.gather(*asked) == [1, 1, 1, 1]
    assert _Counted.count == 2
