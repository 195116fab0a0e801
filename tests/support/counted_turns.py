"""How many turns of the event loop some work takes. With a `tiered.runtime.TURN_MS` below zero each item is a turn."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def counted_turns(work: Coroutine[Any, Any, T]) -> tuple[int, T]:
    """The turns of the loop until the end of `work`, and what it returns."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns, task.result()
