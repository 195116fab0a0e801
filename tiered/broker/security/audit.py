"""The audit log: who asked for which administrative change, of what, from where, and whether it was allowed.

Owns the lines, one JSON object each, and where they go (`tiered.audit.log`): nowhere, stderr, or a file that its owner
alone may read. Refused requests for data are counted and summed up once a minute, because clients choose how many there
are; refused administration has a bound in a minute, and what goes beyond it is counted. What was done always has its
line. Must never be given a secret: names of settings and users, never values, salts or keys.
"""

import asyncio
import json
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import islice
from logging.handlers import WatchedFileHandler
from typing import IO

from tiered.broker.context import BrokerContext
from tiered.broker.security.access import Access
from tiered.errors import InvalidConfig
from tiered.runtime import Worker, every, in_turns

LOGGER = "tiered.audit"
NOWHERE, STDERR = "none", "stderr"
ALLOWED, DENIED, FAILED, UNKNOWN = "allowed", "denied", "failed", "unknown"
"""UNKNOWN: whoever asked went away before there was an answer; it may have been done."""
SUM_UP_EVERY_MS = 60_000
MAX_REFUSED_LINES = 1_000
"""Between two summaries."""
STEPS_AT_ONCE = 100
MAX_UNFINISHED = 4
"""Each has a request of up to 8 MiB. Further ones are written down in one step."""
MAX_NAME = 300
MAX_DETAIL_CHARS = 16_384
"""The bound of one detail as JSON. A hundred names of usual length have room."""


class AuditLog:
    """One broker's. `start` opens it, `close` says what is left to be said."""

    def __init__(self, *, context: BrokerContext, access: Access) -> None:
        self._context = context
        self._access = access
        self._target = self._context.settings.authorization.tiered_audit_log
        self.is_on = self._target != NOWHERE
        self._logger = logging.getLogger(f"{LOGGER}.{self._context.broker_id}")
        self._handler: logging.Handler | None = None
        self._worker = Worker()
        self._tasks: asyncio.TaskGroup | None = None
        self._unfinished: list[Iterator[None]] = []
        """What is still to be written down of requests that have gone."""
        self._refused = 0
        self._left_out = 0

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Raises InvalidConfig when the file cannot be written."""
        if not self.is_on:
            return
        try:
            self._handler = logging.StreamHandler(sys.stderr) if self._target == STDERR else _PrivateFile(self._target)
        except OSError as error:
            raise InvalidConfig(f"tiered.audit.log={self._target} cannot be written: {error.strerror}") from error
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        self._logger.addHandler(self._handler)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False  # Audit lines are no messages of the program.
        self._tasks = tasks
        self._worker.start(tasks, every(SUM_UP_EVERY_MS, self._sum_up_soon, name="audit summaries"))

    async def stop(self) -> None:
        """The last summary; nothing is written afterwards."""
        if self._handler is None:
            return
        await self._worker.stop()
        for steps in self._unfinished:
            deque(steps, maxlen=0)
        self.sum_up()
        self._logger.removeHandler(self._handler)
        self._handler.close()
        self._handler = None

    def note(
        self,
        *,
        principal: str,
        host: str,
        via: str,
        action: str,
        outcome: str,
        resource: str,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """One line. A refused or failed action beyond the bound is counted instead."""
        if self._handler is None:
            return
        if outcome in (DENIED, FAILED):
            self._refused += 1
            if self._refused > MAX_REFUSED_LINES:
                self._left_out += 1
                return
        self._write(
            {
                "principal": principal[:MAX_NAME],
                "host": host,
                "via": via,
                "action": action,
                "resource": resource[:MAX_NAME],
                "outcome": outcome,
                **{name: _cut(detail) for name, detail in (details or {}).items()},
            }
        )

    def finish(self, steps: Iterator[None]) -> None:
        """Takes the further steps of what notes a request whose client has gone: some at once, more of them in
        turns with everybody else."""
        if sum(1 for _ in islice(steps, STEPS_AT_ONCE)) < STEPS_AT_ONCE:
            return
        if self._tasks is None or len(self._unfinished) >= MAX_UNFINISHED:
            deque(steps, maxlen=0)
            return
        self._unfinished.append(steps)
        self._tasks.create_task(self._finish(steps))

    async def _finish(self, steps: Iterator[None]) -> None:
        try:
            async for _ in in_turns(steps):
                pass
        finally:
            self._unfinished.remove(steps)

    def sum_up(self) -> None:
        """Writes what was counted."""
        for (principal, host, operation, kind), count in self._access.take_denied().items():
            self._write(
                {
                    "principal": principal[:MAX_NAME],
                    "host": host,
                    "action": "summary",
                    "outcome": DENIED,
                    "operation": operation.name,
                    "resource_type": kind.name,
                    "count": count,
                }
            )
        if self._left_out:
            self._write({"action": "summary", "outcome": "left out", "count": self._left_out})
        self._refused = self._left_out = 0

    async def _sum_up_soon(self) -> None:
        self.sum_up()

    def _write(self, fields: Mapping[str, object]) -> None:
        now = datetime.fromtimestamp(self._context.clock.now_ms() / 1000.0, UTC)
        time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        # Escaped as ASCII: no name can end a line or look like another one.
        self._logger.info("%s", json.dumps({"time": time, "broker": self._context.broker_id, **fields}))


def _cut(detail: object) -> object:
    """The detail; where that is too long, the beginning of its JSON."""
    shown = json.dumps(detail)
    return detail if len(shown) <= MAX_DETAIL_CHARS else f"{shown[:MAX_DETAIL_CHARS]}…"


class _PrivateFile(WatchedFileHandler):
    """Appends to a file that nobody else may read; opens it anew when it was moved away (logrotate)."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
        opened: IO[str] = os.fdopen(descriptor, "a", encoding="ascii")
        assert isinstance(opened, TextIOWrapper)
        return opened
