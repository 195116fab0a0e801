"""One process, a broker or a read replica, from its options to its exit code.

Owns the order of start and stop: what must be there before clients come, and what must be safe before the
process goes. Must never decide anything about data.
"""

import asyncio
import logging
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from tiered.broker.broker import Broker
from tiered.broker.control.registration import WILDCARD_ADDRESSES
from tiered.broker.replaceable_parts import BrokerParts
from tiered.config import ServeOptions
from tiered.config.addresses import host_and_port
from tiered.config.listeners import HTTPS, ListenerOptions
from tiered.errors import InvalidConfig, TieredError
from tiered.runtime import Clock, SystemClock, every
from tiered.server.addresses import HTTP_OPTION, bind_or_explain
from tiered.server.garbage import LOOK_MS, FullCollections, begin_collecting
from tiered.server.http.opening import BROKER, READ_ONLY, HttpDoor
from tiered.server.idle_polling import event_loop
from tiered.server.kafka.apis import replica_apis, served_apis
from tiered.server.kafka.dispatch import Dispatch
from tiered.server.kafka.transport.listener import KafkaListener

if TYPE_CHECKING:
    from tiered.read_replica.replica import ReadReplica

log = logging.getLogger(__name__)

STOP_GRACE_MS = 3_000.0
SWITCH_S = 0.00002
"""So long a busy thread keeps Python's interpreter from one that waits for it. Python's own 5 ms come at each step from
the event loop to SQL's thread and back: a commit took 230 ms while others' requests of 100,000 names were answered. In
a transaction SQLite gives the interpreter away again and again: beside fifty busy connections a commit took 23 to 52 ms
with 0.5 ms here, and 9 to 13 with this (p99; ADR 0034)."""


