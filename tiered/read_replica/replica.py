"""A read replica: one process that serves what is in a bucket, beside the cluster that writes it.

Owns the composition, and reads of cold data that keep up with a bucket which changes under them. Must never write to
the store, ask a database, or serve bytes that fail a check.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from tiered.account import OwnersShares, OwnersTurns, current_owner
from tiered.broker.context import BrokerState
from tiered.broker.control.registration import WILDCARD_ADDRESSES
from tiered.broker.host.data_folder import DataFolder
from tiered.broker.people.record_reader import RecordReader
from tiered.broker.replaceable_parts import BrokerParts
from tiered.broker.security.access import Access
from tiered.broker.security.authentication import TokenLogins, check_http_logins
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.broker.tiering.tier_reader import TierReader
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.cold.opening import open_store
from tiered.cold.read_only_store import ReadOnlyStore
from tiered.cold.timed_store import TimedStore
from tiered.config import BrokerSettings, ConfigEntry, ServeOptions, describe_topic
from tiered.config.broker_changes import taken_at_run_time
from tiered.config.listeners import ListenerOptions
from tiered.config.security import check_authentication
from tiered.config.setting import require_sendable
from tiered.config.topic import DEFAULTS_OF_TOPICS
from tiered.errors import InvalidConfig, ObjectMissing, ReadOnly, StoreTrouble, StoreUnavailable
from tiered.file_slice import ReadBatches
from tiered.metrics import CountersState
from tiered.read_replica.bucket_topics import BucketPartition, BucketTopic, BucketTopics
from tiered.rules.security.sasl.mechanism import Mechanism
from tiered.runtime import BlockingPool, Clock

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_LOGINS_WAITING = 500
"""For the thread that checks their signatures; more are refused."""


class ReadReplica:
    """Between `start` and `stop` both doors may use it."""

    def __init__(self, options: ServeOptions, clock: Clock, parts: BrokerParts | None = None) -> None:
        """Takes the data folder's lock; raises AlreadyRunning when another process has it, InvalidConfig where access
        control lists or logins are asked for, which stand in SQL."""
        if options.settings.authorization.is_on:
            raise InvalidConfig(
                "a read replica knows no access control lists: leave tiered.authorizer and authorizer.class.name out, "
                "and say who reaches its ports by other means"
            )
        taken = [
            options.settings.authentication.mechanisms_of(each) for each in options.listeners if each.protocol.uses_sasl
        ]
        if options.settings.authentication.tiered_http_authentication != "none":
            taken.append(options.settings.authentication.sasl_enabled_mechanisms)
        if taken:
            if any(each != (Mechanism.OAUTHBEARER,) for each in taken):
                raise InvalidConfig(
                    "a read replica has no database, and so no users with passwords: let readers log in by tokens "
                    "alone (sasl.enabled.mechanisms=OAUTHBEARER), or ask for certificates (ssl.client.auth=required)"
                )
            check_authentication(
                options.settings.authentication, options.listeners, options.inter_broker, is_alone=True
            )
            check_http_logins(options)
        self.options = options
        self.clock = clock
        self.settings: BrokerSettings = options.settings
        self.counters = CountersState()
        self.broker_id = options.broker_id
        self.rack = options.rack
        store = parts.store if parts is not None and parts.store is not None else None
        self.store = TimedStore(
            store or open_store(options.store_url, timeout_ms=self.settings.tiering.tiered_store_timeout_ms), clock
        )
        reading = ReadOnlyStore(self.store)
        self.data = DataFolder(options.data_dir)
        self.started_monotonic_ms = clock.monotonic_ms()
        self.serving = False
        self.waiting_partitions = OwnersShares()
        """How many partitions the fetches that wait ask for; Fetch keeps the count."""
        self._advertised: dict[str, tuple[str, int]] = {}
        self.disk = BlockingPool("disk", threads=self.settings.limits.num_io_threads)
        self._downloads = BlockingPool("download", threads=self.settings.tiering.tiered_cold_read_concurrency)
        self.client_quotas = ClientQuotas(clock, lambda: self.settings)
        """None: quotas stand in SQL."""
        self._proofs = BlockingPool("login", threads=1, max_waiting=MAX_LOGINS_WAITING)
        self._logging_in = OwnersTurns()
        self.authentication = TokenLogins(self.settings.authentication, clock, self._check_proof)
        self._cache = ChunkCache(
            self.data.cache,
            max_bytes=self.settings.tiering.tiered_cache_bytes,
            pool=self._downloads,
            max_bytes_in_flight=self.settings.tiering.tiered_cold_read_bytes_in_flight,
        )
        self.cold_reader = ColdReader(reading, self._cache, self._downloads)
        self.topics = BucketTopics(
            reading, clock, interval_ms=self.settings.tiering.tiered_read_replica_refresh_interval_ms
        )
        self.reader = BucketReader(self.cold_reader, self.disk, self.counters, self.topics)
        self.records = RecordReader(self.reader, clock)
        self._stored_settings: Mapping[str, str] = {}
        """As the bucket had them when `_taken_settings` was made of them."""
        self._taken_settings: Mapping[str, str] = {}
        self.access = Access(state=BrokerState(settings=self.settings))
        """Off: who reaches the ports may read."""

    # Start and stop

    async def start(self, tasks: asyncio.TaskGroup, *, listeners: Sequence[ListenerOptions], **_: object) -> None:
        """Ready to serve when it returns. Raises TieredError that says what to do."""
        self._advertised = {each.name: each.advertised for each in listeners}
        await self.cold_reader.start(tasks)
        await self.topics.start(tasks)
        log.info(
            "reading %s of cluster %s: %d topics; nothing is written",
            self.store.url, self.topics.cluster_id, len(self.topics),
        )  # fmt: skip
        self.serving = True

    def begin_stop(self) -> None:
        """Fetches that wait for new records are answered."""
        self.serving = False
        self.topics.waiters.wake()

    async def stop(self) -> None:
        self.begin_stop()
        await self.topics.stop()
        await self.cold_reader.stop()
        await asyncio.to_thread(self._close)

    async def abandon(self) -> None:
        """There is nothing that only a controlled stop would save."""
        await self.stop()

    def _close(self) -> None:
        # First the store, so that requests to one that is away are not repeated any more.
        self.store.close()
        self.topics.close()
        for pool in (self._downloads, self.disk, self.records, self._proofs):
            pool.close()
        self.data.release()

    async def _check_proof(self, call: Callable[[], T]) -> T:
        return await self._logging_in.to_its_end(current_owner(), partial(self._proofs.run, call))

    # What both doors ask

    @property
    def cluster_id(self) -> str:
        return self.topics.cluster_id

    def refusal(self) -> ReadOnly:
        """The refusal of every request that would change or store something."""
        return ReadOnly(
            f"broker {self.broker_id} is a read replica of {self.store.url} (--read-only): it changes nothing, and "
            "keeps no groups. Ask the brokers that write this bucket; consumers assign partitions themselves here"
        )

    def address_for(self, local_host: str, listener: str) -> tuple[str, int]:
        """Where the client that reached us on `local_host` is told to connect."""
        host, port = self._advertised[listener]
        return (local_host if host in WILDCARD_ADDRESSES else host), port

    def describe(self, topic: BucketTopic) -> list[ConfigEntry]:
        """Every config of the topic. Raises InvalidConfig where the bucket has one that no broker would take, or that
        no client could be told."""
        for name, text in topic.configs.items():
            require_sendable(name, text)
        settings = self.settings.with_dynamic(dynamic_default=self._cluster_settings(), dynamic={})
        return describe_topic(topic.configs, settings)

    def _cluster_settings(self) -> Mapping[str, str]:
        """The writing cluster's defaults of topics. A wrong one counts for nothing, so that topics stay describable."""
        stored = self.topics.cluster_settings
        if stored is not self._stored_settings:
            defaults = {name: text for name, text in stored.items() if name in DEFAULTS_OF_TOPICS}
            taken = {name: text for name, text in defaults.items() if taken_at_run_time("", name, text)}
            if ignored := sorted(defaults.keys() - taken.keys()):
                log.warning(
                    "the bucket's checkpoint has settings of all brokers with values that are not allowed; they count "
                    "for nothing here: %s", ", ".join(ignored),
                )  # fmt: skip
            self._stored_settings, self._taken_settings = stored, taken
        return self._taken_settings

    @property
    def store_trouble(self) -> StoreTrouble | None:
        """What the newest operation of the object store met."""
        return self.store.trouble

    def health(self) -> dict[str, Any]:
        """`serving`, how old the view is, and what an operator should look at."""
        unreadable = self.topics.unreadable
        return {
            "serving": self.serving,
            "read_only": True,
            "broker": self.broker_id,
            "cluster_id": self.cluster_id,
            "view_age_ms": int(self.topics.age_ms),
            "store_away": self.store_trouble is StoreTrouble.AWAY,
            "store_trouble": None if self.store_trouble is None else self.store_trouble.value,
            "unreadable_partitions": list(unreadable[:100]),
        }


