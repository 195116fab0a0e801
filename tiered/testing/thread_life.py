"""A broker in a thread of the test's own process, with an event loop of its own.

Owns that thread from its first to its last instruction. Must never touch what belongs to the whole process:
no signal handlers, no collector settings, no event loop policy, and the limit of open files is put back.
"""

import asyncio
import gc
import resource
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

from tiered.testing.broker_control import START_TIMEOUT_S, STOP_TIMEOUT_S, BrokerEndedError

if TYPE_CHECKING:
    from tiered.broker.replaceable_parts import BrokerParts
    from tiered.server.serve import Server
    from tiered.testing.cluster_options import CheckedOptions
    from tiered.testing.shared_catalogue import SharedDatabase

# A test's consumer often still waits for records when its broker ends: nobody reads the answer.
STOP_GRACE_MS = 100.0


class _End(Enum):
    STOP = "controlled"
    KILL = "without a goodbye"


class ThreadLife:
    """One broker, one thread, one loop. `environment` is entered while the broker looks for credentials.

    `catalogue` is that of several brokers; one by itself opens its own.
    """

    def __init__(
        self,
        told: "CheckedOptions",
        environment: Callable[[], AbstractContextManager[None]],
        catalogue: "SharedDatabase | None" = None,
    ) -> None:
        self._told = told
        self._catalogue = catalogue
        self._environment = environment
        self._ready: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._end: asyncio.Future[_End] | None = None
        # A daemon: a notebook that forgot its cluster must be able to end.
        self._thread = threading.Thread(target=self._live, name="tiered-broker", daemon=True)

    def start(self) -> None:
        self._thread.start()
        try:
            self._ready.result(START_TIMEOUT_S)
        except BaseException:
            self._ask(_End.KILL)
            self._thread.join(STOP_TIMEOUT_S)
            raise

    def stop(self) -> None:
        self._finish(_End.STOP)

    def kill(self) -> None:
        self._finish(_End.KILL)

    def health(self) -> dict[str, Any]:
        assert self._loop is not None
        assert self._server is not None
        if self._ended.done():
            self._ended.result(0)
        broker = self._server.broker

        async def health() -> dict[str, Any]:
            return broker.health(await broker.partition_totals())

        return asyncio.run_coroutine_threadsafe(health(), self._loop).result(START_TIMEOUT_S)

    def _finish(self, end: _End) -> None:
        self._ask(end)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not end within {STOP_TIMEOUT_S:g} s; its thread goes on")
        self._ended.result(0)

    def _ask(self, end: _End) -> None:
        loop = self._loop
        if loop is None or self._ended.done():
            return
        try:
            loop.call_soon_threadsafe(self._asked, end)
        except RuntimeError:
            pass  # The loop has just been closed: it ended by itself.

    def _asked(self, end: _End) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(end)

    # In the thread

    def _live(self) -> None:
        # The selector loop by name: the test's policy (uvloop, say) is for the test.
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve())
        except BaseException as error:
            failure = _only_leaf(error)
            self._ended.set_exception(failure)
            if not self._ready.done():
                self._ready.set_exception(failure)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        with _collector_at_rest():
            from tiered.server.serve import Server

        self._end = asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as tasks:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)
            server = self._server = Server(self._told.serve_options(), parts=self._parts())
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            try:
                await asyncio.to_thread(self._take_credentials, server)
                await server.start(tasks)
            except BaseException:
                await server.abandon()
                raise
            self._ready.set_result(None)
            replaced = tasks.create_task(server.broker.must_stop.wait())
            waits: list[asyncio.Future[Any]] = [self._end, replaced]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            replaced.cancel()
            if self._end.done() and self._end.result() is _End.KILL:
                await server.abandon()
            else:
                await server.stop(grace_ms=STOP_GRACE_MS)
        if server.broker.replaced is not None:
            raise BrokerEndedError(str(server.broker.replaced))

    def _parts(self) -> "BrokerParts | None":
        if self._catalogue is None:
            return None
        from tiered.broker.replaceable_parts import BrokerParts

        return BrokerParts(database=self._catalogue.beside())

    def _take_credentials(self, server: "Server") -> None:
        """Clients of S3 read the environment when they are made: that is now, not whenever the first upload comes."""
        if not self._told.store_url.startswith("s3:"):
            return
        from tiered.errors import TieredError

        with self._environment():
            try:
                server.broker.store.head("tiered-testing-looks-whether-the-store-answers")
            except TieredError:
                pass  # There is no such object; uploads will report any other error.


def _only_leaf(error: BaseException) -> BaseException:
    """The error, without the groups around it where it is a single one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Nothing that an import makes is garbage: looking for some takes a tenth of the first cluster's start."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
