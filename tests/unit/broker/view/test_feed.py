"""Whoever commits a change goes on when this broker has applied it, and no sooner."""

import asyncio
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.simulation.loop import SimLoop
from tests.unit.broker.context import surroundings
from tiered.account import Account, on_behalf_of
from tiered.broker.view import feed as feed_module
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import InvalidTopic, MetadataOutcomeUnknown, MetadataUnavailable
from tiered.meta import cluster
from tiered.meta.changes import ChangeSet
from tiered.server.kafka.transport.turns import Stepped, let_others


async def test_a_commit_returns_once_its_change_was_applied(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made, asyncio.TaskGroup() as group:
        image, may_apply = ClusterImage(), asyncio.Event()

        async def apply(found: ChangeSet) -> None:
            await may_apply.wait()
            image.change_number = found.number

        feed = ChangeFeed(context=made.context, image=image)
        feed.apply = apply
        feed.start(group)
        committing = group.create_task(feed.commit(cluster.take_number))
        done, _ = await asyncio.wait([committing], timeout=0.05)
        assert not done
        may_apply.set()
        assert await committing == image.change_number
        await feed.stop()


async def test_who_waits_for_a_change_when_the_feed_stops_is_told_that_it_was_committed(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        feed = ChangeFeed(context=made.context, image=ClusterImage())
        waiting = asyncio.ensure_future(feed.caught_up(7))
        await asyncio.sleep(0)
        await feed.stop()
        with pytest.raises(MetadataUnavailable, match="change 7 was committed"):
            await waiting
        async with asyncio.timeout(1):
            with pytest.raises(MetadataUnavailable, match="change 8 was committed"):
                await feed.caught_up(8)


async def test_the_next_change_settles_an_unknown_outcome_first(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made, asyncio.TaskGroup() as group:
        image = ClusterImage()

        async def apply(found: ChangeSet) -> None:
            image.change_number = found.number

        async def loses_its_answer() -> None:
            raise MetadataOutcomeUnknown("the connection went with the answer")

        async def number() -> int:
            return image.change_number

        async def refused() -> None:
            raise InvalidTopic("no")

        feed = ChangeFeed(context=made.context, image=image)
        feed.apply = apply
        feed.start(group)
        changes = Changes(feed=feed)
        changes.start(group)
        before = await feed.commit(cluster.take_number)
        with pytest.raises(MetadataOutcomeUnknown):
            await changes.run(loses_its_answer)
        unknown = [changes.outcome_unknown]
        assert await changes.run(number) == before + 1, "a number was taken behind whatever might still commit"
        unknown.append(changes.outcome_unknown)
        with pytest.raises(InvalidTopic):
            await changes.run(refused)
        assert [*unknown, changes.outcome_unknown] == [True, False, False], "what was refused is known"
        await feed.stop()


async def test_who_asks_for_changes_and_hangs_up_has_one_made_before_those_of_others(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made, asyncio.TaskGroup() as group:
        changes, may_end, begun = (
            Changes(feed=ChangeFeed(context=made.context, image=ClusterImage())),
            asyncio.Event(),
            "",
        )
        changes.start(group)

        async def change(owner: str) -> None:
            nonlocal begun
            begun += owner
            await may_end.wait()

        def asked(owner: str) -> "asyncio.Task[None]":
            step = partial(on_behalf_of, Account(owner))
            return asyncio.create_task(Stepped(changes.run(partial(change, owner)), step=step, pause=let_others))

        for _ in range(3):
            hers = [asked("a") for _ in range(20)]
            await asyncio.sleep(0.01)
            for task in hers:
                task.cancel()
            await asyncio.wait(hers)
        his = asked("b")
        await asyncio.sleep(0.01)
        may_end.set()
        await his
        assert begun == "ab"


def test_the_feed_is_polled_only_where_no_heartbeat_has_looked(tmp_path: Path) -> None:
    loop, beat_s = SimLoop(Random(0)), feed_module.POLL_MS / 1000.0 / 2

    async def run() -> None:
        async with surroundings(tmp_path) as made, asyncio.TaskGroup() as group:
            image, applied = ClusterImage(), list[float]()

            async def apply(found: ChangeSet) -> None:
                image.change_number = found.number
                applied.append(loop.time())

            feed = ChangeFeed(context=made.context, image=image)
            feed.apply = apply
            feed.start(group)
            await asyncio.sleep(3 * beat_s)
            polls = len(applied)
            for _ in range(20):
                feed.seen(image.change_number)
                await asyncio.sleep(beat_s)
            assert (polls, len(applied)) == (1, 1)
            feed.seen(image.change_number + 1)
            await asyncio.sleep(0.1)
            assert len(applied) == 2
            await asyncio.sleep(20 * beat_s)
            assert 11 <= len(applied) <= 12
            # What could not be applied is tried again when a set without news comes, heartbeats or not.
            applied.clear()
            feed.is_unfinished = lambda: True
            for _ in range(20):
                feed.seen(image.change_number)
                await asyncio.sleep(beat_s)
            assert 9 <= len(applied) <= 10
            await feed.stop()

    loop.run_until_complete(run())