_NO_LOCAL_LOG = 2**63 - 1
"""All offsets are in the store."""


class BucketReader(TierReader):
    """Reads a bucket that changes under it: where an object is gone, once more with what the bucket says then."""

    def __init__(self, cold: ColdReader, disk: BlockingPool, counters: CountersState, topics: BucketTopics) -> None:
        super().__init__(cold, disk, counters)
        self._topics = topics
        self._said: dict[str, str] = {}

    async def _in_store(self, partition: Any, offset: int, max_bytes: int, joined_bytes: int) -> ReadBatches | None:
        return await self._twice(partition, partial(super()._in_store, partition, offset, max_bytes, joined_bytes))

    async def _first_at(
        self,
        partition: Any,
        timestamp_ms: int,
        run: Any,  # noqa: ARG002 - nothing is looked up on a disk
    ) -> tuple[int, int] | None:
        return await self._twice(partition, partial(self._first_in_store, partition, timestamp_ms))

    async def _greatest(self, partition: Any) -> tuple[int, int] | None:
        return await self._twice(partition, partial(self._greatest_in_store, partition, _NO_LOCAL_LOG, None))

    async def _twice(self, partition: BucketPartition, read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except ObjectMissing:
            await self._topics.look_again(partition.cold)
        try:
            return await read()
        except ObjectMissing as error:
            # The bucket still names an object that is not there: its checkpoint may be about to follow, or it is lost.
            self._counters.cold_corruptions += 1
            if self._said.get(partition.name) != str(error):
                self._said[partition.name] = str(error)
                log.error("%s. The bucket's checkpoint still names it; readers are told to try again", error)
            raise StoreUnavailable(
                f"{error} (the bucket's checkpoint still names it: try again, or run `tiered verify`)"
            ) from error
