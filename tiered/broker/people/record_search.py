"""Looking for records in the partitions that this broker has, from both tiers, for somebody who waits for them.

Owns the turns of searches, their threads and their pace. A search reads forward, a piece of each partition in turn, and
rests between two pieces, so that producers keep the processor. Must never read on for a search that nobody wants, nor
move a position over a record that it has not looked at without saying so.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from tiered.account import OwnersShares, OwnersTurns
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic
from tiered.broker.people.record_reader import (
    Limits,
    Page,
    ReadCost,
    RecordReader,
    Render,
    Undecodable,
    UnfinishedBatch,
    Wanted,
)
from tiered.broker.tiering.tier_reader import TierReader
from tiered.errors import Corrupt, OffsetOutOfRange, OutOfRange, PolicyViolation, Retriable, Throttled
from tiered.formats.record_batch import Record
from tiered.runtime import Clock

PIECE_MS = 50.0
MAX_PIECE_MS = 1_000.0
PIECE_BYTES = 256 << 10
REST_SHARE = 1.0
"""How long a search rests after each piece, by how long a thread worked for it: half of one core at the most."""
MAX_REST_MS = 1_000.0
"""The bound of the rest at the end of a search."""
LATE_MS = 60_000
"""Records of several producers lie in a log nearly in the order of their times: a search for those until a time ends at
the first that is so much newer, and says so. Behind it there may be older ones, where a clock was wrong, or where
somebody has filled in the past: who goes on looks there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a search is in one partition: `next_offset` goes from `start_offset` to `end_offset`."""

    start_offset: int
    next_offset: int
    end_offset: int
    is_cut: bool = False
    """`end_offset` is that of the first record that is much newer than what is looked for, and not the log's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Offsets of a partition, or all that is left of it, that could not be looked at."""

    partition: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one piece of a search has brought: (partition, offset, rendered) of records, and the places after them."""

    records: tuple[tuple[int, int, bytes], ...] = ()
    places: Mapping[int, Place]
    troubles: tuple[Trouble, ...] = ()
    looked_records: int = 0
    read_bytes: int = 0
    worked_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What is looked for: records that are `wanted` and not older than `from_ms` nor newer than `to_ms`, as many as
    `max_records` in one piece."""

    wanted: Wanted | None
    from_ms: int | None
    to_ms: int | None
    max_records: int
    committed_only: bool
    render: Callable[[int], Render]


@dataclass(slots=True)
class Turn:
    """While a search runs. A thread worked for `worked_ms` at its last piece."""

    worked_ms: float = 0.0


