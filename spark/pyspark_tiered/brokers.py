"""The brokers as Spark's synchronous code sees them: topics, offsets, and raw batches fetched ahead.

Owns which requests answer them. Must never decode a record, and never leave its thread behind: close it, or use it with
`with`.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar
from uuid import UUID

from pyspark_tiered.client_options import ClientOptions
from pyspark_tiered.options import Assign, Selection, Subscribe, SubscribePattern
from pyspark_tiered.plan import TopicAndPartition
from tiered.errors import InvalidConfig, Retriable
from tiered.ids import NO_TOPIC_ID
from tiered.peer import READ_COMMITTED, READ_UNCOMMITTED, Cluster, FetchedRecords, broker_error, parse_bootstrap
from tiered.peer.security import ClientSecurity, PeerSecurity

log = logging.getLogger(__name__)

T = TypeVar("T")

SILENT_SECONDS = 5.0
"""A planning driver that has waited for so long for brokers says what it waits for."""

_UNKNOWN_TOPIC = 3
_STILL_WAITING = (
    "still waiting for an answer of the brokers at %s: check that they run, and option kafka.bootstrap.servers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic as the brokers know it; `topic_id` is None for brokers that give none."""

    topic_id: UUID | None
    partition_count: int


class BrokerThread:
    """A cluster behind bootstrap addresses, and a thread with the loop that its coroutines run on: Spark's code is
    synchronous. Close it, or use it with `with`."""

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
        """The future result of the call."""
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


class Brokers:
    """A cluster behind bootstrap addresses. Every call blocks, except `fetch`, which answers with a future.

    Raises what `tiered.peer.cluster.Cluster` raises: retriable errors only after it tried again, for half a minute or
    `kafka.request.timeout.ms`. Questions about topics and offsets are asked `retries` times more.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        read_committed: bool = False,
        client: ClientOptions | None = None,
        retries: int = 0,
        pause_ms: int = 0,
    ) -> None:
        told = client or ClientOptions()
        self._isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
        self._fetch_bytes = told.fetch_bytes
        self._bootstrap_servers, self._retries, self._pause_ms = bootstrap_servers, retries, pause_ms
        self._thread = BrokerThread(
            bootstrap_servers, client_id=told.client_id, timeout_ms=told.timeout_ms, security=told.security
        )
        self._cluster = self._thread.cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections and the thread. May be called twice."""
        self._thread.close()

    def topics(self, selection: Selection) -> dict[str, FoundTopic]:
        """The topics that `selection` may mean and that exist."""
        names: list[str] | None
        match selection:
            case Subscribe(topics=topics):
                names = list(topics)
            case Assign(partitions=partitions):
                names = list(partitions)
            case SubscribePattern():
                names = None
        described = self._patiently(lambda: self._thread.submit(self._cluster.metadata(names)).result()).topics
        found = {}
        for name, topic in described.items():
            if topic.error_code == _UNKNOWN_TOPIC or (names is None and topic.is_internal):
                continue
            if topic.error_code:
                raise broker_error(topic.error_code, f"topic {name} was not described")
            topic_id = None if topic.topic_id in (None, NO_TOPIC_ID) else topic.topic_id
            count = 1 + max((each.partition for each in topic.partitions), default=-1)
            found[name] = FoundTopic(topic_id=topic_id, partition_count=count)
        return found

    def list_offsets(self, wanted: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        """The offset for each partition's timestamp in ms, or -1 for latest and -2 for earliest; -1 when none matches.

        Latest is the high watermark, or the last stable offset with `read_committed`.
        """
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), timestamp in wanted.items():
            by_topic.setdefault(topic, {})[partition] = timestamp
        found: dict[TopicAndPartition, int] = {}
        for topic, timestamps in by_topic.items():
            listed = self._patiently(partial(self._listed, topic, timestamps))
            found |= {(topic, partition): offset for partition, offset in listed.items()}
        return found

    def _listed(self, topic: str, timestamps: Mapping[int, int]) -> dict[int, int]:
        asked = self._cluster.list_offsets(topic, timestamps, isolation_level=self._isolation_level)
        return self._thread.submit(asked).result()

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The result of `ask` in the end; a planning driver has more patience than one call of the client."""
        warning = threading.Timer(SILENT_SECONDS, log.warning, (_STILL_WAITING, self._bootstrap_servers))
        warning.daemon = True
        warning.start()
        try:
            for _ in range(self._retries):
                try:
                    return ask()
                except Retriable:
                    threading.Event().wait(self._pause_ms / 1000)
            return ask()
        finally:
            warning.cancel()

    def fetch(self, topic: str, partition: int, offset: int) -> "Future[FetchedRecords]":
        """Batches from the one that holds `offset` on, at most about `fetch_bytes`, once they have arrived."""
        return self._thread.submit(
            self._cluster.fetch(
                topic, partition, offset, max_bytes=self._fetch_bytes, isolation_level=self._isolation_level
            )
        )
