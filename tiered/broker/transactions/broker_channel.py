"""The seam between brokers that carry out transactions: two questions, and what connects real brokers.

A leader asks a coordinator whether partitions are in a producer's open transaction, or adds them (AddPartitionsToTxn);
a coordinator has a leader write markers (WriteTxnMarkers). Owns the protocol and the connections, which stay open; the
simulation passes values along. Must never repeat a question: both may be asked again, and the caller decides when.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tiered import errors
from tiered.broker.partitions.topics import Topics
from tiered.config.client_security import ClientSecurity
from tiered.errors import RequestTimedOut, ShuttingDown, TieredError, UnknownTopicOrPartition, UnsupportedVersion
from tiered.formats.control_record import MarkerType, TransactionMarker
from tiered.ids import TopicPartition
from tiered.meta.brokers import BrokerRow
from tiered.peer.answers import ConnectionLost, CorruptAnswer, broker_error
from tiered.peer.connection import Peer
from tiered.peer.security import PLAINTEXT, PeerSecurity
from tiered.rules.transactions.transaction_state import KEEPS_EPOCH, RAISES_EPOCH, ProducerIdAndEpoch
from tiered.wire import messages
from tiered.wire.error_codes import NONE

ADD_PARTITIONS, WRITE_MARKERS = 24, 27
FIRST_OF_SEVERAL_TRANSACTIONS = 4
"""The first AddPartitionsToTxn that brokers may use among themselves."""
ADD_TIMEOUT_MS = 5_000.0
"""With the wait for a connection and for the question before. Producers wait meanwhile; they ask again after it."""
MARKERS_TIMEOUT_MS = 30_000.0
"""Markers are answered once every in-sync replica has them."""

Outcomes = Mapping[TopicPartition, TieredError | None]
"""Of each partition that was asked about: None where it went well."""

KINDS: Final[dict[int, type[TieredError]]] = {
    3: UnknownTopicOrPartition,
    6: errors.NotLeader,
    7: RequestTimedOut,
    14: errors.CoordinatorLoading,
    15: errors.CoordinatorNotAvailable,
    16: errors.NotCoordinator,
    19: errors.NotEnoughReplicas,
    20: errors.NotEnoughReplicasAfterAppend,
    31: errors.ClusterNotAuthorized,
    47: errors.StaleProducerEpoch,
    48: errors.InvalidTransactionState,
    49: errors.InvalidProducerIdMapping,
    51: errors.ConcurrentTransactions,
    52: errors.TransactionCoordinatorFenced,
    53: errors.TransactionalIdNotAuthorized,
    56: errors.LogDirFailed,
    90: errors.ProducerFenced,
    120: errors.TransactionAbortable,
}
"""The codes that brokers answer these questions with; the caller tells the kinds apart, and its client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTransaction:
    """A producer's partitions: are they in its open transaction? With `adds` they are put into it."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Collection[TopicPartition]
    adds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersMarker:
    """One producer's transaction has ended so; `raises_epoch` in the protocol in which each end raises the epoch."""

    marker: TransactionMarker
    producer: ProducerIdAndEpoch
    raises_epoch: bool
    partitions: Collection[TopicPartition]


class TransactionChannels(Protocol):
    """What brokers ask each other about transactions; a broker has one of these for its life."""

    async def add_partitions(self, coordinator: BrokerRow, asked: Sequence[AskedTransaction]) -> Sequence[Outcomes]:
        """The coordinator's answers, in the order of `asked`, which has a transactional id once.

        Raises TieredError when there is none (unreachable, timed out, cut off); then nothing is known.
        """

    async def write_markers(self, leader: BrokerRow, markers: Sequence[ProducersMarker]) -> Sequence[Outcomes]:
        """How it went with the markers, in the order of `markers`, which has a producer id once. Raises the same."""

    def close(self) -> None:
        """Ends the connections; questions under way raise, and so does every later one."""


