"""The patience with members of a KIP-848 group: who is thrown out, and why."""

import asyncio

from tiered.broker.groups.consumer_timers import MemberTimers
from tiered.runtime import SystemClock

LONG_MS = 60_000


def timers() -> tuple[MemberTimers, list[tuple[str, str]]]:
    passed: list[tuple[str, str]] = []
    made = MemberTimers(SystemClock(), lambda member_id, reason: passed.append((member_id, reason)))
    return made, passed


async def test_who_is_told_again_in_the_same_epoch_has_no_more_time() -> None:
    made, passed = timers()
    for member_id in ("slow", "done", "told anew"):
        made.touch(member_id, LONG_MS)
        made.expect(member_id, 1, 10)
    made.expect("slow", 1, LONG_MS)
    made.met("done")
    made.expect("told anew", 2, LONG_MS)
    while not passed:
        await asyncio.sleep(0.01)
    assert [member_id for member_id, reason in passed if "rebalance" in reason] == ["slow"]
    made.end()


async def test_nobody_is_silent_once_all_are_forgotten() -> None:
    made, passed = timers()
    made.touch("a", 10)
    made.forget("a")
    made.touch("silent", 10)
    while not passed:
        await asyncio.sleep(0.01)
    assert [member_id for member_id, _ in passed] == ["silent"]
    assert made.longest_silence_ms() > 0
    made.forget("silent")
    assert made.longest_silence_ms() == 0
