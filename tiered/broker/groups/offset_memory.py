"""What the coordinator has read of its groups' offsets, for whoever asks next (R12).

Owns the answers, SQL's last word on which slots are this broker's, and the knowledge of what must not be kept: what
this broker's writer is changing, what was read while it did, and groups for which offsets wait, because the end of a
transaction changes these behind the coordinator's back. Whoever else changes a group's offsets has its slot, in
another tenure, and waits until nothing is answered from here any more. Must never answer for longer than SQL's last
word counts.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from tiered.ids import TopicPartition
from tiered.meta.group_offsets import OffsetRow
from tiered.rules.groups.remembered_offsets import is_to_be_asked_again, may_answer
from tiered.runtime import Clock

MAX_BYTES = 16 << 20
MAX_ROWS_OF_GROUP = 1_000
"""A group with more is not kept: what is asked of it is mostly something else each time."""
GROUP_BYTES, ROW_BYTES, TOPIC_BYTES, CHAR_BYTES = 500, 400, 100, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffsets:
    """Of one group: its offsets, and the topics and partitions for which another one waits."""

    rows: Mapping[TopicPartition, OffsetRow] = field(default_factory=dict)
    waiting: frozenset[tuple[UUID, int]] = frozenset()


@dataclass(slots=True, eq=False)
class ReadingState:
    """A question to SQL: when it began, the groups that were changed since (None: any), and what SQL said of slots."""

    asked_ms: float
    changed: list[Collection[str] | None]
    held: Mapping[int, int] = field(default_factory=dict)

    def is_of(self, group_id: str) -> bool:
        """Whether what it finds of the group is how the group was all the while."""
        return not any(each is None or group_id in each for each in self.changed)


@dataclass(frozen=True, slots=True)
class _Answer:
    found: FoundOffsets
    topic_ids: frozenset[UUID] | None
    tenure: int
    size_bytes: int


class OffsetMemory:
    """Of one broker, for its reader and its writer. Nothing here waits."""

    def __init__(self, clock: Clock, slot_of: Callable[[str], int]) -> None:
        self._clock = clock
        self._slot_of = slot_of
        self._held: Mapping[int, int] = {}
        """The tenures of this broker's slots, as SQL said when it was asked at `_held_ms`."""
        self._held_ms = -math.inf
        # What was used last comes last.
        self._answers: dict[str, _Answer] = {}
        self._size_bytes = 0
        self._readings: dict[ReadingState, None] = {}
        self._changing: Collection[str] | None = ()

    # For the reader

    def answer(self, group_id: str, topic_ids: Collection[UUID] | None) -> FoundOffsets | None:
        """The group's offsets of all topics, or at least of these, as they are at this moment; None: SQL must say."""
        known = self._answers.get(group_id)
        if known is None or not may_answer(asked_ms=self._held_ms, now_ms=self._clock.elapsed_ms()):
            return None
        if self._held.get(self._slot_of(group_id)) != known.tenure:
            return None  # Another one may have had the slot meanwhile.
        if known.topic_ids is not None and (topic_ids is None or not known.topic_ids.issuperset(topic_ids)):
            return None
        self._answers[group_id] = self._answers.pop(group_id)
        return known.found

    @property
    def is_to_be_confirmed(self) -> bool:
        """SQL's last word counts no more, or not for long."""
        return is_to_be_asked_again(asked_ms=self._held_ms, now_ms=self._clock.elapsed_ms())

    @contextmanager
    def reading(self) -> Iterator[ReadingState]:
        """For as long as SQL is asked."""
        state = ReadingState(self._clock.elapsed_ms(), [self._changing])
        self._readings[state] = None
        try:
            yield state
        finally:
            del self._readings[state]

    def heard(self, reading: ReadingState, held: Mapping[int, int]) -> None:
        """These slots were this broker's in the moment of the reading, in these tenures. So all that is remembered of
        the same tenures counts on: in a tenure nobody else writes."""
        reading.held = held
        if reading.asked_ms >= self._held_ms:
            self._held, self._held_ms = held, reading.asked_ms

    def keep(
        self, reading: ReadingState, group_id: str, found: FoundOffsets, topic_ids: Collection[UUID] | None
    ) -> None:
        """`found` is all that the group has of these topics, in the moment of the reading."""
        tenure = reading.held.get(self._slot_of(group_id))
        if tenure is None or found.waiting or len(found.rows) > MAX_ROWS_OF_GROUP or not reading.is_of(group_id):
            return
        kept = None if topic_ids is None else frozenset(topic_ids)
        size_bytes = GROUP_BYTES + CHAR_BYTES * len(group_id) + TOPIC_BYTES * len(kept or ())
        size_bytes += sum(ROW_BYTES + CHAR_BYTES * len(row.metadata) for row in found.rows.values())
        self._forget(group_id)
        self._answers[group_id] = _Answer(found, kept, tenure, size_bytes)
        self._size_bytes += size_bytes
        while self._size_bytes > MAX_BYTES:
            self._forget(next(iter(self._answers)))

    # For the writer

    def changing(self, group_ids: Collection[str] | None) -> None:
        """From now on, and until `settled`, nobody knows what these groups' offsets are; None: those of any group."""
        self._changing = group_ids
        for reading in self._readings:
            reading.changed.append(group_ids)
        for group_id in list(self._answers) if group_ids is None else group_ids:
            self._forget(group_id)

    def settled(self) -> None:
        """What was being changed is changed, or never will be."""
        self._changing = ()

    def _forget(self, group_id: str) -> None:
        answer = self._answers.pop(group_id, None)
        if answer is not None:
            self._size_bytes -= answer.size_bytes
