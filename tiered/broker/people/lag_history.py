"""How far each group is behind, now and over the last two hours: for people, in this broker's memory.

Owns a ring of samples for a bounded number of groups. A sample is a bounded number of rows of SQL, held against the
partitions in memory, and against their leaders' last reports where no replica is here; every broker takes its own
samples, of all groups. While SQL is away the ring has a gap. Must never decide anything: no request waits for it but
those that ask for it.
"""

import asyncio
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topics
from tiered.broker.people.log_bounds import KnownLogBounds
from tiered.broker.people.log_growth import LogGrowth
from tiered.broker.view.image import ClusterImage
from tiered.errors import TieredError
from tiered.ids import TopicId, TopicPartition
from tiered.meta import group_lag
from tiered.meta.group_lag import CommittedOffsetRow
from tiered.runtime import in_turns

SAMPLES = 1_440
"""Two hours of them, unless the broker is told another interval."""
MAX_GROUPS = 1_000
MAX_OFFSETS = 20_000
"""Committed offsets in one sample, of all groups."""
OFFSETS_AT_ONCE = 1_000
READ_DEADLINE_MS = 4_000
# Several people who look at the same time share one question.
FRESH_MS = 200.0
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One committed offset, held against its partition."""

    topic: str
    partition: int
    committed_offset: int
    high_watermark: int
    lag: int
    lag_ms: int
    """For how long this broker has seen the first record above the committed offset in the log; 0 without a lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """One group's partitions with a committed offset, and what they lack in all."""

    group_id: str
    lag: int
    partitions: tuple[PartitionLag, ...]

    @property
    def lag_ms(self) -> int:
        """That of the partition whose oldest record that is not committed waits the longest."""
        return max((partition.lag_ms for partition in self.partitions), default=0)

    @property
    def topics(self) -> list[str]:
        return sorted({each.topic for each in self.partitions})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """`lag` is None where nobody knows: SQL was away, or the group had nothing committed."""

    at_ms: int
    lag: int | None


class LagRings:
    """The newest samples of up to `max_groups` groups, all taken at the same times."""

    def __init__(self, *, samples: int = SAMPLES, max_groups: int = MAX_GROUPS) -> None:
        self._samples = samples
        self._max_groups = max_groups
        self._count = 0
        self._at_ms = array("q", [0] * samples)
        self._rings: dict[str, array[int]] = {}

    def add(self, at_ms: int, lags: Mapping[str, int]) -> None:
        """One sample. Groups that are not in it have a gap there."""
        index = self._count % self._samples
        self._count += 1
        self._at_ms[index] = at_ms
        for ring in self._rings.values():
            ring[index] = _UNKNOWN
        has_room = True
        for group_id, lag in lags.items():
            if group_id not in self._rings:
                has_room = has_room and self._make_room()
                if not has_room:
                    continue  # Groups that have a ring come after it, too.
                self._rings[group_id] = array("q", [_UNKNOWN] * self._samples)
            self._rings[group_id][index] = lag

    def history(self, group_id: str, *, since_ms: int) -> list[Sample]:
        """The group's samples, oldest first, from its first known one on; empty for a group without any."""
        ring = self._rings.get(group_id)
        if ring is None:
            return []
        indexes = (number % self._samples for number in range(max(0, self._count - self._samples), self._count))
        found = [
            Sample(at_ms=self._at_ms[index], lag=None if ring[index] == _UNKNOWN else ring[index])
            for index in indexes
            if self._at_ms[index] >= since_ms
        ]
        first = next((number for number, sample in enumerate(found) if sample.lag is not None), len(found))
        return found[first:]

    def _make_room(self) -> bool:
        """True when one more group may have a ring; those of groups that are long gone go first."""
        if len(self._rings) >= self._max_groups:
            gone = [group_id for group_id, ring in self._rings.items() if max(ring) == _UNKNOWN]
            for group_id in gone:
                del self._rings[group_id]
        return len(self._rings) < self._max_groups


