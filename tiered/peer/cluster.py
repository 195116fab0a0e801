"""The brokers behind some bootstrap addresses: who leads what, and requests to the one that does.

Owns connections, what is known of leaders, and how often a request is tried again. Must never decode a record,
and never repeat a Produce whose outcome is unknown unless it is told that the batch is safe to repeat.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from tiered import errors
from tiered.peer.answers import (
    NOT_APPENDED,
    UNKNOWN_HERE,
    BrokerError,
    ConnectionLost,
    CorruptAnswer,
    OutcomeUnknown,
    broker_error,
    require_success,
)
from tiered.peer.connection import CLIENT_ID, TIMEOUT_MS, Peer
from tiered.peer.security import NotLetIn, PeerSecurity
from tiered.peer.topology import (
    BrokerAddress,
    ClusterMetadata,
    PartitionMetadata,
    TopicPartition,
    parse_bootstrap,
    topic_metadata,
)
from tiered.runtime import jittered_backoff_ms
from tiered.wire import fetch, messages, produce
from tiered.wire.error_codes import BROKER_NOT_AVAILABLE, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from tiered.wire.fetch import FetchPartitionResult
from tiered.wire.primitives import Buffer

LIST_OFFSETS, METADATA = 2, 3
LATEST, EARLIEST = -1, -2
NEWEST = -3
"""The record with the greatest time; Kafka's MAX_TIMESTAMP."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ACKS_ALL = -1

