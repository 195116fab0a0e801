"""A leader asks SQL whether it still leads: one question for all who wait, and no without an answer."""

import asyncio
from pathlib import Path

import pytest

from tests.unit.broker.context import surroundings
from tiered.broker.partitions.leadership_check import LeadershipCheck
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.errors import MetadataUnavailable, NotLeader
from tiered.meta import cluster
from tiered.meta.changes import ChangeSet
from tiered.meta.engine import Database


class CountedReads(Database):
    """The metadata store, with its reads counted, and away when a test says so."""

    reads = 0
    is_away = False

    async def read(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.reads += 1
        if self.is_away:
            raise MetadataUnavailable("it is away")
        return await super().read(*args, **kwargs)


async def test_it_returns_once_all_that_was_committed_before_is_applied(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made, asyncio.TaskGroup() as group:
        image = ClusterImage()

        async def apply(found: ChangeSet) -> None:
            image.change_number = found.number

        feed = ChangeFeed(context=made.context, image=image)
        feed.apply = apply
        feed.start(group)
        number = await made.context.database.run(cluster.take_number)
        await LeadershipCheck(feed=feed).confirm()
        assert image.change_number >= number
        await feed.stop()


async def test_many_who_ask_at_once_share_a_question_that_was_asked_after_they_came(tmp_path: Path) -> None:
    async with surroundings(tmp_path, CountedReads) as made:
        database, image = made.context.database, ClusterImage()
        assert isinstance(database, CountedReads)
        image.change_number = 1 << 40
        check = LeadershipCheck(feed=ChangeFeed(context=made.context, image=image))
        await asyncio.gather(*(check.confirm() for _ in range(10)))
        assert database.reads == 2, "the first one's, and one for all who came while it was on its way"
        await check.confirm()
        assert database.reads == 3, "an old answer says nothing of now"


async def test_without_an_answer_somebody_else_may_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiered.broker.partitions.leadership_check.PATIENCE_S", 0.01)
    async with surroundings(tmp_path, CountedReads) as made:
        database = made.context.database
        assert isinstance(database, CountedReads)
        await database.run(cluster.take_number)
        check = LeadershipCheck(feed=ChangeFeed(context=made.context, image=ClusterImage()))
        with pytest.raises(NotLeader, match="cannot ask"):
            await check.confirm()  # SQL answers, and nobody applies what it says.
        database.is_away = True
        with pytest.raises(NotLeader, match="cannot ask"):
            await check.confirm()
