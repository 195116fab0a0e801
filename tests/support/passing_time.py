"""A whole broker whose hours pass in seconds: real sockets, files, threads and SQL, no waiting.

Owns the time of one broker: its loop's, its clock's and its SQLite's. While time passes, the loop skips what it would
sleep for. Must never skip while a thread is at work for it, and never more than a second at once: whoever looks at the
clock again and again sees it go.
"""

import asyncio
import selectors
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Engine, event

from tiered.config import add_serve_arguments, load_serve_options
from tiered.runtime import SystemClock
from tiered.server.serve import Server

T = TypeVar("T")
WAIT_S = 60.0
PASS_S = 600.0
LONGEST_SKIP_S = 1.0
MS_OF_DAY = 86_400_000
UNIX_EPOCH_DAYS = 2_440_587.5
"""The Julian day on which 1970 began, in UTC."""


class PassingTime(SystemClock):
    """The machine's clocks, ahead by what was skipped."""

    def __init__(self) -> None:
        self.skipped_ms = 0.0
        self.passes_until_ms = 0.0
        """A moment of `monotonic_ms`; earlier than now while time passes as it does for everybody."""

    def now_ms(self) -> int:
        return super().now_ms() + int(self.skipped_ms)

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.skipped_ms

    def elapsed_ms(self) -> float:
        return super().elapsed_ms() + self.skipped_ms


class SkippingSelector(selectors.DefaultSelector):
    """Sleeps only when time does not pass, or a thread is at work."""

    def __init__(self, clock: PassingTime) -> None:
        super().__init__()
        self._clock = clock
        self.in_threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        clock = self._clock
        if self.in_threads or timeout is None or clock.monotonic_ms() >= clock.passes_until_ms:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            clock.skipped_ms += 1000.0 * min(timeout, LONGEST_SKIP_S)
        return ready


class PassingLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop by such a clock."""

    def __init__(self, clock: PassingTime) -> None:
        self._clock = clock
        self._selecting = SkippingSelector(clock)
        super().__init__(self._selecting)

    def time(self) -> float:
        return self._clock.monotonic_ms() / 1000.0

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._selecting.in_threads += 1
        future.add_done_callback(self._left_thread)
        return future

    def _left_thread(self, _future: object) -> None:
        self._selecting.in_threads -= 1


class PassingBroker:
    """One `tiered serve` in a thread; `words` are what stands after these two."""

    def __init__(self, words: Sequence[str]) -> None:
        parser = ArgumentParser()
        add_serve_arguments(parser)
        self._options = load_serve_options(parser.parse_args(words), {})
        self._clock = PassingTime()
        self._ready: Future[Server] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def bootstrap(self) -> str:
        host, port = self._ready.result(WAIT_S).kafka_address
        return f"{host}:{port}"

    @property
    def http(self) -> str:
        host, port = self._ready.result(WAIT_S).http_address
        return f"{host}:{port}"

    def now_ms(self) -> int:
        """The broker's clock, which is ahead of this machine's."""
        return self._clock.now_ms()

    def let_pass(self, minutes: float) -> None:
        """Returns when so much time has passed for the broker."""
        ends_ms = self._clock.monotonic_ms() + minutes * 60_000

        async def pass_() -> None:
            self._clock.passes_until_ms = ends_ms
            await asyncio.sleep((ends_ms - self._clock.monotonic_ms()) / 1000.0)

        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(pass_(), self._loop).result(PASS_S)

    def _live(self) -> None:
        def connected(connection: Any, _record: object) -> None:
            connection.create_function("julianday", 1, lambda _now: self._clock.now_ms() / MS_OF_DAY + UNIX_EPOCH_DAYS)

        event.listen(Engine, "connect", connected)
        try:
            with asyncio.Runner(loop_factory=lambda: PassingLoop(self._clock)) as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
        finally:
            event.remove(Engine, "connect", connected)

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            server = Server(self._options, self._clock)
            await server.start(tasks)
            self._ready.set_result(server)
            await self._stop.wait()
            await server.stop(grace_ms=100.0)

    def start(self) -> None:
        self._thread.start()
        self._ready.result(WAIT_S)

    def stop(self) -> None:
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@contextmanager
def passing_broker(*words: str) -> Iterator[PassingBroker]:
    """It serves inside, and has stopped outside."""
    broker = PassingBroker(words)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
