"""Whether a process that starts may become the broker of its number, where the metadata store says that one is already.

Owns that judgement. Two machines that were given one number must not take it from each other for ever, so only who is
known to be gone is replaced: who left by itself, who ran on this very data folder, which one process at a time can
hold, and whose heartbeat stood still for a session. Heartbeats are compared with each other and never with a clock,
as in `heartbeat_watch`. Liveness only: whoever is replaced although it lives stops, and nothing is lost (R11).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from tiered.ids import InSyncReplica
from tiered.rules.replication.heartbeat_watch import HeartbeatWatchState

PATIENCE_SESSIONS = 2.0
"""A heartbeat that still moves after as many sessions is that of a process that stays."""
LEAST_SESSION_BEATS = 3.0
"""Of a holder that beats more rarely than its session allows for, as one that is alone does."""
MOST_INCARNATIONS = 16


class Holder(NamedTuple):
    """The process that has the number in SQL, and its last heartbeat."""

    broker_epoch: int
    incarnation_id: UUID | None
    fenced: bool
    heartbeat_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The processes that a new one may replace.

    `incarnations` are the processes that registered, or tried to, from its data folder, itself among them;
    `marker_epoch` is the registration that the folder's marker names, for folders of versions that kept no list.
    `silent` is a holder whose heartbeat stood still for a session.
    """

    incarnations: frozenset[UUID]
    marker_epoch: int | None = None
    silent: Holder | None = None

    def may_replace(self, holder: Holder) -> bool:
        """Asked again under the registration's lock: a holder whose heartbeat has moved since is not the silent one."""
        is_own = holder.incarnation_id in self.incarnations or holder.broker_epoch == self.marker_epoch
        return holder.fenced or is_own or holder == self.silent


class HolderVerdict(Enum):
    """The verdict of a look at the holder."""

    GOES_ON = "goes on"
    HOLDER_IS_SILENT = "holder is silent"
    HOLDER_STAYS = "holder stays"


class HolderWatchState:
    """A waiting process's observations of the number's holder. It looks every `interval_ms`."""

    def __init__(self, *, session_timeout_ms: float, interval_ms: float) -> None:
        session_ms = max(session_timeout_ms, LEAST_SESSION_BEATS * interval_ms)
        self._watch = HeartbeatWatchState(session_timeout_ms=session_ms, interval_ms=interval_ms)
        self._patience_ms = PATIENCE_SESSIONS * session_ms
        self._began_ms: float | None = None
        self._before: Holder | None = None

    def look(self, holder: Holder, now_ms: float) -> HolderVerdict:
        """`now_ms` is the looker's own. It ends after three sessions of looks: who moves in the third one stays."""
        if self._began_ms is None:
            self._began_ms = now_ms
        has_moved, self._before = self._before not in (None, holder), holder
        # There is one number alone, so any will do.
        self._watch.look([(InSyncReplica(0, holder.broker_epoch), holder.heartbeat_at_ms)], now_ms)
        if self._watch.silent():
            return HolderVerdict.HOLDER_IS_SILENT
        if has_moved and now_ms - self._began_ms >= self._patience_ms:
            return HolderVerdict.HOLDER_STAYS
        return HolderVerdict.GOES_ON


def with_attempt(incarnations: Sequence[UUID], incarnation_id: UUID) -> tuple[UUID, ...]:
    """The data folder's list before a process registers from it. The first is the last one that is known to have
    registered; others may have, and their answers were lost. The middle ones are forgotten first."""
    return *incarnations[:1], *incarnations[1:][-(MOST_INCARNATIONS - 2) :], incarnation_id
