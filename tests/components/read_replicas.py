"""A read replica inside the test's process, on a store of the test's own, which it looks at when the test says so."""

import asyncio
import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

from tiered.broker.replaceable_parts import BrokerParts
from tiered.cold.object_store import ObjectStore
from tiered.config import BrokerSettings, ServeOptions
from tiered.config.listeners import ListenerOptions
from tiered.read_replica.replica import ReadReplica
from tiered.server.serve import Server

NEVER_MS = "600000"
WAIT_S = 60.0


class ReplicaThread:
    """A whole `Server` on a thread of its own; its doors are on free loopback ports."""

    def __init__(
        self, data: Path, store: ObjectStore, *, listeners: tuple[ListenerOptions, ...] = (), **settings: object
    ) -> None:
        """Without `listeners` there is a plain one."""
        texts = {"tiered.read.replica.refresh.interval.ms": NEVER_MS}
        texts |= {name.replace("_", "."): str(value) for name, value in settings.items()}
        self._options = ServeOptions(
            http_port=0,
            data_dir=data,
            meta_url="",
            store_url=store.url,
            rack="here",
            settings=BrokerSettings.of(texts),
            read_only=True,
            listeners=listeners or (ListenerOptions(port=0),),
        )
        self._store = store
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run)
        self.kafka_port = 0
        self.http_port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ready.exception() is None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            server = Server(self._options, parts=BrokerParts(store=self._store))
            assert isinstance(server.service, ReadReplica)
            self.replica = server.service
            try:
                await server.start(tasks)
            except BaseException:
                await server.abandon()
                raise
            self.kafka_port, self.http_port = server.kafka_address[1], server.http_address[1]
            self._ready.set_result(None)
            await self._end.wait()
            await server.stop(grace_ms=100)

    # What tests do with it

    def look(self) -> None:
        """The replica looks at the bucket now. Raises what keeps it from seeing everything."""
        asyncio.run_coroutine_threadsafe(self.replica.topics.refresh(), self._loop).result(WAIT_S)

    def ask(self, path: str, *, method: str = "GET") -> tuple[int, Any]:
        """(status, JSON) of a request to the HTTP door."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.http_port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
