"""How this process comes by its number: at once where it is free, and never from a process that lives.

Owns the list of the processes that registered from this data folder, and the wait for a number that somebody else has.
Must never decide whom this process may replace: `rules.replication.number_claim` does, and SQL makes it a
compare-and-swap.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Connection

from tiered.broker.context import BrokerContext
from tiered.errors import InvalidConfig, LostRace
from tiered.hot.file_system import read_whole, replace_file
from tiered.meta import brokers
from tiered.meta.brokers import BrokerRow
from tiered.rules.replication.number_claim import MOST_INCARNATIONS, Claim, HolderWatchState, Waiting, with_attempt

T = TypeVar("T")

log = logging.getLogger(__name__)

INCARNATIONS_FILE = "incarnations.json"
"""`{"version": 1, "incarnations": [text, …]}`, as `with_attempt` has them. Where it is lost, a start after a kill may
wait for a session."""
MAX_FILE_BYTES = 100 * MOST_INCARNATIONS


class NumberClaim:
    """The way of one process to its number, once."""

    def __init__(
        self, *, context: BrokerContext, incarnation_id: UUID, interval_ms: float, check: Callable[[Connection], None]
    ) -> None:
        self._context = context
        self._check = check
        """Raises InvalidConfig where this process has no place in the cluster, whoever has the number: that is said
        at once, and not after a wait."""
        self._incarnation_id = incarnation_id
        self._interval_ms = interval_ms
        self._path = str(self._context.data.root / INCARNATIONS_FILE)
        self._watch = HolderWatchState(
            session_timeout_ms=self._context.settings.cluster.broker_session_timeout_ms, interval_ms=interval_ms
        )

    async def carry_out(self, register: Callable[[Claim], Awaitable[T]], *, marker_epoch: int | None) -> T:
        """What `register` returns for a claim that holds.

        Raises InvalidConfig when the number or the data folder is somebody else's, and what `register` raises.
        """
        known = with_attempt(await self._context.disk.run(self._read), self._incarnation_id)
        own = Claim(incarnations=frozenset(known), marker_epoch=marker_epoch)
        is_waiting = False
        # Three sessions of looks at the most: whoever is not silent then stays.
        while True:
            row = await self._context.database.read(self._look)
            claim = own if row is None or own.may_replace(row.holder) else self._watched(own, row)
            if claim is not None:
                # Before it registers: a process that is killed as soon as it has is known to the next one.
                await self._context.disk.run(self._write, known)
                try:
                    made = await register(claim)
                except LostRace as error:
                    log.warning("%s: this one looks again", error)
                else:
                    await self._context.disk.run(self._write, (self._incarnation_id,))
                    return made
            elif row is not None and not is_waiting:
                is_waiting = True
                log.warning(
                    "broker %d is registered from another data folder, at %s: this process takes its place when it has "
                    "been silent for a session", row.broker_id, _whereabouts(row),
                )  # fmt: skip
            await asyncio.sleep(self._interval_ms / 1000.0)

    def _look(self, conn: Connection) -> BrokerRow | None:
        self._check(conn)
        return brokers.load(conn, self._context.broker_id)

    def _watched(self, own: Claim, row: BrokerRow) -> Claim | None:
        """A claim to the place of a silent holder; None while it is to be seen whether it lives."""
        match self._watch.look(row.holder, self._context.clock.monotonic_ms()):
            case Waiting.HOLDER_IS_SILENT:
                return Claim(incarnations=own.incarnations, marker_epoch=own.marker_epoch, silent=row.holder)
            case Waiting.HOLDER_STAYS:
                raise InvalidConfig(
                    f"broker {row.broker_id} runs at {_whereabouts(row)}, with another data folder than "
                    f"{self._context.data.root}: no two processes may have one number. Start this one with a "
                    "--broker-id that is free; or, if it is to replace the other one, stop that one first, and see "
                    "that nothing starts it again"
                )
            case Waiting.GOES_ON:
                return None

    # The list

    def _read(self) -> Sequence[UUID]:
        data = read_whole(self._context.files, self._path, max_bytes=MAX_FILE_BYTES)
        try:
            return [UUID(each) for each in json.loads(data or b"{}")["incarnations"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            return ()  # None yet, or damaged: whoever has the number is waited for.

    def _write(self, incarnations: Sequence[UUID]) -> None:
        data = json.dumps({"version": 1, "incarnations": [str(each) for each in incarnations]}).encode()
        try:
            replace_file(self._context.files, self._path, data, durable=True)
        except OSError as error:
            log.warning("%s cannot be written (%s): the next start may wait for a session", self._path, error)


def _whereabouts(row: BrokerRow) -> str:
    return f"{row.host}:{row.port}"