class Server:
    """A broker or a read replica with its two doors. `start`, then `stop`; the addresses are known in between."""

    def __init__(self, options: ServeOptions, clock: Clock | None = None, parts: BrokerParts | None = None) -> None:
        self._options = options
        service = self.service = _service(options, clock or SystemClock(), parts)
        self._dispatch = Dispatch(service, replica_apis() if options.read_only else served_apis())
        self._kafka = KafkaListener(
            self._dispatch.handle,
            self._dispatch.turns,
            clock=service.clock,
            counters=service.counters,
            settings=lambda: service.settings,
            rate_of=service.client_quotas.of_address,
            log_count=lambda: service.topics.hosted_count if isinstance(service, Broker) else 0,
        )
        if isinstance(service, Broker):
            is_revoked = service.authentication.is_revoked
            service.credentials.watch(lambda: self._kafka.end_logins(is_revoked))
        self._http = HttpDoor(service, READ_ONLY if options.read_only else BROKER, tls=options.http_tls)
        self.kafka_address = ("", 0)
        """Of the first listener."""
        self.kafka_addresses: dict[str, tuple[str, int]] = {}
        self.http_address = ("", 0)

    @property
    def answers_large(self) -> bool:
        """Whether there are requests of very many names."""
        return self._dispatch.answers_large

    def let_go(self) -> None:
        """Keeps nothing for the next requests that they can do without."""
        self._kafka.let_go()
        self.service.access.forget()

    @property
    def broker(self) -> Broker:
        assert isinstance(self.service, Broker), "this is a read replica"
        return self.service

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Serves when it returns. Raises TieredError or OSError with a message that says what to do."""
        options = self._options
        listeners = [self._bound(each) for each in options.listeners]
        self.kafka_addresses = {each.name: (each.host, each.port) for each in listeners}
        self.kafka_address = (listeners[0].host, listeners[0].port)
        self.http_address = bind_or_explain(
            lambda: self._http.bind(options.http_host, options.http_port),
            (options.http_host, options.http_port),
            HTTP_OPTION,
        )
        for name, address in self.kafka_addresses.items():
            # Until they listen, one address can have both.
            hosts = {address[0], self.http_address[0]}
            if address[1] == self.http_address[1] and (len(hosts) == 1 or hosts.intersection(WILDCARD_ADDRESSES)):
                raise InvalidConfig(
                    f"{HTTP_OPTION} and listener {name} have one address, {host_and_port(*address)}: give each a port "
                    "of its own"
                )
        advertised = listeners[0].advertised
        http_host = advertised[0] if options.http_host in WILDCARD_ADDRESSES else options.http_host
        await self.service.start(
            tasks, advertised=advertised, http=(http_host, self.http_address[1]), listeners=listeners
        )
        self._kafka.start(tasks)
        self._http.open(tasks)

    def _bound(self, wanted: ListenerOptions) -> ListenerOptions:
        """The listener as it is bound: its port is not 0. Raises InvalidConfig that names the option to change."""
        host, port = bind_or_explain(lambda: self._kafka.bind(wanted), (wanted.host, wanted.port), wanted.option)
        return replace(wanted, host=host, port=port)

    async def stop(self, *, grace_ms: float = STOP_GRACE_MS) -> None:
        """A controlled shutdown: others take over, answers in progress finish, logs are flushed and marked clean."""
        if isinstance(self.service, Broker):
            await self.service.hand_over()
        self.service.begin_stop()
        await self._kafka.stop(grace_ms=grace_ms)
        await self._http.stop()
        await self.service.stop()

    async def abandon(self) -> None:
        """Leaves behind what kill -9 does, as far as one object among others can.

        Connections are reset, and nothing is flushed, fenced or announced. Every descriptor, thread and other task
        of this loop ends; a call that a thread is in the middle of is carried out. May follow a `start` that failed.
        """
        self._kafka.abandon()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._http.stop()
        await self.service.abandon()


def _service(options: ServeOptions, clock: Clock, parts: BrokerParts | None) -> "Broker | ReadReplica":
    if options.read_only:
        from tiered.read_replica.replica import ReadReplica  # A broker does not pay for it.

        return ReadReplica(options, clock, parts)
    return Broker(options, clock, parts)


class _AskedToStopAtStart(Exception):
    """Ends the tasks of a start that is not wanted any more."""


async def serve(options: ServeOptions) -> None:
    """Runs one broker, or a read replica, until SIGTERM or SIGINT; prints its ready line to stdout."""
    server = Server(options)
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    try:
        await _serve(server, options, asked_to_stop)
    except* _AskedToStopAtStart:
        # No client was served yet, so what a kill would leave is left.
        await server.abandon()
    log.info("stopped")
    if isinstance(server.service, Broker) and server.service.replaced is not None:
        raise server.service.replaced


async def _serve(server: Server, options: ServeOptions, asked_to_stop: asyncio.Event) -> None:
    service = server.service
    async with asyncio.TaskGroup() as tasks:
        # It may wait for its number or its database, or read a large log: nobody must wait for that to stop it.
        starting, asked = tasks.create_task(_start(server, tasks)), tasks.create_task(asked_to_stop.wait())
        await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            log.info("stopping before anybody was served")
            raise _AskedToStopAtStart
        asked.cancel()
        sys.setswitchinterval(SWITCH_S)
        begin_collecting(service.counters, SystemClock())
        full = FullCollections(SystemClock(), lambda: server.answers_large, server.let_go)
        collecting = tasks.create_task(every(LOOK_MS, full.look, name="full collections"))
        kafka, http = host_and_port(*server.kafka_address), host_and_port(*server.http_address)
        others = "".join(
            f" listener.{name}={host_and_port(*address)}" for name, address in list(server.kafka_addresses.items())[1:]
        )
        scheme = "" if options.http_tls is None else HTTPS
        sys.stdout.write(f"ready broker={options.broker_id} kafka={kafka} http={scheme}{http}{others}\n")
        sys.stdout.flush()
        events = [asked_to_stop, service.must_stop] if isinstance(service, Broker) else [asked_to_stop]
        stops = [tasks.create_task(event.wait()) for event in events]
        await asyncio.wait(stops, return_when=asyncio.FIRST_COMPLETED)
        for task in (*stops, collecting):
            task.cancel()
        log.info("stopping: no new requests; flushing")
        await server.stop()


async def _start(server: Server, tasks: asyncio.TaskGroup) -> None:
    try:
        await server.start(tasks)
    except (TieredError, OSError):
        await asyncio.to_thread(server.service.data.remove_if_new)
        raise


def run(options: ServeOptions) -> int:
    """The exit code: 0 after a controlled shutdown, 1 when the broker could not start or was replaced."""
    failures: list[BaseException] = []
    try:
        loop_factory = event_loop(options.settings.limits.tiered_idle_poll_us, SystemClock())
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(serve(options))
    except* (TieredError, OSError) as group:
        failures = _leaves(group)
    for error in failures:
        sys.stderr.write(f"tiered serve: {error}\n")
    return 1 if failures else 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
