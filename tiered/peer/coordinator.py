"""The broker that coordinates one group or transactional id: found, connected to, and found again when it moves.

Owns that connection, which is the group's alone: a JoinGroup may wait for minutes. Must never repeat a request
that the coordinator has answered for good.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Self

from tiered import errors
from tiered.peer.answers import BrokerError, ConnectionLost, broker_error, require_success, the_only
from tiered.peer.cluster import FIRST_BACKOFF_MS, MAX_BACKOFF_MS, Cluster
from tiered.peer.connection import TIMEOUT_MS, Peer
from tiered.runtime import jittered_backoff_ms
from tiered.wire import messages
from tiered.wire.error_codes import COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR

FIND_COORDINATOR = 10
_ELSEWHERE_OR_LATER = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
_GROUP_KEY, _TRANSACTION_KEY = 0, 1


class Coordinator:
    """The present coordinator of `group_id`. One request at a time; `close` ends the connection.

    With `of_transactions` it is a transactional id.
    """

    def __init__(
        self, cluster: Cluster, group_id: str, *, of_transactions: bool = False, timeout_ms: float = TIMEOUT_MS
    ) -> None:
        self.group_id = group_id
        self.broker_id = -1
        """Which broker it is; -1 before the first question."""
        self._key_type = _TRANSACTION_KEY if of_transactions else _GROUP_KEY
        self._whose = f"{'transactional id' if of_transactions else 'group'} {group_id}"
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._peer: Peer | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """A request under way raises ConnectionLost."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def ask(
        self,
        api_key: int,
        build: Callable[[messages.Messages], Any],
        codes_of: Callable[[Any], Iterable[int]],
        *,
        at_most: int | None = None,
        longer_ms: float = 0,
        later: frozenset[int] = frozenset(),
    ) -> Any:
        """The coordinator's answer. Asked again while it moves, loads or cannot be reached: ask what may be repeated.

        `codes_of` gives the answer's error codes; all but those three are the caller's, and those in `later`,
        for which it is asked again as well. `longer_ms` is what the coordinator may take over the request by right.
        Raises the last error when time is over.
        """
        limit_ms = self._timeout_ms + longer_ms
        not_now = _ELSEWHERE_OR_LATER | later
        last: errors.TieredError | None = None
        tries = 0
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    try:
                        peer = await self._connected()
                        answer = await peer.request(api_key, build, at_most=at_most, timeout_ms=limit_ms)
                        moved = not_now.intersection(codes_of(answer))
                        if not moved:
                            return answer
                        last = broker_error(min(moved), f"the coordinator of {self._whose} is not ready")
                    except (ConnectionLost, errors.RequestTimedOut) as error:
                        last = error
                    except BrokerError as error:
                        if error.code not in _ELSEWHERE_OR_LATER:
                            raise
                        last = error
                    self.close()
                    pause_ms = jittered_backoff_ms(tries, first_ms=FIRST_BACKOFF_MS, max_ms=MAX_BACKOFF_MS)
                    await asyncio.sleep(pause_ms / 1000)
                    tries += 1
        except TimeoutError:
            self.close()
            raise last or errors.RequestTimedOut(
                f"the coordinator of {self._whose} did not answer in {limit_ms:g} ms"
            ) from None

    async def _connected(self) -> Peer:
        if self._peer is None or not self._peer.is_open:
            host, port = await self._found()
            self._peer = await Peer.connect(host, port, timeout_ms=self._timeout_ms, security=self._cluster.security)
        return self._peer

    async def _found(self) -> tuple[str, int]:
        answer = await self._cluster.request(
            FIND_COORDINATOR,
            lambda make: make.FindCoordinatorRequest(
                key=self.group_id, key_type=self._key_type, coordinator_keys=(self.group_id,)
            ),
        )
        # Up to version 3 the answer is the coordinator itself.
        found = the_only(answer.coordinators, "coordinator") if hasattr(answer, "coordinators") else answer
        require_success(found, f"{self._whose} has no coordinator")
        self.broker_id = found.node_id
        return found.host, found.port
