"""The lines of the audit log: for their owner alone, one for each thing done, and bounded for what is refused."""

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker.context import Surroundings, surroundings
from tiered.broker.security.access import Access
from tiered.broker.security.audit import (
    MAX_DETAIL_CHARS,
    MAX_REFUSED_LINES,
    MAX_UNFINISHED,
    STEPS_AT_ONCE,
    AuditLog,
)
from tiered.errors import InvalidConfig

NOTE: dict[str, Any] = {"principal": "User:x", "host": "h", "via": "kafka", "action": "A", "resource": "R"}


def audit(made: Surroundings) -> AuditLog:
    return AuditLog(context=made.context, access=Access(state=made.context.state))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_refused_administration_has_a_bound_and_what_was_done_has_none(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with surroundings(tmp_path, tiered_audit_log=str(path)) as made, asyncio.TaskGroup() as tasks:
        log = audit(made)
        log.start(tasks)
        for _ in range(MAX_REFUSED_LINES + 7):
            log.note(**NOTE, outcome="denied")
        log.note(**NOTE, outcome="allowed")
        await log.stop()
        log.note(**NOTE, outcome="allowed")
    found = lines(path)
    assert len(found) == MAX_REFUSED_LINES + 2
    assert found[-2]["outcome"] == "allowed"
    assert (found[-1]["outcome"], found[-1]["count"]) == ("left out", 7)


async def test_no_name_ends_a_line_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with surroundings(tmp_path, tiered_audit_log=str(path)) as made, asyncio.TaskGroup() as tasks:
        log = audit(made)
        log.start(tasks)
        log.note(**{**NOTE, "resource": 'x"}\n{"outcome": "allowed\u2028'}, outcome="denied")
        await log.stop()
    (line,) = lines(path)
    assert line["outcome"] == "denied"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_detail_that_is_too_long_is_cut_and_the_others_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    quotas = {"ü" * 100: 1.0}
    async with surroundings(tmp_path, tiered_audit_log=str(path)) as made, asyncio.TaskGroup() as tasks:
        log = audit(made)
        log.start(tasks)
        log.note(**NOTE, outcome="failed", details={"names": {"ü" * 1_000_000: 1.0}, "quotas": quotas, "status": 400})
        await log.stop()
    (line,) = lines(path)
    assert len(path.read_bytes()) < 3 * MAX_DETAIL_CHARS
    assert line["names"].startswith('{"\\u00fc\\u00fc')
    assert (line["quotas"], line["status"]) == (quotas, 400)


async def test_what_a_request_that_has_gone_named_is_written_down_in_turns_and_all_of_it_before_the_end(
    tmp_path: Path,
) -> None:
    path, noted = tmp_path / "audit.log", [0]

    def steps(count: int) -> Iterator[None]:
        for _ in range(count):
            log.note(**NOTE, outcome="unknown")
            noted[0] += 1
            yield

    async with surroundings(tmp_path, tiered_audit_log=str(path)) as made, asyncio.TaskGroup() as tasks:
        log = audit(made)
        log.start(tasks)
        log.finish(steps(STEPS_AT_ONCE - 1))
        assert noted == [STEPS_AT_ONCE - 1]
        log.finish(steps(20 * STEPS_AT_ONCE))
        assert noted[0] < 3 * STEPS_AT_ONCE
        while log._unfinished:
            await asyncio.sleep(0)
        assert noted[0] == 21 * STEPS_AT_ONCE - 1
        for _ in range(MAX_UNFINISHED):
            log.finish(steps(10 * STEPS_AT_ONCE))
        assert noted[0] < 30 * STEPS_AT_ONCE
        await log.stop()
    assert len(lines(path)) == 21 * STEPS_AT_ONCE - 1 + MAX_UNFINISHED * 10 * STEPS_AT_ONCE


async def test_a_file_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    async with surroundings(tmp_path, tiered_audit_log="/proc/none/audit.log") as made, asyncio.TaskGroup() as tasks:
        with pytest.raises(InvalidConfig, match=r"tiered\.audit\.log"):
            audit(made).start(tasks)
