"""`tiered consume TOPIC... --group G`: as a member of a group, beside others.

Owns when to send heartbeats and when to commit: only what was shown, after it was flushed, every few seconds, before
partitions go to another member, and in the end. A record may so be shown twice after a crash, never be left out.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from tiered.cli.failure import CommandFailed
from tiered.cli.groups.commands import ranges
from tiered.cli.output import complain, say
from tiered.cli.records.consume import Consumption, Lines, RecordFetcher, in_words, of_topic
from tiered.cli.records.offset_range import End, Start, start_positions
from tiered.cli.records.open_transactions import ends_of, reasons_of_the_end
from tiered.errors import TieredError
from tiered.peer import EARLIEST, LATEST, BrokerError, Cluster, TopicMetadata, TopicPartition
from tiered.peer.group_member import GroupMember
from tiered.peer.topology import numbers_by_topic
from tiered.runtime import SystemClock
from tiered.wire.error_codes import reason

HEARTBEAT_MS = 3_000.0
COMMIT_MS = 5_000.0
LOOK_MS = 30_000.0
"""How often the leader looks whether partitions were added."""
LAST_COMMIT_S = 5.0


async def consume_as_member(
    cluster: Cluster, topics: Sequence[TopicMetadata], fetcher: RecordFetcher, arguments: argparse.Namespace, *,
    start: Start, follow: bool, lines: Lines,
) -> None:  # fmt: skip
    """Shows what the group gives to this member, until the end of that, `--count`, or Ctrl-C. Raises CommandFailed."""
    # `kill` ends it as Ctrl-C does, so that its partitions go to others at once. Not by way of SIGINT, which a shell
    # has its background jobs ignore.
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    member = GroupMember(cluster, arguments.group, [each.name for each in topics])
    membership = Membership(cluster, topics, member, fetcher, start=start, follow=follow, lines=lines)
    try:
        if early_ends := await membership.run(arguments.count):
            for reason_of_end in await reasons_of_the_end(cluster, early_ends):
                complain(arguments, reason_of_end)
    except BrokerError as error:
        raise CommandFailed(f"group {arguments.group}: {reason(error.code, error.message)}") from error
    finally:
        await member.leave()


def _got(mine: Sequence[TopicPartition]) -> str:
    if not mine:
        return "no partition: others have them all"
    return " ".join(f"{topic}:{ranges(numbers)}" for topic, numbers in sorted(numbers_by_topic(mine).items()))


class Membership:
    """Consumes what the group assigns, through all its rebalances."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[TopicMetadata],
        member: GroupMember,
        fetcher: RecordFetcher,
        *,
        start: Start,
        follow: bool,
        lines: Lines,
    ) -> None:
        self._cluster = cluster
        self._topics = {each.name: each for each in topics}
        self._member = member
        self._fetcher = fetcher
        self._start = start
        self._follow = follow
        self._lines = lines
        self._ends: dict[TopicPartition, int] = {}
        self._early_ends: dict[TopicPartition, int] = {}
        self._clock = SystemClock()
        self._beat_at_ms = self._commit_at_ms = self._look_at_ms = 0.0
        self._committed: dict[TopicPartition, int] = {}
        self._shown: dict[TopicPartition, int] = {}

    async def run(self, count: int | None) -> dict[TopicPartition, int]:
        """Returns when there is no more to show: where an open transaction has ended it."""
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
                partitions = consumption.partitions if consumption.has_shown_all else ()
                return {where: at for where, at in self._early_ends.items() if where in partitions}

    async def _assigned(self, count: int | None) -> Consumption:
        """Joins; the partitions that it got, from where the group is."""
        assignment = await self._member.join()
        mine = [(topic, number) for topic in assignment if topic in self._topics for number in assignment[topic]]
        if sys.stderr.isatty():
            say(f"group {self._member.group_id}: {_got(mine)}", file=sys.stderr)
        committed = {each: at.offset for each, at in (await self._member.committed()).items() if each in mine}
        # A record that was shown and could not be committed is not shown again, unless another member got further.
        carried = {
            each: offset
            for each, offset in self._shown.items()
            if each in mine and committed.get(each) == self._committed.get(each)
        }
        positions = await self._in_the_log(committed) | carried
        for name, topic in self._topics.items():
            if new := [number for at, number in mine if at == name and (at, number) not in positions]:
                positions |= of_topic(topic, await start_positions(self._cluster, topic, new, self._start))
            unknown = [number for at, number in mine if at == name and (at, number) not in self._ends]
            if unknown and not self._follow:
                ends, early = await ends_of(self._cluster, topic, unknown, End(), self._fetcher.isolation_level)
                self._ends |= ends
                self._early_ends |= early
        self._committed = committed
        now_ms = self._clock.monotonic_ms()
        self._beat_at_ms, self._commit_at_ms = now_ms + HEARTBEAT_MS, now_ms + COMMIT_MS
        self._look_at_ms = now_ms + LOOK_MS
        until = None if self._follow else self._ends
        consumption = Consumption(self._fetcher, positions, until, count, self._lines)
        consumption.shown.update(carried)
        self._shown = consumption.shown
        return consumption

    async def _in_the_log(self, committed: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets that are still, or already, there; says so on stderr where one is not."""
        firsts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for name, topic in self._topics.items():
            numbers = [number for at, number in committed if at == name]
            firsts |= of_topic(topic, await self._cluster.list_offsets(topic.name, dict.fromkeys(numbers, EARLIEST)))
            ends |= of_topic(topic, await self._cluster.list_offsets(topic.name, dict.fromkeys(numbers, LATEST)))
        found = {each: at for each, at in committed.items() if firsts[each] <= at <= ends[each]}
        for each in committed.keys() - found.keys():
            say(
                f"{in_words(each)}: the group is at offset {committed[each]}, and the log has {firsts[each]} to "
                f"{ends[each]}; going on from --offset",
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
        changed = {each: offset for each, offset in consumption.shown.items() if self._committed.get(each) != offset}
        holds = await self._member.commit(changed)
        if holds:
            self._committed |= changed
        return holds
