"""Changes of the metadata store by one broker: what becomes of those that come when it ends."""

import asyncio
from typing import Any, cast

import pytest

from tiered.broker.view.changes import Changes
from tiered.errors import ShuttingDown


async def test_a_change_that_comes_while_the_broker_fails_is_refused_as_one_that_comes_while_it_stops() -> None:
    changes = Changes(feed=cast(Any, None))

    async def fails() -> None:
        raise ValueError("as planned")

    async def change() -> None:
        raise AssertionError("nothing is changed any more")

    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            changes.start(group)
            group.create_task(fails())
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                with pytest.raises(ShuttingDown):
                    await changes.run(change)
                raise
