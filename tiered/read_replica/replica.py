"""A read replica: one process that serves what is in a bucket, beside the cluster that writes it.

Owns the composition, and reads of cold data that keep up with a bucket which changes under them. Must never write to
the store, ask a database, or serve bytes that fail a check.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, TypeVar

from tiered.broker.control.registration import WILDCARD_ADDRESSES
from tiered.broker.host.data_folder import DataFolder
from tiered.broker.parts import BrokerParts
from tiered.broker.people.record_reader import RecordPages
from tiered.broker.security.authentication import TokenLogins, check_http_logins
from tiered.broker.security.client_quotas import ClientQuotas
from tiered.cold.chunks.cache import ChunkCache
from tiered.cold.chunks.reader import ColdReader
from tiered.cold.opening import open_store
from tiered.cold.read_only_store import ReadOnlyStore
from tiered.cold.timed_store import TimedStore
from tiered.config import BrokerSettings, ServeOptions
from tiered.config.listeners import ListenerOptions
from tiered.config.security import check_authentication
from tiered.errors import Corrupt, InvalidConfig, ObjectMissing, ReadOnly, StoreUnavailable, Throttled
from tiered.file_slice import FileSlice
from tiered.hot import resident
from tiered.metrics import CountersState
from tiered.read_replica.catalogue import BucketCatalogue
from tiered.rules.partition import read_plan
from tiered.rules.security.sasl.mechanism import Mechanism
from tiered.rules.segments.cold_partition import ColdPartition
from tiered.runtime import BlockingPool, Clock

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_LOGINS_WAITING = 500
"""For the thread that checks their signatures; more are refused."""
_READS = 2  # The second one with what the bucket says after the first has failed.


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
        self.waiting_partitions = 0
        """How many partitions the fetches that wait ask for; Fetch keeps the count."""
        self._advertised: dict[str, tuple[str, int]] = {}
        self.disk = BlockingPool("disk", threads=self.settings.limits.num_io_threads)
        self._downloads = BlockingPool("download", threads=self.settings.tiering.tiered_cold_read_concurrency)
        self.client_quotas = ClientQuotas(clock, lambda: self.settings)
        """None: quotas stand in SQL."""
        self._proofs = BlockingPool("login", threads=1, max_waiting=MAX_LOGINS_WAITING)
        self.authentication = TokenLogins(self.settings.authentication, clock, self._proofs.run)
        self._cache = ChunkCache(
            self.data.cache,
            max_bytes=self.settings.tiering.tiered_cache_bytes,
            pool=self._downloads,
            max_bytes_in_flight=self.settings.tiering.tiered_cold_read_bytes_in_flight,
        )
        self.cold_reader = ColdReader(reading, self._cache, self._downloads)
        self.catalogue = BucketCatalogue(
            reading, clock, interval_ms=self.settings.tiering.tiered_read_replica_refresh_interval_ms
        )
        self.records = RecordPages(clock)
        self._said: dict[str, str] = {}

    # Start and stop

    async def start(self, tasks: asyncio.TaskGroup, *, listeners: Sequence[ListenerOptions]) -> None:
        """Ready to serve when it returns. Raises TieredError that says what to do."""
        self._advertised = {each.name: each.advertised for each in listeners}
        await self.cold_reader.start(tasks)
        await self.catalogue.start(tasks)
        log.info(
            "reading %s of cluster %s: %d topics; nothing is written",
            self.store.url, self.catalogue.cluster_id, len(self.catalogue),
        )  # fmt: skip
        self.serving = True

    def begin_stop(self) -> None:
        """Fetches that wait for new records are answered."""
        self.serving = False
        self.catalogue.waiters.wake()

    async def stop(self) -> None:
        self.begin_stop()
        await self.catalogue.stop()
        await self.cold_reader.stop()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        # First the store, so that requests to one that is away are not repeated any more.
        self.store.close()
        self.catalogue.close()
        for pool in (self._downloads, self.disk, self.records, self._proofs):
            pool.close()
        self.data.release()

    # What both doors ask

    @property
    def cluster_id(self) -> str:
        return self.catalogue.cluster_id

    def refusal(self) -> ReadOnly:
        """What everybody hears who wants to change something, or to keep something here."""
        return ReadOnly(
            f"broker {self.broker_id} is a read replica of {self.store.url} (--read-only): it changes nothing, and "
            "keeps no groups. Ask the brokers that write this bucket; consumers assign partitions themselves here"
        )

    def address_for(self, local_host: str, listener: str) -> tuple[str, int]:
        """Where the client that reached us on `local_host` is told to connect."""
        host, port = self._advertised[listener]
        return (local_host if host in WILDCARD_ADDRESSES else host), port

    def health(self) -> dict[str, Any]:
        """`serving`, how old the view is, and what an operator should look at."""
        unreadable = self.catalogue.unreadable
        return {
            "serving": self.serving,
            "read_only": True,
            "broker": self.broker_id,
            "cluster_id": self.cluster_id,
            "view_age_ms": int(self.catalogue.age_ms),
            "store_away": self.store.times.is_failing,
            "unreadable_partitions": list(unreadable[:100]),
        }

    # Reading

    async def read(
        self, partition: ColdPartition, offset: int, max_bytes: int
    ) -> tuple[ColdPartition, FileSlice | None]:
        """(The partition, and whole batches of it from the one that holds `offset` on.) None for batches when the
        bucket has `offset` no more: the partition is a newer one then, whose bounds say so.

        Raises CorruptObject, which names topic, partition, offsets and key, and StoreUnavailable.
        """
        missing: ObjectMissing | None = None
        for _ in range(_READS):
            if not isinstance(partition.plan_read(offset), read_plan.Cold):
                return partition, None
            try:
                segment = partition.segment_at(offset)
                is_last = segment.end_offset >= partition.cold_end_offset
                found = await self.cold_reader.read(
                    partition.place_of(segment),
                    offset=offset,
                    max_bytes=max_bytes,
                    following=None if is_last else partition.segment_at(segment.end_offset),
                )
            except ObjectMissing as error:
                missing = error
                partition = await self.catalogue.look_again(partition)
            except Corrupt:
                self.counters.cold_corruptions += 1
                raise
            except Throttled as error:
                # Java's consumer ends on the code for quotas in a Fetch answer, and tries again on this one.
                raise StoreUnavailable(f"{partition.name}: {error}") from error
            else:
                self.counters.fetched_cold_bytes += found.length
                return partition, found
        assert missing is not None
        raise self._gone(partition, missing)

    async def offset_for_timestamp(self, partition: ColdPartition, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp_ms`; None when there is none."""
        missing: ObjectMissing | None = None
        for _ in range(_READS):
            try:
                for segment in partition.segments:
                    if segment.max_timestamp_ms < timestamp_ms:
                        continue
                    found = await self.cold_reader.offset_for_timestamp(
                        partition.place_of(segment),
                        timestamp_ms=timestamp_ms,
                        start_offset=partition.log_start_offset,
                    )
                    if found is not None:
                        return found
            except ObjectMissing as error:
                missing = error
                partition = await self.catalogue.look_again(partition)
            else:
                return None
        assert missing is not None
        raise self._gone(partition, missing)

    async def max_timestamp(self, partition: ColdPartition) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the greatest timestamp; None for an empty partition."""
        best = max((each.max_timestamp_ms for each in partition.segments), default=None)
        return None if best is None else await self.offset_for_timestamp(partition, best)

    def _gone(self, partition: ColdPartition, error: ObjectMissing) -> StoreUnavailable:
        """The bucket still names an object that is not there: its checkpoint may be about to follow, or it is lost."""
        self.counters.cold_corruptions += 1
        if self._said.get(partition.name) != str(error):
            self._said[partition.name] = str(error)
            log.error("%s. The bucket's checkpoint still names it; readers are told to try again", error)
        return StoreUnavailable(f"{error} (the bucket's checkpoint still names it: try again, or run `tiered verify`)")

    async def make_resident(self, part: FileSlice) -> None:
        """Returns once the bytes are in memory, so that sending them does not stop the event loop."""
        if not resident.is_resident(part):
            await self.disk.run(resident.make_resident, part)