FIRST_BACKOFF_MS, MAX_BACKOFF_MS = 50, 1_000
FIRST_TRY_MS = 2_000
"""The first patience with one of several addresses."""
TRIES_OF_UNKNOWN_TOPICS = 5
"""A topic that was just made appears within moments; one that does not exist should be said so soon."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """Raw batches of one partition, perhaps none; the first may begin before the offset asked for, and the last

    may be cut off. `aborted_transactions` is None unless the fetch was read_committed.
    """

    records: memoryview
    high_watermark: int
    log_start_offset: int
    aborted_transactions: tuple[fetch.AbortedTransaction, ...] | None


class Cluster:
    """The brokers behind some bootstrap addresses. One connection to each, and another for long polls.

    Every call tries again, with growing pauses, until it succeeds, fails for good or `timeout_ms` is over; then the
    last error is raised.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[tuple[str, int]],
        *,
        client_id: str = CLIENT_ID,
        timeout_ms: float = TIMEOUT_MS,
        security: PeerSecurity | None = None,
    ) -> None:
        given = bootstrap_servers
        self._bootstrap = parse_bootstrap(given) if isinstance(given, str) else list(given)
        self._client_id = client_id
        self.timeout_ms = timeout_ms
        self.security = security
        """How every broker of it is entered."""
        self._peers: dict[tuple[str, int, bool], Peer] = {}
        self._brokers: dict[int, BrokerAddress] = {}
        self._leaders: dict[TopicPartition, PartitionMetadata] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every connection."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    async def request(
        self,
        api_key: int,
        build: Callable[[messages.Messages], Any],
        *,
        broker_id: int | None = None,
        at_least: int = 0,
    ) -> Any:
        """`Peer.request` to one broker, or to any; not repeated once it was sent. `at_least` is the first version that
        will do. Raises UnsupportedVersion where the broker has none."""
        peer = await self._reach(broker_id)
        if at_least and peer.version_of(api_key) < at_least:
            raise errors.UnsupportedVersion("the broker is too old for this question")
        return await peer.request(api_key, build)

    async def serves(self, api_key: int) -> bool:
        """Whether the broker that is asked first knows that API, in any version."""
        return api_key in (await self._reach(None)).versions

    async def reach(self) -> None:
        """Asks a broker once to describe itself, without patience. Raises what every later call would wait out."""
        await self._metadata_once([])

    async def metadata(self, topics: Sequence[str] | None = None, *, may_create: bool = False) -> ClusterMetadata:
        """The metadata of `topics`, or of all; their errors are in it. Remembers leaders and brokers."""
        return await self._until_done(lambda: self._metadata_once(topics, may_create=may_create))

    async def _metadata_once(self, topics: Sequence[str] | None, *, may_create: bool = False) -> ClusterMetadata:
        def build(request: messages.Messages) -> Any:
            asked = None
            if topics is not None:
                asked = [request.MetadataRequestTopic(topic_id=None, name=name) for name in topics]
            return request.MetadataRequest(
                topics=asked,
                allow_auto_topic_creation=may_create,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )

        answer = await (await self._reach(None)).request(METADATA, build)
        require_success(answer, "the cluster did not describe itself")
        brokers = [BrokerAddress(broker_id=each.node_id, host=each.host, port=each.port) for each in answer.brokers]
        described = {each.name: topic_metadata(each) for each in answer.topics}
        self._brokers = {each.broker_id: each for each in brokers}
        for topic in described.values():
            for leader in topic.partitions:
                self._leaders[topic.name, leader.partition] = leader
        return ClusterMetadata(
            brokers=self._brokers,
            topics=described,
        )

    async def list_offsets(
        self, topic: str, timestamps: Mapping[int, int], *, isolation_level: int = READ_UNCOMMITTED
    ) -> dict[int, int]:
        """The offsets of partitions, in the order asked for, at {partition: time in ms, or LATEST, EARLIEST, NEWEST}.

        One request to each leader. -1 where no record is that young, or none has a time.
        """
        found: dict[int, int] = {}

        async def attempt() -> dict[int, int]:
            by_leader: dict[int, list[int]] = {}
            for partition in timestamps.keys() - found.keys():
                by_leader.setdefault((await self._leader(topic, partition)).leader_id, []).append(partition)
            for leader_id, partitions in by_leader.items():
                asked = {partition: timestamps[partition] for partition in sorted(partitions)}
                found.update(await self._list_offsets_once(leader_id, topic, asked, isolation_level))
            return {partition: found[partition] for partition in timestamps}

        return await self._until_done(attempt, topic)

    async def _list_offsets_once(
        self, leader_id: int, topic: str, timestamps: Mapping[int, int], isolation_level: int
    ) -> dict[int, int]:
        def build(request: messages.Messages) -> Any:
            partitions = [
                request.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
                for partition, timestamp in timestamps.items()
            ]
            return request.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[request.ListOffsetsTopic(name=topic, partitions=partitions)],
                timeout=int(self.timeout_ms),
            )

        answer = await (await self._reach(leader_id)).request(LIST_OFFSETS, build)
        found = {}
        for each in (partition for described in answer.topics for partition in described.partitions):
            if each.error_code:
                raise broker_error(each.error_code, f"no offset of {topic}-{each.partition_index} was found")
            found[each.partition_index] = int(each.offset)
        if found.keys() != timestamps.keys():
            raise CorruptAnswer(f"ListOffsets of {topic} answered partitions {sorted(found)}, not {sorted(timestamps)}")
        return found

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 8 << 20,
        max_wait_ms: int = 500,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> FetchedRecords:
        """Raw batches from the one that holds `offset` on, at least one if there is any.

        Raises OutOfRangeBrokerError when `offset` is not in the log.
        """

        async def attempt() -> FetchedRecords:
            leader = await self._leader(topic, partition)
            results = await self._fetch_once(
                leader.leader_id,
                {(topic, partition): offset},
                partition_max_bytes=max_bytes,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                isolation_level=isolation_level,
            )
            found = _only([each for _, each in results], topic, partition)
            require_success(found, f"{topic}-{partition} was not read at offset {offset}")
            aborted = found.aborted_transactions
            return FetchedRecords(
                records=found.records if isinstance(found.records, memoryview) else memoryview(b""),
                high_watermark=found.high_watermark,
                log_start_offset=found.log_start_offset,
                aborted_transactions=None if aborted is None else tuple(aborted),
            )

        return await self._until_done(attempt, topic, longer_ms=max_wait_ms)

    async def fetch_many(
        self, positions: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
    ) -> list[tuple[str, FetchPartitionResult]]:
        """The data from each {partition: offset} on, with its topic's name and perhaps an error code.

        One long poll for each leader, asked once. Leaders of partitions that failed are looked up at the next call.
        """
        if unknown := {topic for topic, partition in positions if (topic, partition) not in self._leaders}:
            await self.metadata(sorted(unknown))
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        try:
            for where, offset in positions.items():
                by_leader.setdefault((await self._leader(*where)).leader_id, {})[where] = offset
            asked = (self._fetch_once(each, mine, isolation_level=isolation_level) for each, mine in by_leader.items())
            results = [result for answer in await asyncio.gather(*asked) for result in answer]
        except errors.TieredError:
            self._forget(positions)
            raise
        self._forget([(topic, each.partition_index) for topic, each in results if each.error_code])
        return results

    async def _fetch_once(
        self,
        leader_id: int,
        positions: Mapping[TopicPartition, int],
        *,
        partition_max_bytes: int = 4 << 20,
        max_bytes: int = 16 << 20,
        max_wait_ms: int = 500,
        isolation_level: int,
    ) -> list[tuple[str, FetchPartitionResult]]:
        asked: dict[str, list[fetch.FetchPartition]] = {}
        for (topic, partition), offset in positions.items():
            wanted = fetch.FetchPartition(partition, -1, offset, -1, -1, partition_max_bytes)
            asked.setdefault(topic, []).append(wanted)
        request = fetch.FetchRequest(
            replica_id=-1,
            replica_epoch=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=[fetch.FetchTopic(topic, None, partitions) for topic, partitions in asked.items()],
        )
        answer = await (await self._reach(leader_id, long_poll=True)).fetch(request)
        require_success(answer, f"{', '.join(asked)} was not read")
        return [(topic.name or "", each) for topic in answer.topics for each in topic.partitions]

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: Buffer,
        *,
        acks: int = ACKS_ALL,
        repeatable: bool = False,
        transactional_id: str | None = None,
    ) -> produce.PartitionResult:
        """Where one encoded record batch was appended, in `base_offset`; -1 for what the broker did not say.

        Tried again only where the broker says that nothing was appended. `repeatable` allows it after a lost
        connection or a time-out too: set it for batches with a producer id and a sequence, which brokers recognise.
        Otherwise those are OutcomeUnknown.
        """

        async def attempt() -> produce.PartitionResult:
            leader = await self._leader(topic, partition)
            peer = await self._reach(leader.leader_id)
            batches = produce.TopicBatches(topic, None, [(partition, batch)])
            try:
                answer = await peer.produce(
                    [batches], acks=acks, timeout_ms=int(self.timeout_ms), transactional_id=transactional_id
                )
            except (ConnectionLost, errors.RequestTimedOut) as error:
                if repeatable:
                    raise
                raise OutcomeUnknown(f"{topic}-{partition} was perhaps written: {error}") from error
            found = _only([each for described in answer.topics for each in described.partitions], topic, partition)
            if found.error_code:
                reason = f" ({found.error_message})" if found.error_message else ""
                raise broker_error(found.error_code, f"{topic}-{partition} was not written{reason}")
            return found

        return await self._until_done(attempt, topic, longer_ms=self.timeout_ms, repeatable=repeatable)

    async def _leader(self, topic: str, partition: int) -> PartitionMetadata:
        known = self._leaders.get((topic, partition))
        if known is None or known.leader_id not in self._brokers:
            described = (await self.metadata([topic])).topics.get(topic)
            code = UNKNOWN_TOPIC_OR_PARTITION if described is None else described.error_code
            if code:
                raise broker_error(code, f"topic {topic} is not known; create it, or wait until it is")
            known = self._leaders.get((topic, partition))
            if known is None:
                raise broker_error(UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {partition}")
            if known.leader_id not in self._brokers:
                raise broker_error(LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now")
        return known

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._leaders.pop(each, None)

    async def _reach(self, broker_id: int | None, *, long_poll: bool = False) -> Peer:
        """An open connection: to the broker of this id, or to any. Raises the last reason why there is none."""
        if broker_id is not None and broker_id not in self._brokers:
            await self.metadata([])
        known = [(each.host, each.port) for each in self._brokers.values()]
        if broker_id is not None:
            if broker_id not in self._brokers:
                raise broker_error(BROKER_NOT_AVAILABLE, f"the cluster has no broker {broker_id} now")
            known = [(self._brokers[broker_id].host, self._brokers[broker_id].port)]
        addresses = known if broker_id is not None else [*known, *self._bootstrap]
        for address in addresses:
            peer = self._peers.get((*address, long_poll))
            if peer is not None and peer.is_open:
                return peer
        failure: errors.TieredError | None = None
        # Where there are several, one that hangs must not use up the time of the others. Then all have all of it.
        first_ms = (min(FIRST_TRY_MS, self.timeout_ms),) if len(addresses) > 1 else ()
        for timeout_ms in (*first_ms, self.timeout_ms):
            has_hung = False
            for host, port in addresses:
                try:
                    async with asyncio.timeout(timeout_ms / 1000.0):
                        peer = await Peer.connect(
                            host, port, client_id=self._client_id, timeout_ms=self.timeout_ms, security=self.security
                        )
                except (errors.Retriable, CorruptAnswer) as error:
                    failure = error
                    continue
                except TimeoutError:
                    failure, has_hung = errors.RequestTimedOut(f"{host}:{port} does not answer in time"), True
                    continue
                self._peers[host, port, long_poll] = peer
                return peer
            if not has_hung:
                break
        assert failure is not None
        raise failure

    async def _until_done(
        self,
        attempt: Callable[[], Awaitable[T]],
        topic: str | None = None,
        *,
        longer_ms: float = 0,
        repeatable: bool = True,
    ) -> T:
        """The result of `attempt` in the end; leaders of `topic` are looked up again before each further try.

        A call that is not `repeatable` is tried again only after errors which say that nothing was done. It is
        OutcomeUnknown when time runs out in the middle.
        """
        limit_ms = self.timeout_ms + longer_ms
        last: errors.TieredError | None = None
        tries = 0
        pausing = False
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except (BrokerError, ConnectionLost, errors.RequestTimedOut) as error:
                        if not _worth_another_try(error, tries, repeatable=repeatable):
                            raise
                        last = error
                    self._forget([each for each in self._leaders if each[0] == topic])
                    pause_ms = jittered_backoff_ms(tries, first_ms=FIRST_BACKOFF_MS, max_ms=MAX_BACKOFF_MS)
                    pausing = True
                    await asyncio.sleep(pause_ms / 1000)
                    pausing = False
                    tries += 1
        except TimeoutError:
            if not repeatable and not pausing:
                raise OutcomeUnknown(f"{topic} was written to, and no broker answered in {limit_ms:g} ms") from None
            raise last or errors.RequestTimedOut(f"no broker answered in {limit_ms:g} ms") from None


def _worth_another_try(error: errors.TieredError, tries: int, *, repeatable: bool) -> bool:
    """Connections that were lost count as well: what must not be repeated is OutcomeUnknown by then."""
    if isinstance(error, NotLetIn):
        return False
    if not isinstance(error, BrokerError):
        return True
    if error.code in UNKNOWN_HERE:
        return tries + 1 < TRIES_OF_UNKNOWN_TOPICS
    return error.code in NOT_APPENDED or (repeatable and isinstance(error, errors.Retriable))


R = TypeVar("R", FetchPartitionResult, produce.PartitionResult)


def _only(results: list[R], topic: str, partition: int) -> R:
    if len(results) != 1 or results[0].partition_index != partition:
        raise CorruptAnswer(f"an answer for {topic}-{partition} speaks of {len(results)} partitions, or of another")
    return results[0]
