"""The brokers as Spark's synchronous code sees them: topics, offsets, and raw batches fetched ahead.

Owns which requests answer them. Must never decode a record, and never leave its thread behind: close it, or use it with
`with`.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar
from uuid import UUID

from pyspark_tiered.broker_thread import BrokerThread
from pyspark_tiered.client_options import ClientOptions
from pyspark_tiered.options import Assign, Selection, Subscribe, SubscribePattern
from pyspark_tiered.plan import TopicAndPartition
from tiered.errors import Retriable
from tiered.ids import NO_TOPIC_ID
from tiered.peer import READ_COMMITTED, READ_UNCOMMITTED, FetchedRecords, broker_error

T = TypeVar("T")

_UNKNOWN_TOPIC = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic as the brokers know it; `topic_id` is None for brokers that give none."""

    topic_id: UUID | None
    partition_count: int


class Brokers:
    """A cluster behind bootstrap addresses. Every call blocks, except `fetch`, which answers with a future.

    Raises what `tiered.peer.Cluster` raises: retriable errors only after it tried again, for half a minute or
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
        self._retries, self._pause_ms = retries, pause_ms
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
        """What `ask` gives in the end; a planning driver has more patience than one call of the client."""
        for _ in range(self._retries):
            try:
                return ask()
            except Retriable:
                threading.Event().wait(self._pause_ms / 1000)
        return ask()

    def fetch(self, topic: str, partition: int, offset: int) -> "Future[FetchedRecords]":
        """Batches from the one that holds `offset` on, at most about `fetch_bytes`, once they have arrived."""
        return self._thread.submit(
            self._cluster.fetch(
                topic, partition, offset, max_bytes=self._fetch_bytes, isolation_level=self._isolation_level
            )
        )
