"""A read replica with its two doors, as one process runs it.

Owns the order of start and stop. Must never decide anything about data.
"""

import asyncio

from tiered.broker.parts import BrokerParts
from tiered.config import ServeOptions
from tiered.read_replica.replica import ReadReplica
from tiered.runtime import Clock, SystemClock
from tiered.server.addresses import HTTP_OPTION, bind_or_explain
from tiered.server.bound_listeners import bound_listeners
from tiered.server.http.opening import READ_ONLY, HttpDoor
from tiered.server.kafka.apis import replica_apis
from tiered.server.kafka.dispatch import Dispatch
from tiered.server.kafka.transport.listener import KafkaListener

STOP_GRACE_MS = 3_000.0


class ReadOnlyServer:
    """`start`, then `stop`; the addresses are known in between."""

    def __init__(self, options: ServeOptions, clock: Clock | None = None, parts: BrokerParts | None = None) -> None:
        self._options = options
        self.replica = ReadReplica(options, clock or SystemClock(), parts)
        self._kafka = KafkaListener(
            Dispatch(self.replica, replica_apis()).handle,
            clock=self.replica.clock,
            counters=self.replica.counters,
            settings=lambda: self.replica.settings,
        )
        self._http = HttpDoor(self.replica, READ_ONLY, tls=options.http_tls)
        self.kafka_address = ("", 0)
        self.kafka_addresses: dict[str, tuple[str, int]] = {}
        self.http_address = ("", 0)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Serves when it returns. Raises TieredError or OSError with a message that says what to do."""
        options = self._options
        listeners = bound_listeners(self._kafka, options.listeners)
        self.kafka_addresses = {each.name: (each.host, each.port) for each in listeners}
        self.kafka_address = (listeners[0].host, listeners[0].port)
        self.http_address = bind_or_explain(
            lambda: self._http.bind(options.http_host, options.http_port),
            (options.http_host, options.http_port),
            HTTP_OPTION,
        )
        await self.replica.start(tasks, listeners=listeners)
        self._kafka.start(tasks)
        self._http.open(tasks)

    async def stop(self, *, grace_ms: float = STOP_GRACE_MS) -> None:
        """Answers in progress finish; nothing has to be saved."""
        self.replica.begin_stop()
        await self._kafka.stop(grace_ms=grace_ms)
        await self._http.stop()
        await self.replica.stop()

    async def abandon(self) -> None:
        """Resets connections and lets go of everything, without waiting for anybody. May follow a `start` that
        failed."""
        self._kafka.abandon()
        await self._http.stop()
        await self.replica.stop()
