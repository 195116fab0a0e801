"""A thread with an event loop, on which the project's own client of brokers lives: Spark's code is synchronous.

Must never leave the thread behind: close it, or use it with `with`.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from tiered.errors import InvalidConfig
from tiered.peer import Cluster, parse_bootstrap
from tiered.peer.security import ClientSecurity, PeerSecurity

T = TypeVar("T")


class BrokerThread:
    """A cluster behind bootstrap addresses, and the loop that its coroutines run on."""

    def __init__(
        self, bootstrap_servers: str, *, client_id: str, timeout_ms: float, security: ClientSecurity | None = None
    ) -> None:
        try:
            addresses = parse_bootstrap(bootstrap_servers)
        except InvalidConfig as error:
            raise InvalidConfig(f"option kafka.bootstrap.servers: {error}") from error
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tiered-brokers", daemon=True)
        self._thread.start()
        self.cluster = Cluster(
            addresses,
            client_id=client_id,
            timeout_ms=timeout_ms,
            security=None if security is None else PeerSecurity(security),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        """What the call will give, once it has."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def close(self) -> None:
        """Ends the connections and the thread. May be called twice."""
        if self._loop.is_closed():
            return
        self.submit(self._end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Leaves nothing on the loop that is still waiting."""
        self.cluster.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