class RecordSearches:
    """The searches of one broker: one of each principal at a time, on threads that pages and tails do not wait for."""

    def __init__(self, tiers: TierReader, clock: Clock, most: Callable[[], int]) -> None:
        """`most` reads the setting `tiered.http.max.searches`."""
        self._tiers = tiers
        self._clock = clock
        self._records = RecordReader(tiers, clock, "search", ends_with_threads=True)
        self._most = most
        self._turns = OwnersTurns()
        # Parts of searches at other brokers wait for no search of this one: the two could wait for each other.
        self._turns_of_parts = OwnersTurns()
        self._shares = OwnersShares()

    @property
    def running(self) -> int:
        return self._shares.total

    @property
    def pending(self) -> int:
        """Pieces of searches that threads decode or that wait for one."""
        return self._records.pending

    def close(self) -> None:
        self._records.close()

    @asynccontextmanager
    async def place(self, *, is_part: bool) -> AsyncIterator[Turn]:
        """While a search may run; `is_part` of one that another broker passed on. At its end it has no place any more,
        and rests before the same principal's next one may begin. Raises Throttled, PolicyViolation."""
        most = self._most()
        if most == 0:
            raise PolicyViolation("no records are searched at this broker: tiered.http.max.searches is 0")
        turns, turn = self._turns_of_parts if is_part else self._turns, Turn()
        async with turns.taken():
            try:
                with self._shares.taken(most) as is_taken:
                    if not is_taken:
                        raise Throttled(
                            f"{self.running} searches run at this broker, as many as may (tiered.http.max.searches); "
                            "try again in a moment"
                        )
                    yield turn
            finally:
                # Also where the client has gone: who hangs up and asks again, or asks for one record after the other,
                # would never rest.
                await asyncio.sleep(min(MAX_REST_MS, turn.worked_ms * REST_SHARE) / 1000.0)

    async def steps(
        self,
        topic: Topic,
        numbers: Sequence[int],
        sought: Sought,
        positions: Mapping[int, int],
        charge: Callable[[ReadCost], None],
    ) -> AsyncGenerator[Step, None]:
        """Looks at the partitions in turn until the offsets where they end now. It begins at `positions`, in the others
        at the first record that is not too old. `charge` takes what a piece has cost, also where it was cancelled."""
        pending: dict[int, tuple[Partition, Place]] = {}
        for number in numbers:
            partition = topic.hosted(number)
            if partition is None:
                message = f"{topic.name}-{number} is not open at this broker now"
                yield Step(places={}, troubles=(Trouble(partition=number, message=message),))
                continue
            try:
                place = await self._first_place(partition, sought, positions.get(number))
            except (Retriable, OutOfRange, Corrupt, OSError, EOFError) as error:
                is_disk = isinstance(error, OSError | EOFError)
                message = f"{partition.name} cannot be read from the broker's disk: {error}" if is_disk else str(error)
                yield Step(places={}, troubles=(Trouble(partition=number, message=message),))
                continue
            pending[number] = partition, place
            yield Step(places={number: place})
        while pending := {number: state for number, state in pending.items() if _is_unfinished(state[1])}:
            for number, (partition, place) in list(pending.items()):
                unfinished, place_after = UnfinishedBatch(), place
                while True:
                    step, after = await self._piece(partition, number, place_after, sought, unfinished, charge)
                    yield step
                    await asyncio.sleep(step.worked_ms * REST_SHARE / 1000.0)
                    if after is None:
                        del pending[number]
                        break
                    pending[number], place_after = (partition, after), after
                    # One batch at a time is kept unpacked: the other partitions wait for its end.
                    if not unfinished or not _is_unfinished(after):
                        break

    async def _first_place(self, partition: Partition, sought: Sought, position: int | None) -> Place:
        end_offset = partition.last_stable_offset if sought.committed_only else partition.high_watermark
        start_offset = partition.log_start_offset
        if position is not None:
            start_offset, log_end_offset = position, partition.offsets.log_end_offset
            if position > log_end_offset:
                raise OffsetOutOfRange(
                    f"its log ends at offset {log_end_offset}, below {position} where the search was to go on: is that "
                    "of an earlier topic of this name?"
                )
        elif sought.from_ms is not None:
            first = await self._tiers.offset_for_timestamp(partition, sought.from_ms, ends_with_thread=True)
            start_offset = end_offset if first is None else first[0]
        is_cut = False
        if sought.to_ms is not None and start_offset < end_offset:
            late_ms = sought.to_ms + LATE_MS
            behind = await self._tiers.offset_for_timestamp(partition, late_ms, ends_with_thread=True)
            # Whoever goes on from there has read that it is cut, and wants what is behind it.
            is_cut = behind is not None and behind[0] < end_offset and (position is None or position < behind[0])
            end_offset = behind[0] if is_cut and behind is not None else end_offset
        end_offset = max(start_offset, end_offset)
        return Place(start_offset=start_offset, next_offset=start_offset, end_offset=end_offset, is_cut=is_cut)

    async def _piece(
        self,
        partition: Partition,
        number: int,
        place: Place,
        sought: Sought,
        unfinished: UnfinishedBatch,
        charge: Callable[[ReadCost], None],
    ) -> tuple[Step, Place | None]:
        """What it brought, and the place after it; None where the partition cannot be read on."""
        look, cost = _Look(sought, place.end_offset, self._clock), ReadCost()
        try:
            step, after = await self._looked(partition, number, place, look, unfinished, cost)
        finally:
            charge(cost)
        looked_records, read_bytes, worked_ms = look.looked_records, cost.read_bytes, cost.worked_ms
        return replace(step, looked_records=looked_records, read_bytes=read_bytes, worked_ms=worked_ms), after

    async def _looked(
        self,
        partition: Partition,
        number: int,
        place: Place,
        look: "_Look",
        unfinished: UnfinishedBatch,
        cost: ReadCost,
    ) -> tuple[Step, Place | None]:
        """The same, with its cost apart."""
        sought = look.sought
        try:
            page = await self._records.read(
                partition,
                place.next_offset,
                limits=Limits(max_records=sought.max_records, max_bytes=PIECE_BYTES, max_ms=math.inf),
                committed_only=sought.committed_only,
                render=sought.render(number),
                wanted=look.is_wanted,
                is_over=look.is_over,
                unfinished=unfinished,
                cost=cost,
            )
        except Undecodable as error:
            return _skipped(number, place, error.end_offset, str(error))
        except OffsetOutOfRange:
            start_offset = partition.log_start_offset
            if place.next_offset < start_offset:
                message = f"offsets {place.next_offset} to {start_offset - 1} were deleted before they were looked at"
                return _skipped(number, place, start_offset, message)
            return _skipped(number, place, place.end_offset, "its log ends below where the search is")
        except (Retriable, Corrupt) as error:
            return Step(places={}, troubles=(Trouble(partition=number, message=str(error)),)), None
        return _found(number, page, place, partition, sought)


