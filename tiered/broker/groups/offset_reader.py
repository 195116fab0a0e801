"""Reads the committed offsets of many groups together: what comes while one SQL transaction is under way shares the
next.

Owns the questions that wait. Must never answer with anything but what SQL says, or what `OffsetMemory` vouches for.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.broker.groups.offset_memory import FoundOffsets, OffsetMemory
from tiered.errors import CoordinatorNotAvailable, MetadataUnavailable, Throttled, TieredError
from tiered.ids import TopicId, TopicPartition
from tiered.meta import coordinator_slots, group_offsets, transaction_offsets
from tiered.meta.group_offsets import MAX_TOPICS_TO_FILTER, OffsetRow

T = TypeVar("T")

READ_DEADLINE_MS = 5_000
TURNS = 2
"""Of the loop, before SQL is asked: requests that have come already share the transaction."""
MAX_TOGETHER = 500
MAX_ROWS_TOGETHER = 10_000
"""Groups that have more, together, are asked for one by one."""
MAX_WAITING = 10_000


@dataclass(slots=True, eq=False)
class _QuestionState:
    """Waits until it was asked. Then it has an answer or an error, or neither where it must be asked alone."""

    group_id: str
    topic_ids: Collection[UUID]
    was_asked: bool = False
    answer: FoundOffsets | None = None
    error: TieredError | None = None


class OffsetReader:
    """For the many requests of a broker; one of them at a time asks SQL, also for those that wait."""

    def __init__(self, context: BrokerContext, memory: OffsetMemory) -> None:
        self._context = context
        self._memory = memory
        self._asking: asyncio.Event | None = None
        """Set, for all who wait, when SQL has answered whoever asks now."""
        self._waiting: dict[_QuestionState, None] = {}

    async def offsets(self, group_id: str, topic_ids: Collection[UUID] | None, *, limit: int) -> FoundOffsets:
        """Up to `limit` of each, at a moment after this call began: of all topics, or at least of these.

        Raises CoordinatorNotAvailable.
        """
        remembered = self._memory.answer(group_id, topic_ids)
        if remembered is not None and (self._asking is not None or not self._memory.is_to_be_confirmed):
            return remembered
        if topic_ids is None or len(topic_ids) > MAX_TOPICS_TO_FILTER:
            return await self._alone(group_id, topic_ids, limit)
        if len(self._waiting) >= MAX_WAITING:
            raise CoordinatorNotAvailable("too many ask for offsets; try again later")
        question = _QuestionState(group_id, topic_ids)
        self._waiting[question] = None
        try:
            while not question.was_asked and question.answer is None:
                if self._asking is None:
                    await self._ask(question)
                else:
                    await self._asking.wait()
                    # Whoever asked may have asked for us, or shown that what is remembered counts.
                    if not question.was_asked:
                        question.answer = self._memory.answer(group_id, topic_ids)
        finally:
            self._waiting.pop(question, None)
        if question.error is not None:
            remembered = self._memory.answer(group_id, topic_ids)
            if remembered is not None:  # SQL was asked before that was necessary.
                return remembered
            raise type(question.error)(*question.error.args)
        return question.answer or await self._alone(group_id, topic_ids, limit)

    async def read(self, question: Callable[[Connection], T]) -> T:
        """What `question(conn)` finds, all of one moment. Raises CoordinatorNotAvailable."""
        try:
            return await self._context.database.read(question, deadline_ms=READ_DEADLINE_MS)
        except (MetadataUnavailable, Throttled) as error:
            raise CoordinatorNotAvailable(str(error)) from error

    async def _alone(self, group_id: str, topic_ids: Collection[UUID] | None, limit: int) -> FoundOffsets:
        if topic_ids is not None and len(topic_ids) > MAX_TOPICS_TO_FILTER:
            topic_ids = None  # No filter for SQL, so it says everything.
        with self._memory.reading() as reading:
            found, held = await self.read(partial(self._found, [group_id], topic_ids, limit))
            self._memory.heard(reading, held)
            offsets = found.get(group_id, FoundOffsets())
            if len(offsets.rows) < limit:
                self._memory.keep(reading, group_id, offsets, topic_ids)
        return offsets

    async def _ask(self, first: _QuestionState) -> None:
        """For `first`, and for what waits beside it. If it is given up, the others ask for themselves."""
        self._asking = asked = asyncio.Event()
        try:
            await self._ask_together(first)
        finally:
            self._asking = None
            asked.set()

    async def _ask_together(self, first: _QuestionState) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        together, topic_ids = _fitting(first, self._waiting)
        for each in together:
            self._waiting.pop(each, None)  # What comes from here on is answered by a later moment.
        group_ids = list({each.group_id for each in together})
        with self._memory.reading() as reading:
            try:
                found, held = await self.read(partial(self._found, group_ids, topic_ids, MAX_ROWS_TOGETHER))
            except TieredError as error:
                kept = error.without_frames()
                for each in together:
                    each.was_asked, each.error = True, kept
                return
            too_many = max(
                sum(len(each.rows) for each in found.values()), sum(len(each.waiting) for each in found.values())
            )
            self._memory.heard(reading, held)
            if too_many < MAX_ROWS_TOGETHER:
                for group_id in group_ids:
                    self._memory.keep(reading, group_id, found.get(group_id, FoundOffsets()), topic_ids)
        for each in together:
            each.was_asked = True
            if too_many < MAX_ROWS_TOGETHER:
                each.answer = found.get(each.group_id, FoundOffsets())

    def _found(
        self, group_ids: Collection[str], topic_ids: Collection[UUID] | None, limit: int, conn: Connection
    ) -> tuple[Mapping[str, FoundOffsets], Mapping[int, int]]:
        """(what `_found` says, the tenures of this registration's slots), of one moment."""
        broker_id, broker_epoch = self._context.broker_id, self._context.state.broker_epoch
        held = coordinator_slots.tenures_of(conn, broker_id=broker_id, broker_epoch=broker_epoch)
        return _found(conn, group_ids, topic_ids, limit), held


def _fitting(first: _QuestionState, waiting: Iterable[_QuestionState]) -> tuple[list[_QuestionState], frozenset[UUID]]:
    """(what is asked together, of which topics): `first` in any case."""
    together, topic_ids = [first], frozenset(first.topic_ids)
    for each in waiting:
        if len(together) == MAX_TOGETHER:
            break
        more = topic_ids.union(each.topic_ids)
        if each is not first and len(more) <= MAX_TOPICS_TO_FILTER:
            together.append(each)
            topic_ids = more
    return together, topic_ids


def _found(
    conn: Connection, group_ids: Collection[str], topic_ids: Collection[UUID] | None, limit: int
) -> Mapping[str, FoundOffsets]:
    """By group; one that has nothing is missing. All of one moment: what waits no more was decided in the offsets."""
    names = sorted(group_ids)
    rows: dict[str, dict[TopicPartition, OffsetRow]] = defaultdict(dict)
    for group_id, row in group_offsets.load_of_several(conn, names, topic_ids=topic_ids, limit=limit):
        rows[group_id][TopicPartition(TopicId(row.topic_id), row.partition)] = row
    waiting: dict[str, set[tuple[UUID, int]]] = defaultdict(set)
    for group_id, topic_id, partition in transaction_offsets.pending_of_several(
        conn, names, topic_ids=topic_ids, limit=limit
    ):
        waiting[group_id].add((topic_id, partition))
    return {
        each: FoundOffsets(rows=rows.get(each, {}), waiting=frozenset(waiting.get(each, ())))
        for each in rows.keys() | waiting.keys()
    }
