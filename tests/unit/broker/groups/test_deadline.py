"""A deadline that is moved: it passes once, when the time that was last set is over."""

import asyncio

from tiered.broker.groups.timer import Deadline


async def test_the_time_that_was_last_set_counts_and_it_passes_once() -> None:
    passed: list[str] = []
    later, sooner, cleared = (Deadline(lambda name=name: passed.append(name)) for name in ("later", "sooner", "never"))  # type: ignore[misc]
    later.set(5)
    later.set(60_000)
    sooner.set(60_000)
    cleared.set(5)
    cleared.clear()
    sooner.set(20)
    while not passed:
        await asyncio.sleep(0.01)
    assert passed == ["sooner"]
    assert (sooner.is_set, later.is_set, cleared.is_set) == (False, True, False)
    later.clear()