class _Look:
    """One piece: counts the records, and ends it on the thread that decodes. The time counts from its first record, or
    from the first batch without any, and is as long as it took to come there: when a search begins in the middle of a
    large batch, that must be unpacked, and gone through, first."""

    def __init__(self, sought: Sought, end_offset: int, clock: Clock) -> None:
        self.looked_records = 0
        self.sought = sought
        self._end_offset = end_offset
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._end_ms: float | None = None
        self._is_over = False

    def is_wanted(self, record: Record) -> bool:
        if record.offset >= self._end_offset:
            self._is_over = True
            return False
        if self._end_ms is None:
            self._begin(self._clock.monotonic_ms())
        self.looked_records += 1
        sought = self.sought
        if sought.from_ms is not None and record.timestamp_ms < sought.from_ms:
            return False
        if sought.to_ms is not None and record.timestamp_ms > sought.to_ms:
            return False
        return sought.wanted is None or sought.wanted(record)

    def is_over(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        return self._is_over or now_ms >= (self._begin(now_ms) if self._end_ms is None else self._end_ms)

    def _begin(self, now_ms: float) -> float:
        self._end_ms = now_ms + min(MAX_PIECE_MS, max(PIECE_MS, now_ms - self._began_ms))
        return self._end_ms


def _is_unfinished(place: Place) -> bool:
    return place.next_offset < place.end_offset


def _moved(place: Place, next_offset: int) -> Place:
    return replace(place, next_offset=min(next_offset, place.end_offset))


def _skipped(number: int, place: Place, to_offset: int, message: str) -> tuple[Step, Place]:
    after = _moved(place, to_offset)
    return Step(places={number: after}, troubles=(Trouble(partition=number, message=message),)), after


def _found(number: int, page: Page, place: Place, partition: Partition, sought: Sought) -> tuple[Step, Place | None]:
    """What a page has brought, and the place after it; None where the log has come to end before what is looked for."""
    records = tuple((number, offset, rendered) for offset, rendered in page.records)
    after = _moved(place, page.next_offset)
    if page.is_end and _is_unfinished(after):
        readable_end = partition.last_stable_offset if sought.committed_only else partition.high_watermark
        if readable_end < place.end_offset:
            message = (
                f"it can be read up to offset {readable_end} now, and could up to {place.end_offset} when the search "
                "began: its leader may have changed; go on in a moment"
            )
            return Step(
                records=records, places={number: after}, troubles=(Trouble(partition=number, message=message),)
            ), None
        after = _moved(place, place.end_offset)
    return Step(records=records, places={number: after}), after
