"""A broker in a thread of the test's own process, whose access control lists the test sets without SQL."""

import argparse
import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

from tiered.config import load_serve_options
from tiered.meta.security import AclRow, Security
from tiered.server.serve import Server

T = TypeVar("T")
START_S = 30.0


def allow(operation: str, resource_type: str, name: str, **others: str) -> AclRow:
    """A rule about what is not said otherwise: it allows, User:ANONYMOUS, from everywhere, by a literal name."""
    words = {
        "resource_type": resource_type,
        "resource_name": name,
        "pattern_type": "LITERAL",
        "principal": "User:ANONYMOUS",
        "host": "*",
        "operation": operation,
        "permission": "ALLOW",
    }
    return AclRow(**{**words, **others})


class GuardedBroker:
    """Starts at `with`. Its clients are User:ANONYMOUS, who may do what `rules` says, and nothing at first."""

    def __init__(self, data: Path, *settings: str) -> None:
        told = ["tiered.authorizer=acl", "auto.create.topics.enable=true", "tiered.tail.heartbeat.interval.ms=300"]
        told += settings
        arguments = argparse.Namespace(kafka="127.0.0.1:0", http="127.0.0.1:0", data=str(data), set=told)
        self._options = load_serve_options(arguments, {}, {})
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._end: asyncio.Event
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.server: Server
        self.kafka_port = 0
        self.http_port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop = self._ready.result(START_S)
        self.kafka_port = self.server.kafka_address[1]
        self.http_port = self.server.http_address[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_S)

    @property
    def broker(self) -> Any:
        return self.server.broker

    def rules(self, rules: Iterable[AclRow]) -> None:
        """From now on these are all."""
        given = Security(acls=tuple(rules))
        self.run(lambda: setattr(self.broker.state, "security", given))

    def run(self, function: Callable[[], T]) -> T:
        """What `function` returns, called on the broker's loop."""
        found: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: found.set_result(function()))
        return found.result(START_S)

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            self.server = Server(self._options)
            await self.server.start(tasks)
            self._ready.set_result(asyncio.get_running_loop())
            await self._end.wait()
            await self.server.stop(grace_ms=100.0)
