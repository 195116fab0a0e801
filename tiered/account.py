"""On whose behalf the present step runs: whom its costs are counted against, and whose other work it waits behind.

Owns that one fact, turns and shares of owners, and counts of what they bring. Whoever runs a client's request says so
around each of its steps; between two steps, in tasks and on threads nobody is meant, and what a broker does by itself
has no account. Must never decide what anybody may do.
"""

import asyncio
import math
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from tiered.errors import Throttled
from tiered.rules.pacing.token_bucket import TokenBucketState
from tiered.runtime import Clock

T = TypeVar("T")

MAX_WAITING = 100
"""Of one owner's work, for its turn."""
MAX_OWNERS = 10_000
"""Whose days are remembered. Names of owners may be made up; those silent for longest are forgotten."""
DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Account:
    """Two of the same `owner` are one. `charge` takes milliseconds of a thread that worked for it; None where nobody
    counts them."""

    owner: Hashable
    charge: Callable[[float], None] | None = field(default=None, compare=False)


class _Steps(threading.local):
    """Each thread has one loop at the most, which runs one step at a time."""

    account: Account | None = None


_steps = _Steps()


def current() -> Account | None:
    """Whose step this is; None where it is nobody's."""
    return _steps.account


def current_owner() -> Hashable:
    """The owner of the present step; None where it is nobody's."""
    account = _steps.account
    return None if account is None else account.owner


def on_behalf_of(account: Account, call: Callable[[], T]) -> T:
    """The result of `call`, a step of the owner's work: it waits for nothing."""
    outer, _steps.account = _steps.account, account
    try:
        return call()
    finally:
        _steps.account = outer
        del call  # It may hold an exception, which holds this frame from now on.


class OwnersTurns:
    """One piece of work at a time of each owner, or `at_once` of them; those of other owners do not wait for it."""

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._places: dict[Hashable, _Place] = {}

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """While it is the turn of whose step this is. Raises Throttled where too much of theirs waits."""
        account = current()
        if account is None:
            yield
            return
        place = self._places.get(account.owner)
        if place is not None and place.count > MAX_WAITING:
            raise Throttled(f"{MAX_WAITING} requests of yours wait for their turn; ask for one after the other")
        async with self.taken_by(account.owner):
            yield

    @asynccontextmanager
    async def taken_by(self, owner: Hashable) -> AsyncIterator[None]:
        """While it is the owner's turn. The caller bounds how many wait."""
        await self._enter(owner)
        try:
            yield
        finally:
            self._leave(owner)

    async def to_its_end(self, owner: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, which begins when it is the owner's turn; None waits for nobody.

        The work goes on where its waiter gives up, and the turn ends with the work: who hangs up in the middle must not
        have a second piece run beside the first, and a third. The caller bounds how many wait.
        """
        if owner is None:
            return await work()
        await self._enter(owner)
        # The future gets no local name: its exception's traceback holds this frame, so the two would hold each other.
        return await asyncio.shield(self._begun(owner, work))

    def _begun(self, owner: Hashable, work: Callable[[], Awaitable[T]]) -> "asyncio.Future[T]":
        try:
            running = asyncio.ensure_future(work())
        except BaseException:
            self._leave(owner)
            raise
        running.add_done_callback(partial(self._ended, owner))
        return running

    def _ended(self, owner: Hashable, work: "asyncio.Future[Any]") -> None:
        self._leave(owner)
        if not work.cancelled():
            work.exception()  # A waiter that has gone leaves nobody else to fetch it.

    async def _enter(self, owner: Hashable) -> None:
        place = self._places.get(owner)
        if place is None:
            place = self._places[owner] = _Place(self._at_once)
        place.count += 1
        try:
            await place.turn.acquire()
        except asyncio.CancelledError:
            self._forget(owner, place)
            raise

    def _leave(self, owner: Hashable) -> None:
        place = self._places[owner]
        place.turn.release()
        self._forget(owner, place)

    def _forget(self, owner: Hashable, place: "_Place") -> None:
        place.count -= 1
        if not place.count:
            del self._places[owner]

    async def one(self, things: AsyncIterator[T]) -> AsyncIterator[T]:
        """The same things, of which the first comes when it is the owner's turn, until the last or until nobody wants
        another."""
        async with self.taken():
            async for thing in things:
                yield thing


class OwnersShares:
    """How much of a bounded whole each owner has at the moment. None may have more than is free: one owner alone stops
    at half of it, so there is room for whoever comes next."""

    def __init__(self) -> None:
        self.total = 0
        self._taken: Counter[Hashable] = Counter()

    def has_room(self, owner: Hashable, count: int, most: int) -> bool:
        """Whether the owner may have so much more of `most`. The first that it takes may be larger than its share."""
        own = self._taken[owner]
        return self.total < most and (not own or own + count <= most - self.total)

    @contextmanager
    def taken_by(self, owner: Hashable, count: int) -> Iterator[None]:
        """The owner has so much more until the end."""
        self.take(owner, count)
        try:
            yield
        finally:
            self.take(owner, -count)

    def take(self, owner: Hashable, count: int) -> None:
        """The owner has so much more, or less than before."""
        self.total += count
        self._taken[owner] += count
        if not self._taken[owner]:
            del self._taken[owner]

    @contextmanager
    def taken(self, most: int) -> Iterator[bool]:
        """Whether whose step this is may have one more of `most`, which it has until the end. What has no owner may
        have any that is free."""
        account = current()
        owner = None if account is None else account.owner
        if self.total >= most or (account is not None and not self.has_room(owner, 1, most)):
            yield False
            return
        with self.taken_by(owner, 1):
            yield True


class OwnersDays:
    """How many of something new each owner may bring in a day: all of them at once, then one after the other."""

    def __init__(self, what: str, setting: str, per_day: Callable[[], int], clock: Clock) -> None:
        """`what` they are, in the plural, and the name of the setting that `per_day` reads."""
        self._what = what
        self._setting = setting
        self._per_day = per_day
        self._clock = clock
        self._buckets: dict[Hashable, TokenBucketState] = {}

    def take(self) -> None:
        """Counts one more of whose step this is. Raises Throttled when it has to wait."""
        account, per_day, now_ms = current(), self._per_day(), self._clock.monotonic_ms()
        if account is None:
            return
        rate_per_s = per_day * 1000.0 / DAY_MS
        bucket = self._buckets.pop(account.owner, None)
        if bucket is None:
            bucket = TokenBucketState(rate_per_s, window_ms=DAY_MS, now_ms=now_ms)
            if len(self._buckets) >= MAX_OWNERS:
                del self._buckets[next(iter(self._buckets))]
        elif bucket.rate_per_s != rate_per_s:
            bucket.change_rate(rate_per_s, now_ms)
        self._buckets[account.owner] = bucket
        rest_ms = bucket.try_take(1, now_ms)
        if rest_ms:
            raise Throttled(
                f"{account.owner} has brought {per_day} new {self._what} within a day, as many as may be "
                f"({self._setting}); the next one may come in {math.ceil(rest_ms / 1000)} s"
            )


class _Place:
    """One owner's: what runs and waits."""

    __slots__ = ("count", "turn")

    def __init__(self, at_once: int) -> None:
        self.count = 0
        self.turn = asyncio.Semaphore(at_once)
