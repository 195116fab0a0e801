"""`tiered consume TOPIC --group G`: as a member of a group, beside others.

Owns when to send heartbeats and when to commit: only what was shown, after it was flushed, every few seconds, before
partitions go to another member, and in the end. A record may so be shown twice after a crash, never be left out.
"""

import argparse
import asyncio
import signal
import sys
from contextlib import suppress

from tiered.cli.cluster import EARLIEST, LATEST, Cluster, Topic, offsets
from tiered.cli.consume import Consumption, Lines, Start, start_positions
from tiered.cli.failure import CommandFailed
from tiered.cli.fetcher import Fetcher
from tiered.cli.groups import ranges
from tiered.cli.kafka_errors import reason
from tiered.cli.output import say
from tiered.errors import TieredError
from tiered.peer import BrokerError
from tiered.peer.group_member import GroupMember
from tiered.runtime import SystemClock

HEARTBEAT_MS = 3_000.0
COMMIT_MS = 5_000.0
LOOK_MS = 30_000.0
"""How often the leader looks whether partitions were added."""
LAST_COMMIT_S = 5.0


async def consume_as_member(
    cluster: Cluster, topic: Topic, fetcher: Fetcher, arguments: argparse.Namespace, *, start: Start, follow: bool,
    lines: Lines,
) -> None:  # fmt: skip
    """Shows what the group gives to this member, until the end of that, `--count`, or Ctrl-C. Raises CommandFailed."""
    # `kill` ends it as Ctrl-C does, so that its partitions go to others at once. Not by way of SIGINT, which a shell
    # has its background jobs ignore.
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    member = GroupMember(cluster, arguments.group, [topic.name])
    membership = Membership(cluster, topic, member, fetcher, start=start, follow=follow, lines=lines)
    try:
        await membership.run(arguments.count)
    except BrokerError as error:
        raise CommandFailed(f"group {arguments.group}: {reason(error.code, error.message)}") from error
    finally:
        await member.leave()


class Membership:
    """Consumes what the group assigns, through all its rebalances."""

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        member: GroupMember,
        fetcher: Fetcher,
        *,
        start: Start,
        follow: bool,
        lines: Lines,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._member = member
        self._fetcher = fetcher
        self._start = start
        self._follow = follow
        self._lines = lines
        self._ends: dict[int, int] = {}
        self._clock = SystemClock()
        self._beat_at_ms = self._commit_at_ms = self._look_at_ms = 0.0
        self._committed: dict[int, int] = {}
        self._shown: dict[int, int] = {}

    async def run(self, count: int | None) -> None:
        """Returns when there is no more to show."""
        while True:
            consumption = await self._assigned(count)
            try:
                has_ended = await self._consume(consumption)
            except asyncio.CancelledError:
                # Ctrl-C: what was shown stays shown.
                with suppress(TieredError, TimeoutError):
                    async with asyncio.timeout(LAST_COMMIT_S):
                        await self._commit(consumption)
                raise
            holds = await self._commit(consumption)
            count = consumption.left
            if has_ended and holds:
                return

    async def _assigned(self, count: int | None) -> Consumption:
        """Joins; the partitions that it got, from where the group is."""
        assignment = await self._member.join()
        numbers = list(assignment.get(self._topic.name, ()))
        if sys.stderr.isatty():
            got = f"partitions {ranges(numbers)}" if numbers else "no partition: others have them all"
            say(f"group {self._member.group_id}: {got}", file=sys.stderr)
        committed = {
            partition: each.offset
            for (topic, partition), each in (await self._member.committed()).items()
            if topic == self._topic.name and partition in numbers
        }
        # What was shown and could not be committed is not shown again, unless another member got further meanwhile.
        carried = {
            number: offset
            for number, offset in self._shown.items()
            if number in numbers and committed.get(number) == self._committed.get(number)
        }
        positions = await self._in_the_log(committed) | carried
        if new := [number for number in numbers if number not in positions]:
            positions |= await start_positions(self._cluster, self._topic, new, self._start)
        if not self._follow:
            unknown = dict.fromkeys([number for number in numbers if number not in self._ends], LATEST)
            self._ends |= await offsets(self._cluster, self._topic, unknown, self._fetcher.isolation_level)
        self._committed = committed
        now_ms = self._clock.monotonic_ms()
        self._beat_at_ms, self._commit_at_ms = now_ms + HEARTBEAT_MS, now_ms + COMMIT_MS
        self._look_at_ms = now_ms + LOOK_MS
        ends = None if self._follow else self._ends
        consumption = Consumption(self._fetcher, positions, ends, count, self._lines)
        consumption.shown.update(carried)
        self._shown = consumption.shown
        return consumption

    async def _in_the_log(self, committed: dict[int, int]) -> dict[int, int]:
        """The offsets that are still, or already, there; says so on stderr where one is not."""
        firsts = await offsets(self._cluster, self._topic, dict.fromkeys(committed, EARLIEST))
        ends = await offsets(self._cluster, self._topic, dict.fromkeys(committed, LATEST))
        found = {number: at for number, at in committed.items() if firsts[number] <= at <= ends[number]}
        for number in committed.keys() - found.keys():
            say(
                f"partition {number}: the group is at offset {committed[number]}, and the log has {firsts[number]} to "
                f"{ends[number]}; going on from --offset",
                file=sys.stderr,
            )
        return found

    async def _consume(self, consumption: Consumption) -> bool:
        """True when there is no more to show, False when the group rebalances."""
        while not consumption.has_ended:
            if consumption.has_nothing:
                # More members than partitions: it waits for one.
                await asyncio.sleep(max(0.0, self._beat_at_ms - self._clock.monotonic_ms()) / 1000)
            else:
                await consumption.step()
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._commit_at_ms:
                self._commit_at_ms = now_ms + COMMIT_MS
                if not await self._commit(consumption):
                    return False
            if now_ms >= self._beat_at_ms:
                self._beat_at_ms = now_ms + HEARTBEAT_MS
                if not await self._member.heartbeat():
                    return False
            if now_ms >= self._look_at_ms:
                self._look_at_ms = now_ms + LOOK_MS
                if await self._member.partitions_changed():
                    return False
        return True

    async def _commit(self, consumption: Consumption) -> bool:
        """Commits what changed since the last time; False when the group rebalances."""
        changed = {
            number: offset for number, offset in consumption.shown.items() if self._committed.get(number) != offset
        }
        holds = await self._member.commit({(self._topic.name, number): offset for number, offset in changed.items()})
        if holds:
            self._committed |= changed
        return holds