class LagHistory:
    """`latest` is the newest sample of every group; `group_count` is how many SQL knew then, with offsets or not."""

    def __init__(
        self, *, context: BrokerContext, image: ClusterImage, log_bounds: KnownLogBounds, topics: Topics
    ) -> None:
        self._context = context
        self._image = image
        self._log_bounds = log_bounds
        self._topics = topics
        self.latest: Mapping[str, GroupLag] = MappingProxyType({})
        self.group_count: int | None = None
        self._read_ms = float("-inf")
        self._turn = asyncio.Lock()
        self._rings = LagRings()
        self._growth: dict[TopicPartition, LogGrowth] = {}
        """Of the partitions in `latest`."""

    async def sample(self) -> None:
        """Adds one sample to the ring, or a gap when SQL does not answer; raises what SQL met."""
        now_ms = self._context.clock.now_ms()
        try:
            async with self._turn:
                await self._read()
        except TieredError:
            self._rings.add(now_ms, {})
            raise
        self._rings.add(now_ms, {group_id: group.lag for group_id, group in self.latest.items()})

    async def current(self) -> Mapping[str, GroupLag]:
        """Every group's lag, a moment old at the most. Raises MetadataUnavailable."""
        async with self._turn:
            if self._context.clock.monotonic_ms() - self._read_ms >= FRESH_MS:
                await self._read()
            return self.latest

    async def _read(self) -> None:
        database, clock = self._context.database, self._context.clock
        ends_ms = clock.monotonic_ms() + READ_DEADLINE_MS
        self.group_count = await database.read_part(group_lag.count, deadline_ms=READ_DEADLINE_MS)
        rows: list[CommittedOffsetRow] = []
        while len(rows) < MAX_OFFSETS:
            load = partial(group_lag.load_some, after=rows[-1] if rows else None, limit=OFFSETS_AT_ONCE)
            some = await database.read_part(load, deadline_ms=max(1, int(ends_ms - clock.monotonic_ms())))
            rows += some
            if len(some) < OFFSETS_AT_ONCE:
                break
        self.latest = MappingProxyType(await self._lags(rows))
        self._read_ms = self._context.clock.monotonic_ms()

    def lag_ms(self, key: TopicPartition, committed_offset: int) -> int | None:
        """For how long at least the first record above the committed offset is in the log; None for a partition that
        no sample was taken of, as before the first one."""
        watched = self._growth.get(key)
        if watched is None:
            return None
        grew_ms = watched.grew_past(committed_offset)
        return 0 if grew_ms is None else max(0, int(self._context.clock.monotonic_ms()) - grew_ms)

    def history(self, group_id: str, *, since_ms: int) -> list[Sample]:
        """The group's samples, oldest first; empty for a group without any."""
        return self._rings.history(group_id, since_ms=since_ms)

    async def _lags(self, rows: Sequence[CommittedOffsetRow]) -> dict[str, GroupLag]:
        found = {}
        growth: dict[TopicPartition, LogGrowth] = {}
        # Where the answer was cut off, its last group is not whole: better no lag of it than a wrong one.
        cut_group = rows[-1].group_id if len(rows) >= MAX_OFFSETS else None
        async for group_id, of_group in in_turns(groupby(rows, key=attrgetter("group_id"))):
            if group_id == cut_group:
                break
            partitions = tuple(self._partition_lags(of_group, growth))
            if partitions:
                total = sum(each.lag for each in partitions)
                found[group_id] = GroupLag(group_id=group_id, lag=total, partitions=partitions)
        self._growth = growth  # At the end: a look that is cancelled forgets nothing.
        return found

    def _partition_lags(
        self, rows: Iterator[CommittedOffsetRow], growth: dict[TopicPartition, LogGrowth]
    ) -> Iterator[PartitionLag]:
        """Lags of these rows; puts into `growth` what is known of their partitions."""
        now_ms = int(self._context.clock.monotonic_ms())
        for row in rows:
            topic, key = self._topics.find_id(row.topic_id), TopicPartition(TopicId(row.topic_id), row.partition)
            if topic is None or self._image.row(key) is None:
                continue  # Deleted; its offsets go with the next look for expired ones.
            here = self._log_bounds.known_here(key)
            if here is not None:
                high_watermark = here.high_watermark
            else:
                high_watermark = self._log_bounds.reported(key, row.high_watermark).high_watermark
            watched = growth.setdefault(key, self._growth.get(key) or LogGrowth())
            watched.observe(high_watermark, now_ms)
            grew_ms = watched.grew_past(row.offset)
            yield PartitionLag(
                topic=topic.name,
                partition=row.partition,
                committed_offset=row.offset,
                high_watermark=high_watermark,
                lag=max(0, high_watermark - row.offset),
                lag_ms=0 if grew_ms is None or high_watermark <= row.offset else now_ms - grew_ms,
            )