class PeerTransactionChannels:
    """Two connections to each broker that was asked something: verifications do not wait behind markers, which wait
    for followers. One of several questions at once waits for the others, within its own time-out."""

    def __init__(
        self, broker_id: int, *, topics: Topics, listener: str = "", security: ClientSecurity = PLAINTEXT
    ) -> None:
        """`listener` is the one that brokers have for each other, and `security` how it is entered. Raises
        InvalidConfig when that does not load."""
        self._broker_id = broker_id
        self._topics = topics
        self._listener = listener
        self._security = PeerSecurity(security)
        self._security.context()
        self._lines: dict[tuple[int, int], _Line] = {}
        self._closed = False

    async def add_partitions(self, coordinator: BrokerRow, asked: Sequence[AskedTransaction]) -> Sequence[Outcomes]:
        """As the protocol says. Raises ConnectionLost, RequestTimedOut, CorruptAnswer, UnsupportedVersion,
        ShuttingDown, or what the coordinator refused all with."""
        names = [self._by_name(each.partitions) for each in asked]

        def build(make: messages.Messages) -> Any:
            return make.AddPartitionsToTxnRequest(
                transactions=[
                    make.AddPartitionsToTxnTransaction(
                        transactional_id=each.transactional_id,
                        producer_id=each.producer.producer_id,
                        producer_epoch=each.producer.producer_epoch,
                        verify_only=not each.adds,
                        topics=[
                            make.AddPartitionsToTxnTopic(name=name, partitions=list(numbers))
                            for name, numbers in by_name.items()
                        ],
                    )
                    for each, by_name in zip(asked, names, strict=True)
                ]
            )

        answer = await self._ask(
            coordinator, ADD_PARTITIONS, build, timeout_ms=ADD_TIMEOUT_MS, at_least=FIRST_OF_SEVERAL_TRANSACTIONS
        )
        if answer.error_code:
            raise _error(answer.error_code, "a coordinator refused AddPartitionsToTxn")
        found = {
            result.transactional_id: {
                (topic.name, each.partition_index): each.partition_error_code
                for topic in result.topic_results
                for each in topic.results_by_partition
            }
            for result in answer.results_by_transaction
        }
        return [
            _outcomes(each.partitions, by_name, found.get(each.transactional_id, {}), "AddPartitionsToTxn")
            for each, by_name in zip(asked, names, strict=True)
        ]

    async def write_markers(self, leader: BrokerRow, markers: Sequence[ProducersMarker]) -> Sequence[Outcomes]:
        """As the protocol says. Raises as `add_partitions`."""
        names = [self._by_name(each.partitions) for each in markers]

        def build(make: messages.Messages) -> Any:
            return make.WriteTxnMarkersRequest(
                markers=[
                    make.WritableTxnMarker(
                        producer_id=each.producer.producer_id,
                        producer_epoch=each.producer.producer_epoch,
                        transaction_result=each.marker.type is MarkerType.COMMIT,
                        topics=[
                            make.WritableTxnMarkerTopic(name=name, partition_indexes=list(numbers))
                            for name, numbers in by_name.items()
                        ],
                        coordinator_epoch=each.marker.coordinator_epoch,
                        transaction_version=RAISES_EPOCH if each.raises_epoch else KEEPS_EPOCH,
                    )
                    for each, by_name in zip(markers, names, strict=True)
                ]
            )

        answer = await self._ask(leader, WRITE_MARKERS, build, timeout_ms=MARKERS_TIMEOUT_MS)
        found = {
            result.producer_id: {
                (topic.name, each.partition_index): each.error_code
                for topic in result.topics
                for each in topic.partitions
            }
            for result in answer.markers
        }
        return [
            _outcomes(each.partitions, by_name, found.get(each.producer.producer_id, {}), "WriteTxnMarkers")
            for each, by_name in zip(markers, names, strict=True)
        ]

    def close(self) -> None:
        """Ends the connections; questions under way raise, and so does every later one."""
        self._closed = True
        for line in self._lines.values():
            line.close()

    def _by_name(self, partitions: Iterable[TopicPartition]) -> "_ByName":
        """The protocol knows topics by name; one that is not there any more is not asked about."""
        by_name: _ByName = defaultdict(dict)
        for partition in partitions:
            topic = self._topics.find_id(partition.topic_id)
            if topic is not None:
                by_name[topic.name][partition.partition] = partition
        return by_name

    async def _ask(
        self,
        broker: BrokerRow,
        api_key: int,
        build: Callable[[messages.Messages], Any],
        *,
        timeout_ms: float,
        at_least: int = 0,
    ) -> Any:
        self._check_open()
        address = broker.address(self._listener)
        if address is None:
            raise ConnectionLost(f"broker {broker.broker_id} has no listener {self._listener}: give it one")
        line = self._lines.setdefault((broker.broker_id, api_key), _Line(self._security))
        client_id = f"broker-{self._broker_id}-transactions-{api_key}"
        try:
            async with asyncio.timeout(timeout_ms / 1000.0):
                peer = await line.connected(address, broker.broker_epoch, client_id, timeout_ms)
                self._check_open(line)
                if peer.version_of(api_key) < at_least:
                    raise UnsupportedVersion(f"broker {broker.broker_id} is too old for transactions; upgrade it")
                return await peer.request(api_key, build, timeout_ms=timeout_ms)
        except TimeoutError:
            raise RequestTimedOut(f"broker {broker.broker_id} did not answer in {timeout_ms:g} ms") from None

    def _check_open(self, line: "_Line | None" = None) -> None:
        if self._closed:
            if line is not None:
                line.close()
            raise ShuttingDown("this broker is stopping, and asks nobody any more")


_ByName = dict[str, dict[int, TopicPartition]]


class _Line:
    """One connection to one broker, opened when it is needed."""

    def __init__(self, security: PeerSecurity) -> None:
        self._security = security
        self._opening = asyncio.Lock()
        self._peer: Peer | None = None
        self._broker_epoch = -1

    async def connected(self, address: tuple[str, int], broker_epoch: int, client_id: str, timeout_ms: float) -> Peer:
        """The connection to the process that is registered so."""
        async with self._opening:
            peer = self._peer
            if peer is not None and peer.is_open and broker_epoch == self._broker_epoch:
                return peer
            self.close()
            self._peer = await Peer.connect(
                *address, client_id=client_id, timeout_ms=timeout_ms, security=self._security
            )
            self._broker_epoch = broker_epoch
            return self._peer

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None


def _outcomes(
    asked: Iterable[TopicPartition], by_name: _ByName, codes: Mapping[tuple[str, int], int], what: str
) -> Outcomes:
    """What an answer says of each partition. Raises CorruptAnswer when it leaves one out."""
    outcomes: dict[TopicPartition, TieredError | None] = {
        each: UnknownTopicOrPartition(f"no topic has the id {each.topic_id} any more") for each in asked
    }
    for name, numbers in by_name.items():
        for number, partition in numbers.items():
            code = codes.get((name, number))
            if code is None:
                raise CorruptAnswer(f"a broker answers {what} and leaves {name}-{number} out")
            outcomes[partition] = None if code == NONE else _error(code, f"{what} for {name}-{number} was refused")
    return outcomes


def _error(code: int, message: str) -> TieredError:
    kind = KINDS.get(code)
    return broker_error(code, message) if kind is None else kind(message)
